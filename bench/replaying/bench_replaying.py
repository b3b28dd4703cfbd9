"""Measures `replay`: its throughput, its own share of the time with a policy in Python, and its quantile trackers."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import drstream as drs
from bench.common import logs, racing
from bench.common.racing import compare, race
from bench.common.selecting import params
from bench.replaying import cases
from bench.replaying.baselines import averages, check_parity, prepare, prepare_ours
from drstream.replaying import trackers


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_throughput(benchmark: Any, case: cases.Case, tmp_path: Path) -> None:
    case.log.make()
    with ExitStack() as stack:
        baseline = prepare(case, tmp_path, stack)
        remark = check_parity(case, baseline)
        ours, others = race(benchmark, prepare_ours(case, tmp_path, stack), baseline, case.pairs)
    found = compare(ours, others, case.log.rows, case.baseline_rows)
    benchmark.extra_info |= {
        "kind": "replay",
        "name": str(case),
        "task": case.task.name,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": case.baseline,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
        "remark": remark,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} times the throughput of {case.baseline}: {case.required:.2f} is required"
        )


class Timed:
    """Forwards to another policy and adds up the time spent there."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.seconds = 0.0

    @property
    def n_actions(self) -> int | None:
        return self.policy.n_actions

    @property
    def version(self) -> Any:
        return self.policy.version

    def bind(self, log: drs.Log) -> None:
        self.policy.bind(log)

    def reset(self) -> None:
        self._timed(self.policy.reset)

    def probabilities(self, X: Any) -> Any:
        return self._timed(self.policy.probabilities, X)

    def update(self, x: Any, action: int, reward: float) -> None:
        self._timed(self.policy.update, x, action, reward)

    def _timed(self, method: Any, *values: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(*values)
        finally:
            self.seconds += time.perf_counter() - started


def replay_python(policy: Any) -> drs.Replay:
    log = drs.Log(logs.LIST.path, actions=logs.ACTIONS)
    limits = {"replicates": cases.RETRAINED_REPLICATES, "threads": racing.THREADS}
    return drs.replay(log, policy, cases.HORIZON, logs.model(), q=cases.Q, **limits)


def bench_share(benchmark: Any) -> None:
    """Each run has a fresh policy, so each run also trains on `start`."""
    logs.LIST.make()
    plain = replay_python(cases.retrained())
    assert (averages(plain) == averages(replay_python(Timed(cases.retrained())))).all()
    policies: list[Timed] = []

    def setup() -> tuple[tuple[Timed], dict[str, Any]]:
        policies.append(Timed(cases.retrained()))
        return (policies[-1],), {}

    benchmark.pedantic(replay_python, setup=setup, rounds=cases.SHARE_ROUNDS)
    walls = list(benchmark.stats.stats.data)
    shares = [1 - policy.seconds / wall for policy, wall in zip(policies, walls, strict=True)]
    share = median(shares)
    benchmark.extra_info |= {
        "kind": "share",
        "name": cases.SHARE_NAME,
        "log": str(logs.LIST),
        "rows": logs.LIST.rows,
        "events": plain.events,
        "seconds": median(walls),
        "share": share,
        "shares": shares,
        "required": cases.SHARE,
        "passed": share <= cases.SHARE,
    }
    if logs.FULL_SIZE:
        assert share <= cases.SHARE, f"{share:.1%} of the wall time: {cases.SHARE:.0%} at most"


@pytest.mark.parametrize(("kind", "q"), cases.TRACKERS)
def bench_tracker(benchmark: Any, kind: str, q: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.random(cases.TRACKED)
    tracker = (trackers.Exact if kind == "exact" else trackers.Sketch)(q)
    answer = tracker.insert(values)[-1]
    rank = math.ceil(q * len(values))
    true = np.partition(values, rank - 1)[rank - 1]
    assert answer == true if kind == "exact" else true * (1 - trackers.ERROR) < answer <= true
    tracker.insert(rng.random(cases.TRACKER_BATCH))  # untimed: the tracker makes room here

    def setup() -> tuple[tuple[np.ndarray], dict[str, Any]]:
        return (rng.random(cases.TRACKER_BATCH),), {}

    benchmark.pedantic(tracker.insert, setup=setup, rounds=cases.TRACKER_ROUNDS)
    rates = [cases.TRACKER_BATCH / seconds for seconds in benchmark.stats.stats.data]
    rate = median(rates)
    required = cases.TRACKER_RATE if kind == "exact" else None
    benchmark.extra_info |= {
        "kind": "tracker",
        "name": cases.tracker_name(kind, q),
        "tracker": kind,
        "q": q,
        "values": cases.TRACKED,
        "rate": rate,
        "rates": rates,
        "required": required,
        "passed": required is None or rate >= required,
    }
    if required is not None and logs.FULL_SIZE:
        assert rate >= required, f"{rate / 1e6:.2f} M values a second: {required / 1e6:.0f} M are required"
