"""Baselines of `replay`, and the check that both sides compute the same, or at least see the same events."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import PARITY, SCAN, scan
from bench.common.worker import Worker
from bench.replaying import before, cases, hand_loop
from bench.replaying.cases import Case
from bench.replaying.peers import PEERS

Baseline = Callable[[], Any]


def prepare(case: Case, folder: Path, stack: ExitStack) -> Baseline:
    """Does what needs no timing, and returns the run that is timed. The stack ends what it starts."""
    if case.baseline == cases.BEFORE:
        code = before.code(folder / "before")
        if isinstance(code, str):
            pytest.skip(code)
        return stack.enter_context(start(case, code, folder / "kernels before")).run
    if case.baseline in PEERS:
        return PEERS[case.baseline](case.log, case.baseline_rows or case.log.rows, folder)
    if case.baseline == cases.HAND:
        return lambda: hand_loop.replay(case.log.path, case.log.rows)
    if case.baseline == cases.ONE_Q:
        return lambda: cases.Task(case.task.name, case.task.policies).run(case.log)
    if case.baseline == cases.APART:
        return lambda: [task.run(case.log) for task in case.task.apart]
    assert case.baseline == SCAN
    return lambda: scan(case.log)


def prepare_ours(case: Case, folder: Path, stack: ExitStack) -> Baseline:
    """Beside another process, drstream has a process, too: both sides then differ by their code alone."""
    if case.baseline == cases.BEFORE:
        return stack.enter_context(start(case, logs.ROOT, folder / "kernels now")).run
    return lambda: case.task.run(case.log)


def start(case: Case, code: Path, kernels: Path) -> Worker:
    settings = [cases.HORIZON, cases.Q, cases.EPSILON, case.task.shards, racing.THREADS]
    return Worker(before.command(code, case.log.path, settings), before.environment(code, kernels))


def check_parity(case: Case, baseline: Baseline) -> str:
    """Runs before the clock starts. Returns a remark for the page, or an empty string."""
    exact = {"precision": "float64"} if case.baseline in (cases.HAND, cases.BEFORE) else {}
    ours = case.task.run(case.log, **exact)
    theirs = baseline()
    if case.baseline in PEERS:
        assert theirs.events == case.baseline_rows
        assert theirs.accepted > 0
        assert math.isfinite(theirs.value)
        return (
            f"{case.baseline} accepts {theirs.accepted:,} of its {theirs.events:,} events and reports a reward of "
            f"{theirs.value:.3f} per step. drstream accepts {ours.acceptance:.1%} of all events and reports "
            f"{ours.value:.3f} per step over the first {ours.horizon} steps."
        )
    if case.baseline == cases.HAND:
        assert ours.events == case.log.rows
        _agree(averages(ours), theirs)
    elif case.baseline == cases.BEFORE:
        assert ours.events == theirs["events"] == case.log.rows
        _agree(averages(ours), np.array(theirs["averages"]))
    elif case.baseline == cases.ONE_Q:
        assert theirs.events == case.log.rows <= ours.events + ours.pilot_events
        assert ours.complete > theirs.complete > 0
    elif case.baseline == cases.APART:
        for together, alone in zip(ours, theirs, strict=True):
            assert together.events == alone.events == case.log.rows
            _agree(averages(together), averages(alone))
    else:
        assert ours.events == theirs == case.log.rows
    return ""


def averages(run: drs.Replay) -> np.ndarray:
    return run.replicates["average"].to_numpy()


def _agree(ours: np.ndarray, theirs: np.ndarray) -> None:
    """The same number of replicates, and the same average of each."""
    assert len(ours) == len(theirs) > 0
    np.testing.assert_allclose(ours, theirs, rtol=PARITY)
