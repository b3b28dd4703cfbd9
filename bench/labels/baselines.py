"""The other side of labels, and the check of what was found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq

import drstream as drs
from bench.common.racing import THREADS
from bench.labels.cases import Case


def scan(case: Case) -> int:
    """Decodes the column, does nothing with it, and returns the number of rows."""
    metadata = pq.read_metadata(case.path)

    def read(group: int) -> int:
        with pq.ParquetFile(case.path, memory_map=True, metadata=metadata) as file:
            return file.read_row_group(group, columns=["action"], use_threads=False).num_rows

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(read, range(metadata.num_row_groups)))


def find(case: Case) -> int:
    return drs.Log(case.path, propensity=None).n_actions


def check_parity(case: Case) -> None:
    wanted = np.unique(pq.read_table(case.path, columns=["action"])["action"].to_numpy())
    assert list(drs.Log(case.path, propensity=None).labels) == wanted.tolist()
