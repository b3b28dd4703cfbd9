"""The cases of categories. Each names a task, a log, a bare scan of its columns as the baseline, and a requirement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import drstream as drs
from bench.categories.log import COLUMNS, FEW, MANY, TextFile
from bench.common import racing
from bench.common.baselines import SCAN
from bench.common.selecting import main_names
from drstream.log import Reader
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part

BLOCK = 2048  # rows, as in `evaluate`


def open_log(log: TextFile) -> drs.Log:
    return drs.Log(log.path, context=COLUMNS, propensity=None, actions=1)


@cache
def opened(log: TextFile) -> drs.Log:
    """The log, with its categories found."""
    found = open_log(log)
    assert found.n_features == len(COLUMNS) * log.categories
    return found


def encode(log: TextFile) -> int:
    """Reads all contexts, makes features of them, and returns how many ones there are."""
    found = opened(log)
    reader = found.reader(context=True)
    task = partial(ones, reader)
    return sum(execution.run(task, found, reader.columns, Workers(racing.THREADS)))


def ones(reader: Reader, part: Part) -> int:
    count = 0
    scratch: dict[Any, Any] = {}
    for batch in reader.batches(part, Counter()):
        batch.scratch = scratch
        for block in batch.blocks(BLOCK):
            rows = block.sparse
            if rows is None:
                features = block.features_as(np.dtype(np.float32))
                count += len(block) * len(COLUMNS) if len(features) else 0  # parity checks the features themselves
            else:
                count += int(rows.indptr[-1] - rows.indptr[0])
    return count


def find(log: TextFile) -> int:
    """Opens the log, finds its categories, and returns how many there are."""
    return open_log(log).n_features


ENCODE, FIND = "one-hot features", "the pass that finds categories"
TASKS = {ENCODE: encode, FIND: find}


@dataclass(frozen=True)
class Case:
    task: str
    log: TextFile
    baseline: str = SCAN
    required: float | None = None  # of the baseline's throughput; None: for information
    pairs: int = 9
    main: str = ""  # short name of a main row

    def __str__(self) -> str:
        return f"{self.task} of {self.log}, against {self.baseline}"


REQUIRED = 0.5
DICTIONARIES = "pyarrow scan of dictionaries"
CASES = [
    Case(ENCODE, FEW, SCAN, REQUIRED, main="one-hot features of 6 string columns, against a scan"),
    Case(ENCODE, MANY, SCAN, REQUIRED),
    Case(ENCODE, FEW, DICTIONARIES),
    Case(ENCODE, MANY, DICTIONARIES),
    Case(FIND, FEW),
    Case(FIND, MANY),
]
MAIN = main_names(CASES)
NAMES = [*map(str, CASES)]
