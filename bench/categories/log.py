"""A log of six string columns, as a shop writes them: few categories in each, or a few hundred."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import logs

COLUMNS = [f"c{j}" for j in range(6)]


@dataclass(frozen=True)
class TextFile(logs.LogFile):
    """Categories of a column are drawn by Zipf's law."""

    layout: str = "text"
    codec: str = "snappy"
    categories: int = 8  # of each column

    def __str__(self) -> str:
        return f"6 string columns of {self.categories} categories, {self.codec}"

    @property
    def path(self) -> Path:
        return logs.LOGS / f"{self.layout}-{self.codec}-{self.categories}-{self.rows}.parquet"

    @property
    def columns(self) -> list[str]:
        return ["reward", *COLUMNS]

    def table(self, rows: int, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        share = 1 / np.arange(1, self.categories + 1)
        columns: dict[str, object] = {
            "action": np.zeros(rows, np.int32),
            "reward": (rng.random(rows) < 0.1).astype(float),
        }
        for j, name in enumerate(COLUMNS):
            words = pa.array([f"category {j}-{i}" for i in range(self.categories)])
            columns[name] = words.take(pa.array(rng.choice(self.categories, rows, p=share / share.sum())))
        return pa.table(columns)

    def make(self) -> Path:
        if not self.path.exists():
            logs.LOGS.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            with pq.ParquetWriter(unfinished, self.table(1, 0).schema, compression=self.codec) as writer:
                for seed, first in enumerate(range(0, self.rows, self.row_group_rows)):
                    writer.write_table(self.table(min(self.row_group_rows, self.rows - first), seed))
            unfinished.replace(self.path)
        return self.path


FEW, MANY = TextFile(), TextFile(categories=300)
