"""The cases: which log, what is evaluated on it, against which baseline, and what is required."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import drstream as drs

ROOT = Path(__file__).parents[2]
LOGS = Path(os.environ.get("DRSTREAM_BENCH_LOGS") or ROOT / "logs")
REQUIRED_ROWS = 5_000_000
ROWS = int(os.environ.get("DRSTREAM_BENCH_ROWS") or REQUIRED_ROWS)
FULL_SIZE = ROWS >= REQUIRED_ROWS  # below it, what is required is reported, but does not fail
THREADS = 2
PAIRS = 9
ACTIONS, FEATURES = 10, 20
POLICIES = 16

PEAK_MEMORY = 500  # MB, at any number of rows
MEMORY_GROWTH = 1.10  # peak at four times the rows
START = 2.0  # s, with a warm kernel cache


@dataclass(frozen=True)
class LogFile:
    """A synthetic log, made by scripts/make_log when it is first needed."""

    layout: str
    codec: str
    rows: int = ROWS

    def __str__(self) -> str:
        return f"{self.layout} {self.codec}"

    @property
    def path(self) -> Path:
        return LOGS / f"{self.layout}-{self.codec}-{self.rows}.parquet"

    @property
    def columns(self) -> list[str]:
        """What an evaluation with contexts reads of it: all but `target`."""
        contexts = ["x"] if self.layout == "list" else [f"x{j}" for j in range(FEATURES)]
        return ["action", "reward", "propensity", *contexts]

    def make(self) -> Path:
        if not self.path.exists():
            LOGS.mkdir(parents=True, exist_ok=True)
            sizes = ["--rows", str(self.rows), "--actions", str(ACTIONS), "--features", str(FEATURES)]
            form = ["--layout", self.layout, "--codec", self.codec]
            subprocess.run([sys.executable, ROOT / "scripts" / "make_log", self.path, *sizes, *form], check=True)
        return self.path


WIDE, LIST = LogFile("wide", "snappy"), LogFile("list", "zstd")
SMALL = LogFile("wide", "snappy", rows=1_000)

world = drs.synth.World(ACTIONS, FEATURES, kinds=None)  # the one that make_log draws from


@cache
def model() -> drs.models.Ridge:
    return drs.models.Ridge().fit(drs.Log(world.table(10_000, seed=99)))


@dataclass(frozen=True, eq=False)
class Task:
    """What drstream is asked for."""

    name: str
    policies: dict[str, Any]
    estimators: Sequence[str] = ("dm", "ips", "snips", "dr")

    @property
    def with_model(self) -> bool:
        return "dr" in self.estimators

    def run(self, source: Any) -> drs.Evaluation:
        log = drs.Log(source, actions=ACTIONS)
        return drs.evaluate(log, self.policies, model() if self.with_model else None, self.estimators, threads=THREADS)


def argmax_policies(count: int) -> dict[str, Any]:
    weights = np.random.default_rng(0).standard_normal((count, ACTIONS, FEATURES))
    return {f"argmax {i}": drs.policies.Linear(weights[i]) for i in range(count)}


FOUR = Task("dm, ips, snips, dr of a softmax policy", {"softmax": drs.policies.Softmax(world.taste, world.appeal)})
COLUMN = Task("ips, snips of a column", {"target": drs.policies.Column("target")}, ("ips", "snips"))
ONE = Task("dm, ips, snips, dr of an argmax policy", argmax_policies(1))
MANY = Task(f"the same of {POLICIES} argmax policies in one pass", argmax_policies(POLICIES))

SCAN, ROW_GROUPS = "pyarrow scan", "pyarrow scan, a row group a thread"
DUCKDB, POLARS = "DuckDB", "Polars"
ONE_POLICY = "drstream, one of the policies"


@dataclass(frozen=True)
class Case:
    task: Task
    log: LogFile
    baseline: str
    required: float | None = None  # share of the baseline's throughput; None: for information

    def __str__(self) -> str:
        return f"{self.task.name}, {self.log}, against {self.baseline}"


CASES = [
    Case(FOUR, WIDE, SCAN, required=0.65),
    Case(FOUR, LIST, SCAN, required=0.75),
    Case(FOUR, WIDE, ROW_GROUPS),
    Case(FOUR, LIST, ROW_GROUPS),
    Case(COLUMN, WIDE, DUCKDB, required=1.5),
    Case(COLUMN, WIDE, POLARS, required=0.5),
    Case(MANY, LIST, ONE_POLICY, required=1 / 3),  # at most 3 times the time of one
    Case(MANY, WIDE, ONE_POLICY),
]
MEMORY_LOGS = [WIDE, LIST]


def memory_name(log: LogFile) -> str:
    return f"peak memory, {log}"


START_NAME = "a fresh process"
NAMES = [*map(str, CASES), *map(memory_name, MEMORY_LOGS), START_NAME]  # of all rows of the report
