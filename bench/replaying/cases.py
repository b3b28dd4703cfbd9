"""The cases of `replay`. Each names a task, a log, a baseline and, if there is one, a requirement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import SCAN
from bench.common.selecting import main_names

HORIZON, Q = 300, 0.05
EPSILON = 0.1  # of the ε-greedy learner, on both sides
PEER_ROWS = 20_000  # other libraries take 0.1 s to 2 s for these
LANES_ROWS = min(1_000_000, logs.ROWS)  # twelve passes over 5 million take half a minute
TWO_GROUPS = replace(logs.WIDE, rows=max(logs.ROWS, 2 * logs.ROW_GROUP_ROWS))  # a shard needs a row group


@dataclass(frozen=True, eq=False)
class Task:
    """Policies and values of q for one call of `replay`. Each policy at each q is a lane. Without q: the default."""

    name: str
    policies: Any
    q: float | Sequence[float] | None = Q
    shards: int = 1

    def run(self, log: logs.LogFile, **more: Any) -> Any:
        source = drs.Log(log.path, actions=logs.ACTIONS)
        options = {"q": self.q, "shards": self.shards, "threads": racing.THREADS}
        return drs.replay(source, self.policies, HORIZON, logs.model(), **options, **more)

    @property
    def apart(self) -> list[Task]:
        """One task for each lane."""
        assert isinstance(self.q, Sequence)
        return [Task(f"{name}, q = {q}", policy, q) for name, policy in self.policies.items() for q in self.q]


GREEDY = Task("an ε-greedy learner", drs.policies.EpsilonGreedy(EPSILON))
SHARDED = Task("an ε-greedy learner, two shards", GREEDY.policies, shards=2)
LEARNERS = {
    "ε-greedy": drs.policies.EpsilonGreedy(),
    "Boltzmann": drs.policies.Boltzmann(),
    "SquareCB": drs.policies.SquareCB(),
}
DEFAULT = Task("an ε-greedy learner, by default (four targets of the bias mass)", GREEDY.policies, None)
DEFAULT_UCB = Task("LinUCB, by default (four targets of the bias mass)", drs.policies.LinUCB(), None)
LANES = Task("three learners at four values of q, in one pass", LEARNERS, (0.0, 0.01, 0.05, 0.1))

HAND = "a hand-written Numba loop, one thread"
APART = "drstream, twelve passes"
ONE_Q = "drstream, the same learner with q = 0.05"
BEFORE = "drstream of commit c9c6c46"
VOWPAL = "Vowpal Wabbit's explore_eval"
COBA = "coba's RejectionCB with its ε-greedy learner"
COBA_NUMPY = "coba's RejectionCB with our learner in NumPy"


@dataclass(frozen=True)
class Case:
    task: Task
    log: logs.LogFile
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: for information
    pairs: int = racing.PAIRS
    baseline_rows: int | None = None  # the baseline gets only so many first events; None: all
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"replay of {self.task.name}, {self.log}, against {self.baseline}"


FEW = min(PEER_ROWS, logs.ROWS)
CASES = [
    Case(GREEDY, logs.MAPPED_LIST, HAND, required=1.2, main="DR-ns, against a loop by hand"),
    Case(SHARDED, TWO_GROUPS, BEFORE, required=2.0, pairs=5, main="DR-ns, against an earlier commit"),
    Case(GREEDY, logs.LIST, SCAN, required=0.5),
    Case(GREEDY, logs.WIDE, SCAN),
    Case(LANES, logs.LogFile("list", "zstd", LANES_ROWS), APART, required=1 / 0.7, pairs=3),  # at most 0.7 of the time
    Case(DEFAULT, logs.WIDE, ONE_Q, required=0.5, pairs=5),
    Case(DEFAULT_UCB, logs.LogFile("wide", "snappy", LANES_ROWS), ONE_Q, required=0.5, pairs=3),
    Case(
        GREEDY,
        logs.MAPPED_LIST,
        VOWPAL,
        required=100,
        pairs=5,
        baseline_rows=FEW,
        main="DR-ns, against Vowpal Wabbit",
    ),
    Case(GREEDY, logs.MAPPED_LIST, COBA, required=200, pairs=3, baseline_rows=FEW),
    Case(GREEDY, logs.MAPPED_LIST, COBA_NUMPY, pairs=5, baseline_rows=FEW),
]

# A policy in Python, retrained every 15 acceptances

SHARE = 0.2  # maximum share of the wall time outside the policy
SHARE_ROUNDS = 5
RETRAINED_REPLICATES = 4  # about 2 s
START_CONTEXTS = 100  # the policy starts with the rewards of all actions for these


def retrained() -> drs.policies.Retrained:
    """The policy of the paper's section 6.2."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    X = rng.standard_normal((START_CONTEXTS, logs.FEATURES))
    rewards = rng.random((START_CONTEXTS, logs.ACTIONS)) < logs.world.reward(X)
    return drs.policies.Retrained(LogisticRegression(max_iter=200), every=15, epsilon=EPSILON, start=(X, rewards))


SHARE_NAME = "replay of a policy in Python"

# The quantile tracker

TRACKED = 2 * logs.ROWS  # values in the tracker before the clock starts: 10 million
TRACKER_BATCH = TRACKED // 50
TRACKER_ROUNDS = 9
TRACKER_RATE = 5e6  # values per second, with the quantile after each
TRACKER_LEVELS = (0.01, 0.05, 0.5)
TRACKERS = [(kind, q) for kind in ("exact", "sketch") for q in TRACKER_LEVELS]


def tracker_name(kind: str, q: float) -> str:
    return f"{kind} quantile tracker, q = {q}"


MAIN = main_names(CASES)
NAMES = [*map(str, CASES), SHARE_NAME, *(tracker_name(kind, q) for kind, q in TRACKERS)]
