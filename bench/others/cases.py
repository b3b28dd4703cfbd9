"""The cases on files of other writers. Each names a file, what is asked for, a baseline and a requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import softmax
from bench.common.selecting import main_names
from bench.evaluation import by_hand
from bench.evaluation.baselines import scan_row_groups
from bench.evaluation.cases import DUCKDB_COLUMNS, FOUR, POLARS_HAND, ROW_GROUPS
from bench.others.files import COLUMNS, FILES, FLOAT32, REALISTIC, OtherFile

NOISE, USUAL = OtherFile(FLOAT32, "pyarrow"), OtherFile(REALISTIC, "pyarrow")
PLAIN, COMPILED = "drstream, the plain evaluation", "drstream, the compiled policy"
SOFTMAX = FOUR.policies["softmax"]


def in_python(x: np.ndarray) -> np.ndarray:
    return softmax(x @ SOFTMAX.weights.T + SOFTMAX.intercept)


def evaluate(source: Any, policy: Any = SOFTMAX, **options: Any) -> drs.Evaluation:
    log = drs.Log(source, context=COLUMNS, actions=logs.ACTIONS)
    return drs.evaluate(log, {"softmax": policy}, logs.model(), FOUR.estimators, threads=racing.THREADS, **options)


BASELINES: dict[str, Callable[[Any], Any]] = {
    ROW_GROUPS: scan_row_groups,
    POLARS_HAND: by_hand.polars,
    DUCKDB_COLUMNS: by_hand.duck_columns,
    PLAIN: lambda file: evaluate(file.path),
    COMPILED: lambda file: evaluate(file.path),
}


@dataclass(frozen=True)
class Case:
    file: OtherFile
    baseline: str
    required: float | None = None  # minimum ratio to the baseline's throughput; None: see `SUMMARIES`
    main: str = ""  # short name of a main row
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        asked = "".join(f" {name}={value}" for name, value in self.options.items() if name != "policy")
        return f"four estimators{asked}, {self.file}, against {self.baseline}"

    def run(self) -> drs.Evaluation:
        return evaluate(self.file.path, **self.options)


BY, CLUSTER, BOOTSTRAP = {"by": "country"}, {"cluster": "user"}, {"interval": "bootstrap"}
SCANS = [Case(file, ROW_GROUPS) for file in FILES]
CASES = [
    Case(NOISE, POLARS_HAND, 3, "four estimators, against Polars by hand"),
    Case(NOISE, DUCKDB_COLUMNS, 5, "four estimators, against DuckDB by hand"),
    Case(USUAL, PLAIN, 0.6, "50 segments, against none", BY),
    Case(USUAL, PLAIN, 0.6, "100,000 users as clusters, against none", CLUSTER),
    Case(USUAL, PLAIN, 0.6, "bootstrap, against the default interval", BOOTSTRAP),
    Case(USUAL, PLAIN, 0.4, "segments, clusters and bootstrap, against none", {**BY, **CLUSTER, **BOOTSTRAP}),
    Case(
        USUAL,
        COMPILED,
        0.4,
        "a policy in NumPy, against the same compiled",
        {"policy": drs.policies.from_function(in_python)},
    ),
]
SUMMARIES = {  # of the ratios on the files: their place in ascending order, and the minimum
    "the middle of 12 files of other writers": ((len(FILES) - 1) // 2, 0.45),
    "the worst of 12 files of other writers": (0, 0.33),
}
LABELS = ("four estimators against a scan, the middle of 12 files", "the same, the worst of 12 files")
MAIN = {**dict(zip(SUMMARIES, LABELS, strict=True)), **main_names(CASES)}
NAMES = [*map(str, SCANS), *SUMMARIES, *map(str, CASES)]


def head(file: OtherFile, rows: int) -> Any:
    """The first rows, as a table."""
    with pq.ParquetFile(file.path) as opened:
        return opened.read_row_group(0, columns=list(file.columns)).slice(0, rows)
