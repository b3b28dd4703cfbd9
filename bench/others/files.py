"""Logs as other programs leave them: three kinds of contexts, each written by four writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import logs
from bench.common.baselines import softmax
from drstream.states.files import atomic_path

ROWS = 2_000_000 if logs.FULL_SIZE else 200_000
SEGMENTS, USERS = 50, 100_000
COLUMNS = [f"x{j}" for j in range(logs.FEATURES)]
GROUP_BYTES, PAGE_BYTES = 128 << 20, 1 << 20  # of parquet-mr
FLOAT32, FLOAT64, REALISTIC = CONTEXTS = ("float32 noise", "float64 noise", "realistic float64")


@lru_cache(1)
def events(kind: str) -> pa.Table:
    """Clicks are rare, and five times as many where a feature is large."""
    rng = np.random.default_rng(CONTEXTS.index(kind))
    x = contexts(kind, rng)
    mu = 0.5 / logs.ACTIONS + 0.5 * softmax(x @ (rng.normal(size=(logs.FEATURES, logs.ACTIONS)) / 10))
    action = (rng.random((ROWS, 1)) > mu.cumsum(axis=1)).sum(axis=1).clip(max=logs.ACTIONS - 1)
    named = {
        "action": action,
        "reward": (rng.random(ROWS) < np.where(x[:, 0] > 1, 0.1, 0.02)).astype(float),
        "propensity": mu[np.arange(ROWS), action],
        "country": pa.array([f"country {i}" for i in range(SEGMENTS)]).take(pa.array(skewed(rng))),
        "user": rng.integers(0, USERS, ROWS),
    }
    return pa.table({**named, **dict(zip(COLUMNS, x.T, strict=True))})


def contexts(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Noise has no two numbers alike. In real logs, most columns repeat a few."""
    if kind != REALISTIC:
        return rng.normal(size=(ROWS, logs.FEATURES)).astype(np.float32 if kind == FLOAT32 else np.float64)
    four = (ROWS, logs.FEATURES // 5)
    columns = (
        rng.normal(size=four).round(2),
        rng.poisson(3, four),  # counts
        rng.random(four) < 0.2,  # flags
        rng.exponential(size=four).round(3),
        rng.integers(0, 8, four),  # codes of categories
    )
    return np.column_stack(columns).astype(np.float64)


def skewed(rng: np.random.Generator) -> np.ndarray:
    """Half of the events are in a sixth of the segments."""
    return (SEGMENTS * rng.random(ROWS) ** 2.5).astype(int)


# Writers


def by_pyarrow(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def by_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("events", table)
        connection.execute(f"COPY events TO '{path}' (FORMAT parquet)")


def by_polars(table: pa.Table, path: Path) -> None:
    frame: Any = pl.from_arrow(table)
    frame.write_parquet(path)


def as_parquet_mr(table: pa.Table, path: Path) -> None:
    """As Spark and Hive write: its row groups and pages end by their bytes."""
    pq.write_table(
        table,
        path,
        row_group_size=GROUP_BYTES * len(table) // table.nbytes,
        data_page_size=PAGE_BYTES,
        data_page_version="1.0",
        use_dictionary=True,
        compression="snappy",
    )


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "pyarrow": by_pyarrow,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "parquet-mr's settings": as_parquet_mr,
}


@dataclass(frozen=True)
class OtherFile:
    contexts: str
    writer: str
    columns = ("action", "reward", "propensity", *COLUMNS)  # those that an evaluation reads

    def __str__(self) -> str:
        return f"{self.contexts} by {self.writer}"

    @property
    def path(self) -> Path:
        words = f"{self.contexts} {self.writer}".replace("'", "").replace(" ", "-").lower()
        return logs.LOGS / "others" / f"{words}-{ROWS}.parquet"

    def make(self) -> Path:
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(self.path) as unfinished:
                WRITERS[self.writer](events(self.contexts), unfinished)
        return self.path


FILES = [OtherFile(contexts, writer) for contexts in CONTEXTS for writer in WRITERS]
