"""The cases of replay: which log, which policies learn on it, against which baseline, and what is required."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from bench.evaluation import cases

HORIZON, Q = 300, 0.05
EPSILON = 0.1  # of the ε-greedy learner, ours and others'
PEER_ROWS = 20_000  # other libraries take 0.1 s to 2 s for as many
LANES_ROWS = min(1_000_000, cases.ROWS)  # twelve passes over 5 million take half a minute


@dataclass(frozen=True)
class MappedFile(cases.LogFile):
    """The rows of a list log as uncompressed Arrow IPC, which is mapped into memory and not decoded."""

    def __str__(self) -> str:
        return f"{self.layout} mapped"

    @property
    def path(self) -> Path:
        return cases.LOGS / f"{self.layout}-{self.codec}-{self.rows}.arrow"

    def make(self) -> Path:
        if not self.path.exists():
            unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            source = pq.ParquetFile(cases.LogFile("list", "zstd", self.rows).make())
            with source, pa.ipc.new_file(str(unfinished), source.schema_arrow) as writer:
                for group in range(source.num_row_groups):  # of 262,144 rows, as the record batches are then
                    writer.write_table(source.read_row_group(group).combine_chunks())
            unfinished.replace(self.path)
        return self.path


MAPPED = MappedFile("list", "ipc")


@dataclass(frozen=True, eq=False)
class Task:
    """What drstream is asked to replay; each policy at each q is a lane."""

    name: str
    policies: Any
    q: float | Sequence[float] = Q

    def run(self, log: cases.LogFile) -> Any:
        source = drs.Log(log.path, actions=cases.ACTIONS)
        return drs.replay(source, self.policies, HORIZON, cases.model(), q=self.q, threads=cases.THREADS)

    @property
    def apart(self) -> list[Task]:
        """One for each lane."""
        return [Task(f"{name}, q = {q}", policy, q) for name, policy in self.policies.items() for q in self.q]


GREEDY = Task("an ε-greedy learner", drs.policies.EpsilonGreedy(EPSILON))
LEARNERS = {
    "ε-greedy": drs.policies.EpsilonGreedy(),
    "Boltzmann": drs.policies.Boltzmann(),
    "SquareCB": drs.policies.SquareCB(),
}
LANES = Task("three learners at four q, in one pass", LEARNERS, (0.0, 0.01, 0.05, 0.1))

HAND = "a loop by hand in Numba, one thread"
APART = "drstream, twelve passes"
VOWPAL = "Vowpal Wabbit's explore_eval"
COBA = "coba's RejectionCB, its ε-greedy learner"
COBA_NUMPY = "coba's RejectionCB, our learner in NumPy"


@dataclass(frozen=True)
class Case:
    task: Task
    log: cases.LogFile
    baseline: str
    required: float | None = None  # times the baseline's throughput; None: for information
    pairs: int = cases.PAIRS
    baseline_rows: int | None = None  # events that the baseline is given, the first ones; None: all

    def __str__(self) -> str:
        return f"replay of {self.task.name}, {self.log}, against {self.baseline}"


FEW = min(PEER_ROWS, cases.ROWS)
CASES = [
    Case(GREEDY, MAPPED, HAND, required=0.7),
    Case(GREEDY, cases.LIST, cases.SCAN, required=0.5),
    Case(GREEDY, cases.WIDE, cases.SCAN),
    Case(LANES, cases.LogFile("list", "zstd", LANES_ROWS), APART, required=1 / 0.7, pairs=3),  # 0.7 of the time
    Case(GREEDY, MAPPED, VOWPAL, required=50, pairs=5, baseline_rows=FEW),
    Case(GREEDY, MAPPED, COBA, required=200, pairs=3, baseline_rows=FEW),
    Case(GREEDY, MAPPED, COBA_NUMPY, pairs=5, baseline_rows=FEW),
]

# A policy in Python, retrained every 15 acceptances

SHARE = 0.2  # of the wall time, at most, for all but the policy
SHARE_ROUNDS = 5
RETRAINED_REPLICATES = 4  # about 2 s
START_CONTEXTS = 100  # of which the rewards of all actions are known at the start


def retrained() -> drs.policies.Retrained:
    """The policy of the paper's section 6.2."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    X = rng.standard_normal((START_CONTEXTS, cases.FEATURES))
    rewards = rng.random((START_CONTEXTS, cases.ACTIONS)) < cases.world.reward(X)
    return drs.policies.Retrained(LogisticRegression(max_iter=200), every=15, epsilon=EPSILON, start=(X, rewards))


SHARE_NAME = "replay of a policy in Python"

# The quantile tracker

TRACKED = 2 * cases.ROWS  # values inside before any is timed: 10 million
TRACKER_BATCH = TRACKED // 50
TRACKER_ROUNDS = 9
TRACKER_RATE = 5e6  # values inserted, and the quantile asked for after each, a second
TRACKER_LEVELS = (0.01, 0.05, 0.5)
TRACKERS = [(kind, q) for kind in ("exact", "sketch") for q in TRACKER_LEVELS]


def tracker_name(kind: str, q: float) -> str:
    return f"{kind} quantile tracker, q = {q}"


# In a process of its own

BYTES_A_VALUE = 16  # of Q, at most, that the exact tracker adds to the peak
LONG = drs.policies.EpsilonGreedy(epsilon=1.0)  # uniform: 24 % of the events are accepted at q = 0.01


def replay_long(log: str, tracker: str) -> Any:
    """Replicates of a tenth of the log's rows in steps: two are complete, each of 0.4 of its events."""
    source = drs.Log(log, actions=cases.ACTIONS)
    horizon = (source.rows or 0) // 10
    return drs.replay(source, LONG, horizon, cases.model(), q=0.01, tracker=tracker, threads=cases.THREADS)


def values_held(log: str, run: drs.Replay) -> int:
    """The most that Q held at once in `replay_long`: ratios p / π below c_max, since others are only counted."""
    small = pq.read_table(log, columns=["propensity"])["propensity"].to_numpy() < run.c_max / cases.ACTIONS
    starts = [*run.replicates["first_row"].to_pylist(), len(small) - run.left_over]
    return max(int(part.sum()) for part in np.split(small, starts[1:]))


def replay_small(log: str) -> Any:
    source = drs.Log(log, actions=cases.ACTIONS)
    return drs.replay(source, GREEDY.policies, 20, cases.model(), q=Q, threads=cases.THREADS)


MEMORY_NAME = "peak memory of replay"
START_NAME = "a fresh process that replays"
NAMES = [
    *map(str, CASES),
    SHARE_NAME,
    *(tracker_name(kind, q) for kind, q in TRACKERS),
    MEMORY_NAME,
    START_NAME,
]
