"""The cases of `evaluate`. Each names a task, a log, a baseline and, if there is one, a requirement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import drstream as drs
from bench.common.baselines import SCAN
from bench.common.logs import ACTIONS, FEATURES, LIST, ROWS, WIDE, LogFile, model, world
from bench.common.racing import THREADS
from bench.common.selecting import main_names

POLICIES = 16


@dataclass(frozen=True, eq=False)
class Task:
    """Policies and estimators for one call of `evaluate`."""

    name: str
    policies: dict[str, Any]
    estimators: Sequence[str] = ("dm", "ips", "snips", "dr")
    options: dict[str, Any] = field(default_factory=lambda: {"interval": "normal"})
    threads: int = THREADS

    @property
    def with_model(self) -> bool:
        return "dr" in self.estimators

    def run(self, source: Any, **more: Any) -> drs.Evaluation:
        log = drs.Log(source, actions=ACTIONS)
        reward_model = model() if self.with_model else None
        options = {"threads": self.threads, **self.options, **more}
        return drs.evaluate(log, self.policies, reward_model, self.estimators, **options)


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
PLAIN = "drstream, with normal intervals"
ONE_THREAD = "drstream, one thread"
POLARS_HAND = "Polars by hand"
DUCKDB_COLUMNS, DUCKDB_ARRAYS = "DuckDB by hand, columns", "DuckDB by hand, arrays"
NUMPY_HAND = "NumPy by hand, one row group per thread"
BY_HAND = (POLARS_HAND, DUCKDB_COLUMNS, DUCKDB_ARRAYS, NUMPY_HAND)
OPEN_BANDIT = "Open Bandit Pipeline in memory"


@dataclass(frozen=True)
class Case:
    task: Task
    log: LogFile
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: for information
    main: str = ""  # short name of a main row
    baseline_rows: int | None = None  # the baseline gets only so many first events; None: all

    def __str__(self) -> str:
        return f"{self.task.name}, {self.log}, against {self.baseline}"


OPEN_BANDIT_ROWS = min(1_000_000, ROWS)  # 5 million take its arrays 2 GB
CASES = [
    Case(FOUR, WIDE, ROW_GROUPS),
    Case(FOUR, LIST, ROW_GROUPS),
    Case(FOUR, WIDE, SCAN),
    Case(FOUR, LIST, SCAN),
    Case(FOUR, WIDE, POLARS_HAND),
    Case(FOUR, WIDE, DUCKDB_COLUMNS),
    Case(FOUR, WIDE, DUCKDB_ARRAYS),
    Case(FOUR, WIDE, NUMPY_HAND),
    Case(FOUR, WIDE, OPEN_BANDIT, baseline_rows=OPEN_BANDIT_ROWS),
    Case(COLUMN, WIDE, POLARS, required=0.75, main="IPS and SNIPS of a column, against Polars"),
    Case(COLUMN, WIDE, DUCKDB, required=1.3, main="IPS and SNIPS of a column, against DuckDB"),
    Case(MANY, LIST, ONE_POLICY, required=0.4, main="16 policies, against one"),  # at most 2.5 times as long
    Case(MANY, WIDE, ONE_POLICY),
    Case(FOUR, WIDE, ONE_THREAD, required=1.7, main="two threads, against one"),
    Case(EVERYTHING, WIDE, PLAIN, required=1 / 2),  # at most twice as long
]
MAIN = main_names(CASES)
NAMES = [*map(str, CASES)]
