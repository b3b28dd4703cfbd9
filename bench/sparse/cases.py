"""The cases of sparse contexts. Each names a task (`evaluate` or `replay`), a log and a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import drstream as drs
from bench.common import racing
from bench.common.baselines import SCAN
from bench.replaying import cases as replaying
from bench.sparse.log import SPARSE, SparseFile, model, open_log

ESTIMATORS = ("dm", "ips", "snips", "dr")
LEARNER = drs.policies.EpsilonGreedy(replaying.EPSILON)
SHARPNESS = 10  # the softmax policy has the model's weights times this


@cache
def policy() -> drs.policies.Softmax:
    return drs.policies.Softmax(SHARPNESS * model().coef_)


def evaluate(source: Any) -> drs.Evaluation:
    return drs.evaluate(open_log(source), {"softmax": policy()}, model(), ESTIMATORS, threads=racing.THREADS)


def replay(source: Any) -> drs.Replay:
    how = {"q": replaying.Q, "threads": racing.THREADS}
    return drs.replay(open_log(source), LEARNER, replaying.HORIZON, model(), **how)


EVALUATE, REPLAY = "dm, ips, snips, dr of a softmax policy", "replay of an ε-greedy learner"
TASKS = {EVALUATE: evaluate, REPLAY: replay}
SCIPY = "SciPy and NumPy in memory"
LOOP = "a hand-written loop in Python and NumPy"


@dataclass(frozen=True)
class Case:
    task: str
    baseline: str
    log: SparseFile = SPARSE
    pairs: int = 5
    baseline_rows: int | None = None  # the baseline gets only so many first events; None: all

    def __str__(self) -> str:
        return f"{self.task}, {self.log}, against {self.baseline}"


CASES = [
    Case(EVALUATE, SCAN),
    Case(EVALUATE, SCIPY, pairs=3),
    Case(REPLAY, SCAN),
    Case(REPLAY, LOOP, pairs=3, baseline_rows=replaying.PEER_ROWS),
]
NAMES = [*map(str, CASES)]
