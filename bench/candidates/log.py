"""A log of candidates: 20 an event, of 10 features each, in the forms that logs have them; and a table of items."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from bench.common import logs

CANDIDATES, ITEM_FEATURES = 20, 10
NAMES = [f"z{j}" for j in range(ITEM_FEATURES)]
LISTS, STRUCTS, ITEMS = "list of lists", "list of structs", "looked up"
ROW_GROUP_ROWS = 50_000  # 40 MB of features


@dataclass(frozen=True)
class CandidateFile(logs.LogFile):
    """Candidates are drawn from a catalogue, which is a file of its own where features are looked up."""

    layout: str = LISTS
    codec: str = "snappy"
    rows: int = logs.ROWS // 10
    row_group_rows: int = ROW_GROUP_ROWS
    catalogue: int = 1_000

    def __str__(self) -> str:
        known = f", {self.catalogue:,} items" if self.layout == ITEMS else ""
        return f"{CANDIDATES} candidates of {ITEM_FEATURES} features, {self.layout}{known}, {self.codec}"

    @property
    def path(self) -> Path:
        form = self.layout.replace(" ", "-")
        return logs.LOGS / f"candidates-{form}-{self.codec}-{self.catalogue}-{self.rows}.parquet"

    @property
    def items_path(self) -> Path:
        return logs.LOGS / f"items-{self.catalogue}.parquet"

    @property
    def columns(self) -> list[str]:
        """The columns that an evaluation reads."""
        contexts = [f"x{j}" for j in range(self.features)]
        return ["action", "reward", "propensity", "items" if self.layout == ITEMS else "z", *contexts]

    @property
    def items(self) -> np.ndarray:
        return np.random.default_rng(1).normal(size=(self.catalogue, ITEM_FEATURES)).astype(np.float32)

    def candidates(self) -> drs.Candidates:
        if self.layout == ITEMS:
            return drs.Candidates("items", drs.Items(self.items_path, features=NAMES))
        return drs.Candidates(features="z")

    def open(self) -> drs.Log:
        return drs.Log(self.path, candidates=self.candidates())

    def table(self, rows: int, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        first = rng.integers(0, self.catalogue, rows)
        step = rng.integers(1, self.catalogue // CANDIDATES, rows)
        chosen = (first[:, None] + step[:, None] * np.arange(CANDIDATES)) % self.catalogue  # all different
        position = rng.integers(0, CANDIDATES, rows)
        starts = pa.array(np.arange(rows + 1) * CANDIDATES, pa.int32())
        flat = self.items[chosen.reshape(-1)]
        columns: dict[str, Any] = {
            "action": position,
            "reward": (rng.random(rows) < 0.1).astype(float),
            "propensity": np.full(rows, 1 / CANDIDATES),
            **{f"x{j}": rng.normal(size=rows).astype(np.float32) for j in range(self.features)},
        }
        if self.layout == ITEMS:
            columns["action"] = chosen[np.arange(rows), position]
            columns["items"] = pa.ListArray.from_arrays(starts, pa.array(chosen.reshape(-1)))
        elif self.layout == STRUCTS:
            fields = [pa.array(np.ascontiguousarray(flat[:, j])) for j in range(ITEM_FEATURES)]
            columns["z"] = pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays(fields, NAMES))
        else:
            inner = pa.array(np.arange(len(flat) + 1) * ITEM_FEATURES, pa.int32())
            lists = pa.ListArray.from_arrays(inner, pa.array(flat.reshape(-1)))
            columns["z"] = pa.ListArray.from_arrays(starts, lists)
        return pa.table(columns)

    def make(self) -> Path:
        logs.LOGS.mkdir(parents=True, exist_ok=True)
        if self.layout == ITEMS and not self.items_path.exists():
            columns = {name: self.items[:, j] for j, name in enumerate(NAMES)}
            pq.write_table(pa.table({"item": np.arange(self.catalogue), **columns}), self.items_path)
        if not self.path.exists():
            unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            with pq.ParquetWriter(unfinished, self.table(1, 0).schema, compression=self.codec) as writer:
                for seed, first in enumerate(range(0, self.rows, self.row_group_rows)):
                    writer.write_table(self.table(min(self.row_group_rows, self.rows - first), seed))
            unfinished.replace(self.path)
        return self.path
