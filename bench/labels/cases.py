"""The cases of labels: the distinct integers of an action column, against a bare scan of that column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import logs

ROWS = 4 * logs.ROWS  # 20 million
SCAN = "pyarrow scan of the column, one row group per thread"


@dataclass(frozen=True)
class Case:
    ids: str
    required: float | None = 0.5  # minimum ratio to the throughput of the scan
    main = ""

    def __str__(self) -> str:
        return f"labels of {self.ids}, against {SCAN}"

    @property
    def path(self) -> Path:
        return logs.LOGS / f"labels-{self.ids.replace(' ', '-').replace(',', '')}-{ROWS}.parquet"

    def make(self) -> Path:
        if not self.path.exists():
            logs.LOGS.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng(0)
            values = IDS[self.ids](rng)
            table = pa.table({"action": values[rng.integers(0, len(values), ROWS)], "reward": np.zeros(ROWS, np.int8)})
            pq.write_table(table, self.path, row_group_size=logs.ROW_GROUP_ROWS)
        return self.path


IDS = {
    "100 ids, 0 to 99": lambda rng: np.arange(100),
    "100 ids with gaps": lambda rng: 7 * np.arange(100) + 3,
    "100 ids of 62 bits": lambda rng: rng.integers(0, 2**62, 100),
    "a million ids of 62 bits": lambda rng: rng.integers(0, 2**62, 1_000_000),
}
CASES = [Case(ids, None if "million" in ids else 0.5) for ids in IDS]
NAMES = [*map(str, CASES)]
