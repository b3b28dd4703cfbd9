"""Converts a synthetic log in several ways, and times conversions, evaluations and replays in turns."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

import drstream as drs
from scripts.studies.trials import ROOT

ACTIONS, FEATURES = 10, 20
GROUP_ROWS = [1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20]
CSV_ROWS = 250_000  # CSV takes long, and its time is proportional to its rows
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {  # by name: suffix, and options of convert
    "Parquet": (".parquet", {}),
    "Parquet, zstd": (".parquet", {"codec": "zstd"}),
    "Parquet, packed": (".parquet", {"pack": "x"}),
    "Arrow IPC": (".arrow", {}),
    "Arrow IPC, packed": (".arrow", {"pack": "x"}),
}
world = drs.synth.World(ACTIONS, FEATURES, kinds=None)  # make_log draws from the same world
policy = drs.policies.Softmax(world.taste, world.appeal)
Seconds = dict[Any, float]


@dataclass
class Source:
    """A log as it was before, and how it is evaluated after each conversion."""

    name: str
    path: Path
    evaluate: float = 0.0  # seconds
    replay: float = 0.0
    conversions: dict[str, dict[str, float]] = field(default_factory=dict)  # seconds and bytes, by target


@dataclass
class Measured:
    rows: int
    rounds: int
    sources: list[Source]
    groups: dict[tuple[str, int], dict[str, float]]  # by kind of file and rows of a row group
    csv: dict[str, float]


def measure(folder: Path, rows: int, rounds: int) -> Measured:
    model = drs.models.Ridge().fit(drs.Log(world.table(10_000, seed=99)))
    sources = [
        Source("wide, snappy", make_log(folder / "wide.parquet", rows)),
        Source("lists, zstd", make_log(folder / "list.parquet", rows, "--layout", "list", "--codec", "zstd")),
        Source("wide, as pandas writes it", as_pandas(folder / "wide.parquet", folder / "pandas.parquet")),
    ]
    for source in sources:
        compare(source, folder, model, rounds)
    groups = row_groups(sources[0].path, folder, model, rounds)
    return Measured(rows, rounds, sources, groups, from_csv(sources[0].path, folder))


def make_log(path: Path, rows: int, *options: str) -> Path:
    sizes = ["--rows", str(rows), "--actions", str(ACTIONS), "--features", str(FEATURES)]
    subprocess.run([sys.executable, ROOT / "scripts" / "make_log", path, *sizes, *options], check=True)
    return path


def as_pandas(log: Path, path: Path) -> Path:
    """The same log as `DataFrame.to_parquet` writes it: pyarrow's default row groups and dictionaries."""
    pq.write_table(pq.read_table(log), path)
    return path


def compare(source: Source, folder: Path, model: Any, rounds: int) -> None:
    """Convert a log in every way, check that nothing but the last bits changed, and time it all."""
    paths = {name: folder / f"out-{place}{suffix}" for place, (name, (suffix, _)) in enumerate(TARGETS.items())}

    def conversion(name: str) -> Callable[[], object]:
        return lambda: drs.convert(source.path, paths[name], **TARGETS[name][1])

    convert = in_turns({name: conversion(name) for name in TARGETS}, max(3, rounds // 3))
    logs = {"source": source.path, **paths}
    values = {name: evaluate(path, model) for name, path in logs.items()}
    for name, found in values.items():
        np.testing.assert_allclose(found, values["source"], rtol=1e-12, err_msg=name)
    evaluated = all_turns({name: lambda path=path: evaluate(path, model) for name, path in logs.items()}, rounds)
    replayed = all_turns({name: lambda path=path: replay(path, model) for name, path in logs.items()}, rounds)
    source.evaluate, source.replay = median(evaluated["source"]), median(replayed["source"])
    for name, path in paths.items():
        source.conversions[name] = {
            "convert": convert[name],
            "evaluate": median(evaluated[name]),
            "evaluate gain": gain(evaluated["source"], evaluated[name]),
            "replay": median(replayed[name]),
            "replay gain": gain(replayed["source"], replayed[name]),
            "bytes": path.stat().st_size,
        }
        path.unlink()


def row_groups(log: Path, folder: Path, model: Any, rounds: int) -> dict[tuple[str, int], dict[str, float]]:
    """Time evaluations of logs that differ in their row groups or record batches only."""
    paths = {
        (name, rows): folder / f"{rows}{TARGETS[name][0]}" for name in ("Parquet", "Arrow IPC") for rows in GROUP_ROWS
    }
    for (_, rows), path in paths.items():
        drs.convert(log, path, row_group_rows=rows)
    evaluated = in_turns({key: lambda path=path: evaluate(path, model) for key, path in paths.items()}, rounds)
    columns = in_turns({key: lambda path=path: two_columns(path) for key, path in paths.items()}, rounds)
    found = {
        key: {"evaluate": evaluated[key], "columns": columns[key], "bytes": path.stat().st_size}
        for key, path in paths.items()
    }
    for key, path in paths.items():
        found[key]["memory"] = peak_memory(path)
        path.unlink()
    return found


def from_csv(log: Path, folder: Path) -> dict[str, float]:
    path = folder / "log.csv"
    pyarrow.csv.write_csv(next(pq.ParquetFile(log).iter_batches(CSV_ROWS)), path)
    size = path.stat().st_size
    seconds = in_turns({"csv": lambda: drs.convert(path, folder / "csv.parquet")}, 3)["csv"]
    return {"rows": CSV_ROWS, "bytes": size, "convert": seconds}


def evaluate(path: Path, model: Any) -> list[float]:
    result = drs.evaluate(path, {"softmax": policy}, model)
    return [row["value"] for row in result.rows()]


def two_columns(path: Path) -> object:
    """IPS of a policy whose probabilities are a column: three columns are read, and little is computed."""
    return drs.evaluate(path, drs.policies.Column("target"), estimators="ips")


def replay(path: Path, model: Any) -> object:
    return drs.replay(path, drs.policies.EpsilonGreedy(), 1000, model, q=0.01)


def in_turns(runs: Mapping[Any, Callable[[], object]], rounds: int) -> Seconds:
    """Return the median seconds of each. They take turns, so that a busy moment of the machine slows all of them."""
    return {name: median(taken) for name, taken in all_turns(runs, rounds).items()}


def all_turns(runs: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, list[float]]:
    """Return the seconds of each run, round by round."""
    seconds: dict[Any, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def gain(before: list[float], after: list[float]) -> float:
    """Return the seconds that a run saves, the median over rounds; 0 if a quarter of them, or more, save nothing."""
    saved = [one - other for one, other in zip(before, after, strict=True)]
    return median(saved) if np.quantile(saved, 0.25) > 0 else 0.0


PEAK = """
import sys
import drstream as drs
drs.convert(sys.argv[1], sys.argv[2], row_group_rows=int(sys.argv[3]))
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def peak_memory(path: Path) -> float:
    """Return the peak memory, in bytes, of a process that writes this file again; NaN where only Linux knows.

    It is VmHWM, which starts at zero with the process. getrusage's ru_maxrss also counts the parent.
    """
    if not Path("/proc/self/status").exists():
        return math.nan
    again = path.with_name(f"again{path.suffix}")
    words = [sys.executable, "-c", PEAK, path.with_name("wide.parquet"), again, path.stem]
    found = subprocess.run([*map(str, words)], check=True, capture_output=True, text=True, env=os.environ).stdout
    again.unlink()
    return float(found) * 1024
