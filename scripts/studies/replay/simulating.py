"""Replays every learner on the logs of a cell, by the default, by each target of its grid, and by the paper's q."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from drstream.states.files import atomic_path
from scripts.studies.replay.online import truths
from scripts.studies.replay.worlds import ACTIONS, CELLS, HORIZONS, Cell, learners, table, world_of
from scripts.studies.trials import THREADS, Setting

LEVELS = (0.0, 0.01, 0.05)  # the paper's q
LOGS, Q_LOGS = 32, 16  # of a cell; those that q is tried on, too
FIT = 0.2  # share of a log for the reward model
AUTO = "auto"


def measure(cell: Cell, seed: int, log: int, *, with_q: bool) -> list[dict[str, Any]]:
    """One row for each learner and method, on one log."""
    world = world_of(cell.actions)
    simulated = table(world, cell.logger, cell.rows, seed=1_000_000 * (seed + 1) + 1000 * CELLS.index(cell) + log)
    train, test = drs.Log(simulated, actions=cell.actions).split(FIT, seed=1)
    model = drs.models.Ridge().fit(train, threads=1)
    about = {"actions": cell.actions, "horizon": cell.horizon, "logger": cell.logger, "log": log}
    return [{**about, **row} for row in _replays(test, cell, model, with_q)]


def _replays(test: drs.Log, cell: Cell, model: Any, with_q: bool) -> Iterator[dict[str, Any]]:
    policies = learners(cell.actions)
    started = time.perf_counter()
    for run in _run(test, policies, cell, model):
        yield _row(AUTO, run, time.perf_counter() - started)
        for target in run._tried:
            yield _row(f"bias {target.bias:g}", target)
    if with_q:
        for c_max in (1.0, 1 / cell.actions):
            compiled = {name: policy for name, policy in policies.items() if name != "Python"}
            for run in _run(test, compiled, cell, model, q=list(LEVELS), c_max=c_max):
                yield _row(f"q {run.q:g}, c_max {'1' if c_max == 1 else '1/K'}", run)


def _run(test: drs.Log, policies: dict[str, Any], cell: Cell, model: Any, **options: Any) -> list[drs.Replay]:
    try:
        return list(drs.replay(test, policies, cell.horizon, model, threads=1, **options))
    except drs.NotEnoughEventsError:
        return []


def _row(method: str, run: drs.Replay, seconds: float | None = None) -> dict[str, Any]:
    row = run.row()
    found = {name: row[name] for name in ("value", "stderr", "low", "high", "replicates", "bias_mass", "acceptance")}
    found |= {"by_step": run.by_step if run.complete else None, "bias": row["bias"], "seconds": seconds}
    return {"learner": run.policy, "method": method, **found}


def simulate(setting: Setting) -> None:
    """Write truths.parquet and results.parquet."""
    logs, logs_with_q = setting.repetitions(LOGS, 2), setting.repetitions(Q_LOGS, 2)
    cells = [cell for cell in CELLS if not setting.quick or (cell.actions, cell.horizon) == (ACTIONS[0], HORIZONS[0])]
    os.environ.update(dict.fromkeys(THREADS, "1"))  # the processes inherit these
    with ProcessPoolExecutor(setting.workers, multiprocessing.get_context("spawn")) as pool:
        names = list(learners(2))
        pairs = [(actions, name) for actions in dict.fromkeys(cell.actions for cell in cells) for name in names]
        found = [row for rows in pool.map(truths, *zip(*pairs, strict=True)) for row in rows]
        write(found, setting.output / "truths.parquet")
        rows: list[dict[str, Any]] = []
        started = time.perf_counter()
        for cell in cells:
            tasks = [(cell, setting.seed, log, log < logs_with_q) for log in range(logs)]
            for some in pool.map(_measure, tasks):
                rows += some
            print(*cell, f"{time.perf_counter() - started:.0f} s", flush=True)  # noqa: T201
            write(rows, setting.output / "results.parquet")


def _measure(task: tuple[Cell, int, int, bool]) -> list[dict[str, Any]]:
    cell, seed, log, with_q = task
    return measure(cell, seed, log, with_q=with_q)


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows in half the bytes: seven digits are more than enough for the page."""
    found = pa.Table.from_pylist(rows)
    kinds = [pa.float32() if pa.types.is_floating(field.type) else field.type for field in found.schema]
    found = found.cast(pa.schema(list(zip(found.column_names, kinds, strict=True))))
    with atomic_path(path) as unfinished:
        pq.write_table(found, unfinished, compression="zstd")
