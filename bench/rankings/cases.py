"""The cases of rankings: estimators of lists, against a bare scan of the same columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from bench.common import logs, racing
from bench.common.baselines import SCAN

ITEMS, LENGTH = 50, 10  # a list has half as many items to half as many more
COLUMNS = ["items", "propensity", "reward", "new"]
ROWS = max(1, logs.ROWS // 5)  # lists
ESTIMATORS = ("rips", "iips", "pi", "ips")


@dataclass(frozen=True)
class RankedFile(logs.LogFile):
    """A log of rankings, whose lists have different lengths."""

    layout: str = "rankings"
    codec: str = "snappy"
    rows: int = ROWS

    def __str__(self) -> str:
        return f"lists of {LENGTH // 2} to {LENGTH + LENGTH // 2} items, {self.codec}"

    @property
    def columns(self) -> list[str]:
        return COLUMNS

    def make(self) -> Path:
        if not self.path.exists():
            logs.LOGS.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            with pq.ParquetWriter(unfinished, table(1, 0).schema, compression=self.codec) as writer:
                for first in range(0, self.rows, logs.ROW_GROUP_ROWS):
                    rows = min(logs.ROW_GROUP_ROWS, self.rows - first)
                    writer.write_table(table(rows, first), logs.ROW_GROUP_ROWS)
            unfinished.replace(self.path)
        return self.path


def table(rows: int, seed: int) -> pa.Table:
    """Lists without repeats, whose propensities are those of a uniform choice among the items that are left."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(LENGTH // 2, LENGTH + LENGTH // 2 + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    start = np.repeat(rng.integers(0, ITEMS, rows), lengths)  # each list runs through the items from another one on
    left = 1 / (ITEMS - place)
    columns = {
        "items": ((start + place) % ITEMS).astype(np.int32),
        "propensity": left,
        "reward": (rng.random(offsets[-1]) < 0.1).astype(np.float32),
        "new": left * rng.uniform(0.5, 1.5, offsets[-1]),
    }
    return pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()})


def open_log(source: Any) -> drs.Log:
    return drs.Log(source, action="items")


def evaluate(source: Any) -> drs.Evaluation:
    policies = {"new": drs.policies.Column("new")}
    return drs.evaluate(open_log(source), policies, estimators=ESTIMATORS, threads=racing.THREADS)


@dataclass(frozen=True)
class Case:
    baseline: str = SCAN
    log: RankedFile = RankedFile()
    pairs: int = 5

    def __str__(self) -> str:
        return f"{', '.join(ESTIMATORS)} of {self.log}, against {self.baseline}"


CASES = [Case()]
NAMES = [*map(str, CASES)]
