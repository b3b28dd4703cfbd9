"""Baselines of `evaluate`, and the check that both sides compute the same numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import (
    PARITY,
    PARITY_FLOAT32,
    PARITY_ROWS,
    SCAN,
    Estimates,
    agree,
    contexts,
    estimates,
    exactly,
    numbers,
    scan,
    softmax,
    textbook,
)
from bench.common.worker import Worker
from bench.evaluation import by_hand, cases, open_bandit


def scan_row_groups(log: Any, workers: int = racing.THREADS) -> int:
    """Reads as drstream does. It holds less memory than `scan` and so depends less on how warm the heap is."""

    def rows(group: int) -> int:
        with pq.ParquetFile(log.path) as file:
            batches = file.iter_batches(32_768, row_groups=[group], columns=log.columns, use_threads=False)
            return sum(batch.num_rows for batch in batches)

    with ThreadPoolExecutor(workers) as threads:
        return sum(threads.map(rows, range(pq.read_metadata(log.path).num_row_groups)))


# IPS and SNIPS of the column `target`, with intervals, in one pass of a query engine


def query_duckdb(log: logs.LogFile) -> Estimates:
    query = """
        SELECT count(*), avg(y), stddev_samp(y), sum(w), sum(y), sum(w * w), sum(w * y), sum(y * y)
        FROM (SELECT target / propensity AS w, target / propensity * reward AS y FROM read_parquet(?))
    """
    return from_sums(*by_hand.connection().execute(query, [str(log.path)]).fetchone())


def query_polars(log: logs.LogFile) -> Estimates:
    weight = pl.col("target") / pl.col("propensity")
    w, y = pl.col("w"), pl.col("y")
    sums = [y.mean(), y.std(), w.sum(), y.sum(), (w * w).sum(), (w * y).sum(), (y * y).sum()]
    query = (
        pl.scan_parquet(log.path)
        .select(w=weight, y=weight * pl.col("reward"))
        .select(n=pl.len(), **{f"s{i}": s for i, s in enumerate(sums)})
    )
    return from_sums(*query.collect(engine="streaming").row(0))  # 1.7 times as fast as the engine "in-memory"


def from_sums(n: int, mean: float, std: float, w: float, y: float, ww: float, wy: float, yy: float) -> Estimates:
    """IPS is a mean. SNIPS is Σy / Σw; by the delta method its variance is that of w (r - SNIPS) / mean(w)."""
    snips = y / w
    squares = (yy - 2 * snips * wy + snips**2 * ww) / (w / n) ** 2
    return {
        ("target", "ips"): numbers(mean, std / math.sqrt(n)),
        ("target", "snips"): numbers(snips, math.sqrt(squares / (n - 1) / n)),
    }


BASELINES: dict[str, Callable[[logs.LogFile], Any]] = {
    SCAN: scan,
    cases.ROW_GROUPS: scan_row_groups,
    cases.DUCKDB: query_duckdb,
    cases.POLARS: query_polars,
    cases.ONE_POLICY: lambda log: cases.ONE.run(log.path),
    cases.PLAIN: lambda log: cases.FOUR.run(log.path),
    cases.ONE_THREAD: lambda log: replace(cases.FOUR, threads=1).run(log.path),
    cases.POLARS_HAND: by_hand.polars,
    cases.DUCKDB_COLUMNS: by_hand.duck_columns,
    cases.DUCKDB_ARRAYS: by_hand.duck_arrays,
    cases.NUMPY_HAND: by_hand.numpy,
}


def prepare(case: cases.Case, folder: Path, stack: ExitStack) -> Callable[[], Any]:
    """Does what needs no timing, and returns the run that is timed. The stack ends what it starts."""
    if case.baseline == cases.OPEN_BANDIT:
        if reason := open_bandit.missing():
            pytest.skip(f"Open Bandit Pipeline is not at hand: {reason}")
        np.savez(folder / "events.npz", **open_bandit_events(head(case.log, case.baseline_rows)))
        worker = Worker(open_bandit.command(folder / "events.npz"), dict(os.environ))
        return stack.enter_context(worker).run
    run = BASELINES[case.baseline]
    return lambda: run(case.log)


def open_bandit_events(table: pa.Table) -> dict[str, np.ndarray]:
    X, model = contexts(table), logs.model()
    names = {"action": "action", "reward": "reward", "pscore": "propensity"}
    events = {theirs: table[ours].to_numpy() for theirs, ours in names.items()}
    pi = _probabilities(cases.SOFTMAX["softmax"], X)
    return {**events, "action": events["action"].astype(int), "pi": pi, "rhat": X @ model.coef_.T + model.intercept_}


# Parity


def check_parity(case: cases.Case, baseline: Callable[[], Any]) -> None:
    """Checks, before the clock starts, that both sides see the same events and compute the same numbers."""
    assert pl.thread_pool_size() == racing.THREADS, "polars was imported before POLARS_MAX_THREADS was set"
    result = case.task.run(case.log.path)
    assert result.n == case.log.rows
    if case.task is cases.COLUMN:
        agree(estimates(result), baseline())
    elif case.baseline in cases.BY_HAND:
        check_by_hand(case, result, baseline())
    elif case.baseline == cases.OPEN_BANDIT:
        first = case.task.run(head(case.log, case.baseline_rows), **exactly())
        for name, value in baseline().items():
            np.testing.assert_allclose(first["softmax", name].value, value, rtol=PARITY)
    elif case.task is cases.EVERYTHING:
        plain = replace(cases.FOUR, options={"interval": "normal", "clamp": (0, 1)}).run(case.log.path)
        for key in estimates(plain):
            one, two = result[key], plain[key]
            np.testing.assert_allclose(
                (one.value, *one.intervals["normal"]), (two.value, two.low, two.high), rtol=PARITY
            )
    else:
        first = head(case.log, PARITY_ROWS)
        plain_result = plain_numpy(case.task, first)
        agree(estimates(case.task.run(first)), plain_result, PARITY_FLOAT32)
        agree(estimates(case.task.run(first, **exactly())), plain_result)
    if case.baseline in (SCAN, cases.ROW_GROUPS):
        assert baseline() == result.n
    elif case.baseline == cases.ONE_THREAD:
        assert baseline().n == result.n


def check_by_hand(case: cases.Case, result: drs.Evaluation, other: Estimates) -> None:
    """The timed forms have float32 scores. In float64 they are checked on a small log, where they can be."""
    agree(estimates(result), other, PARITY_FLOAT32)
    if case.baseline != cases.NUMPY_HAND:
        run: Any = BASELINES[case.baseline]
        exact = case.task.run(logs.SMALL.make(), **exactly())
        agree(estimates(exact), run(logs.SMALL, kind="float64"))


def head(log: logs.LogFile, rows: int | None) -> pa.Table:
    """The first rows; None: all."""
    return ds.dataset(log.path, format="arrow" if log.codec == logs.MAPPED else "parquet").head(rows or log.rows)


def plain_numpy(task: cases.Task, table: pa.Table, rhat: np.ndarray | None = None) -> Estimates:
    """Evaluates the whole log in memory. Without `rhat`, predictions are those of `logs.model()`."""
    events = tuple(table[name].to_numpy() for name in ("action", "reward", "propensity"))
    X = contexts(table)
    if rhat is None:
        rhat = X @ logs.model().coef_.T + logs.model().intercept_
    found = {}
    for name, policy in task.policies.items():
        values = textbook(_probabilities(policy, X), rhat, *events)
        found |= {(name, estimator): values[estimator] for estimator in task.estimators}
    return found


def _probabilities(policy: Any, X: np.ndarray) -> np.ndarray:
    scores = X @ policy.weights.T + policy.intercept
    if isinstance(policy, drs.policies.Linear):
        return np.eye(scores.shape[1])[scores.argmax(axis=1)]
    return softmax(scores)
