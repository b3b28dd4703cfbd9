"""The cases of `evaluate`. Each names a task, a log, a baseline and, if there is one, a requirement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import drstream as drs
from bench.common.baselines import SCAN
from bench.common.logs import ACTIONS, FEATURES, LIST, WIDE, LogFile, model, world
from bench.common.racing import THREADS

POLICIES = 16


@dataclass(frozen=True, eq=False)
class Task:
    """Policies and estimators for one call of `evaluate`."""

    name: str
    policies: dict[str, Any]
    estimators: Sequence[str] = ("dm", "ips", "snips", "dr")
    options: dict[str, Any] = field(default_factory=lambda: {"interval": "normal"})

    @property
    def with_model(self) -> bool:
        return "dr" in self.estimators

    def run(self, source: Any) -> drs.Evaluation:
        log = drs.Log(source, actions=ACTIONS)
        reward_model = model() if self.with_model else None
        return drs.evaluate(log, self.policies, reward_model, self.estimators, threads=THREADS, **self.options)


def argmax_policies(count: int) -> dict[str, Any]:
    weights = np.random.default_rng(0).standard_normal((count, ACTIONS, FEATURES))
    return {f"argmax {i}": drs.policies.Linear(weights[i]) for i in range(count)}


SOFTMAX = {"softmax": drs.policies.Softmax(world.taste, world.appeal)}
FOUR = Task("dm, ips, snips, dr of a softmax policy", SOFTMAX)
EVERYTHING = Task(
    "the same with bootstrap, cluster and anytime intervals and 50 segments",
    SOFTMAX,
    options={
        "interval": ["normal", "bootstrap", "cluster", "anytime"],
        "cluster": "user",
        "by": "segment",
        "reward_range": (0, 1),
        "max_weight_bound": 1e4,
        "clamp": (0, 1),
    },
)
COLUMN = Task("ips, snips of a column", {"target": drs.policies.Column("target")}, ("ips", "snips"))
ONE = Task("dm, ips, snips, dr of an argmax policy", argmax_policies(1))
MANY = Task(f"dm, ips, snips, dr of {POLICIES} argmax policies in one pass", argmax_policies(POLICIES))

ROW_GROUPS = "pyarrow scan, one row group per thread"
DUCKDB, POLARS = "DuckDB", "Polars"
ONE_POLICY = "drstream, one of the policies"
UNCHECKED = "drstream, without checks of the result"
PLAIN = "drstream, with normal intervals"


@dataclass(frozen=True)
class Case:
    task: Task
    log: LogFile
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: for information

    def __str__(self) -> str:
        return f"{self.task.name}, {self.log}, against {self.baseline}"


CASES = [
    Case(FOUR, WIDE, SCAN, required=0.65),
    Case(FOUR, LIST, SCAN, required=0.75),
    Case(FOUR, WIDE, ROW_GROUPS),
    Case(FOUR, LIST, ROW_GROUPS),
    Case(COLUMN, WIDE, DUCKDB, required=1.5),
    Case(COLUMN, WIDE, POLARS, required=0.5),
    Case(MANY, LIST, ONE_POLICY, required=1 / 3),  # at most three times as long as one policy
    Case(MANY, WIDE, ONE_POLICY),
    Case(FOUR, WIDE, UNCHECKED, required=1 / 1.1),  # checks of the result take at most a tenth
    Case(EVERYTHING, WIDE, PLAIN, required=1 / 2),  # at most twice as long
]
NAMES = [*map(str, CASES)]
