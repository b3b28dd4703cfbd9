"""Runs the repetitions of an experiment on all cores, and writes results together with their settings."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drstream.running.executors import usable_cores
from drstream.states.files import atomic_path

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Setting:
    """The settings that all experiments share."""

    data: Path
    output: Path
    quick: bool = False
    seed: int = 0
    workers: int = field(default_factory=usable_cores)
    logs: int | None = None  # of each simulated world, if not as many as usual

    def repetitions(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def generator(*key: int) -> np.random.Generator:
    """Random numbers for a key, e.g. (seed, experiment, repetition). Zeros at the end of the key change nothing."""
    return np.random.default_rng([part & (2**64 - 1) for part in key])


def run(task: Callable[..., list[Row]], cases: Sequence[tuple[Any, ...]], setting: Setting, title: str) -> list[Row]:
    """The rows of task(*case) for all cases, in their order. Runs in processes with one thread each."""
    from rich.console import Console
    from rich.progress import Progress

    found: dict[int, list[Row]] = {}
    with Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task(title, total=len(cases))
        if setting.workers == 1:
            for i, case in enumerate(cases):
                found[i] = _quietly(task, *case)
                bars.advance(bar)
        else:
            before = {name: os.environ.get(name) for name in THREADS}
            os.environ.update(dict.fromkeys(THREADS, "1"))  # the processes inherit these
            try:
                with ProcessPoolExecutor(setting.workers, multiprocessing.get_context("spawn")) as pool:
                    futures = {pool.submit(_quietly, task, *case): i for i, case in enumerate(cases)}
                    try:
                        for future in as_completed(futures):
                            found[futures[future]] = future.result()
                            bars.advance(bar)
                    except BaseException:
                        pool.shutdown(wait=False, cancel_futures=True)
                        raise
            finally:
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
    return [row for i in range(len(cases)) for row in found[i]]


def _quietly(task: Callable[..., list[Row]], *case: Any) -> list[Row]:
    """Ignores the warning about models fitted on the events that they complete, because the paper does so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the reward model was fitted on events")
        return task(*case)


def write(name: str, rows: Iterable[Row], setting: Setting, started: float) -> Path:
    """Writes NAME.parquet, with the settings in its metadata."""
    table = pa.Table.from_pylist(list(rows))
    about = {
        "quick": str(setting.quick),
        "seed": str(setting.seed),
        "seconds": f"{time.perf_counter() - started:.1f}",
        "workers": str(setting.workers),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
    }
    setting.output.mkdir(parents=True, exist_ok=True)
    path = setting.output / f"{name}.parquet"
    with atomic_path(path) as unfinished:
        pq.write_table(table.replace_schema_metadata(about), unfinished)
    return path


def made(setting: Setting, started: float) -> str:
    """How results were made."""
    seconds, date = time.perf_counter() - started, time.strftime("%Y-%m-%d")
    return f"{date}, commit {commit()}, seed {setting.seed}: {seconds:.0f} s on {setting.workers} cores"


def commit() -> str:
    """The commit that is checked out, with a plus sign if files differ from it."""
    found = []
    for command in ("rev-parse --short=10 HEAD", "status --porcelain --untracked-files=no -- drstream scripts"):
        ran = subprocess.run(["git", *command.split()], cwd=ROOT, capture_output=True, text=True, check=False)
        found.append(ran.stdout.strip())
    commit, changed = found
    return f"{commit}{'+' * bool(changed)}" if commit else "unknown"
