"""A click log with sparse contexts: documents of RCV1, or random ones of similar shape where RCV1 is not available.

Actions are four topics. With probability 1 - EXPLORED the logging policy takes a right topic, otherwise any topic. The
reward is 1 if the document has that topic.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from bench.common import logs

DATA = Path(os.environ.get("DRSTREAM_DATA", logs.ROOT.parent / "shared" / "data"))  # as tests/helpers/places.py
SOURCE = DATA / "rcv1_top4.parquet"
DOCUMENTS, DIM, ACTIONS = 27_613, 47_236, 4
NONZEROS = 78  # of a document, on average
EXPLORED = 0.5
COPIES = max(1, 20 * logs.ROWS // logs.REQUIRED_ROWS)  # 552,260 rows
COLUMNS = ["action", "reward", "propensity", "indices", "values"]
TRAINING = COPIES  # the model is fitted on a copy that is not in the log

CONTEXT = drs.Sparse("indices", "values", dim=DIM)


@dataclass(frozen=True)
class Documents:
    indices: pa.ListArray
    values: pa.ListArray
    topics: np.ndarray  # (n, K): does the document have the topic?


@cache
def documents() -> Documents:
    return rcv1() if SOURCE.exists() else like_rcv1()


def rcv1() -> Documents:
    table = pq.read_table(SOURCE)
    assert json.loads(table.schema.metadata[b"n_features"]) == DIM
    mask = table["label_mask"].to_numpy()
    lists = (table[name].combine_chunks() for name in ("indices", "values"))
    return Documents(*lists, (mask[:, None] >> np.arange(ACTIONS)) & 1 > 0)


def like_rcv1() -> Documents:
    """Draws features by Zipf's law, under shuffled numbers. Rows have norm 1."""
    rng = np.random.default_rng(0)
    drawn = np.maximum(rng.lognormal(np.log(NONZEROS), 0.6, DOCUMENTS) * 1.04, 4).astype(np.int64)
    row = np.repeat(np.arange(DOCUMENTS), drawn)
    feature = rng.permutation(DIM)[(DIM ** rng.random(len(row))).astype(np.int64) - 1]
    row, feature = np.divmod(np.unique(row * DIM + feature), DIM)  # sorted, without duplicates
    value = rng.lognormal(-2.3, 0.5, len(row))
    value /= np.sqrt(np.bincount(row, value**2))[row]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=DOCUMENTS))]).astype(np.int32)
    taste = rng.standard_normal((DIM, ACTIONS))
    scores = np.stack([np.bincount(row, value * taste[feature, k], DOCUMENTS) for k in range(ACTIONS)], axis=1)
    topics = (scores == scores.max(axis=1, keepdims=True)) | (scores > 1.5)
    lists = (pa.ListArray.from_arrays(offsets, x) for x in (feature.astype(np.int32), value.astype(np.float32)))
    return Documents(*lists, topics)


def table(copy: int) -> pa.Table:
    """All documents once. Each copy has other actions."""
    found = documents()
    rng = np.random.default_rng(copy)
    right = found.topics / found.topics.sum(axis=1, keepdims=True)
    mu = EXPLORED / ACTIONS + (1 - EXPLORED) * right
    action = np.minimum((mu.cumsum(axis=1) < rng.random((len(mu), 1))).sum(axis=1), ACTIONS - 1)
    chosen = np.arange(len(mu)), action
    columns = action.astype(np.int32), found.topics[chosen].astype(np.float64), mu[chosen]
    return pa.table(dict(zip(COLUMNS, (*columns, found.indices, found.values), strict=True)))


@dataclass(frozen=True)
class SparseFile(logs.LogFile):
    """A log with one row group for each copy of the documents."""

    layout: str = "sparse"
    codec: str = "snappy"
    rows: int = COPIES * DOCUMENTS

    def __str__(self) -> str:
        return "RCV1, sparse snappy" if SOURCE.exists() else "random documents, sparse snappy"

    @property
    def path(self) -> Path:
        name = "rcv1" if SOURCE.exists() else "random"
        return logs.LOGS / f"{self.layout}-{self.codec}-{name}-{self.rows}.parquet"

    @property
    def columns(self) -> list[str]:
        return COLUMNS

    @property
    def nonzeros(self) -> int:
        metadata = pq.read_metadata(self.path)
        place = next(j for j in range(metadata.num_columns) if metadata.schema.column(j).path.startswith("indices"))
        return sum(metadata.row_group(i).column(place).num_values for i in range(metadata.num_row_groups))

    def make(self) -> Path:
        if not self.path.exists():
            logs.LOGS.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
            how = {"compression": self.codec, "use_dictionary": ["action", "reward"]}  # as scripts/make_log
            with pq.ParquetWriter(unfinished, table(0).schema, **how) as writer:
                for copy in range(COPIES):
                    writer.write_table(table(copy), DOCUMENTS)
            unfinished.replace(self.path)
        return self.path


SPARSE = SparseFile()


def open_log(source: object) -> drs.Log:
    return drs.Log(source, context=CONTEXT, actions=ACTIONS)


@cache
def model() -> drs.models.Ridge:
    """Fitted on other events of the same documents."""
    return drs.models.Ridge().fit(open_log(table(TRAINING)))
