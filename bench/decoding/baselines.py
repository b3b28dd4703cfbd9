"""Both sides of decoding, and the check that they decode the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

import drstream as drs
from bench.common.logs import ACTIONS
from bench.common.racing import THREADS
from bench.decoding.cases import Case
from drstream.log.memory import keep
from drstream.log.source import Part


def parts_of(case: Case) -> list[Part]:
    return list(drs.Log(case.log.path, actions=ACTIONS).source.parts(case.columns))


def decode(case: Case) -> int:
    """Decodes the columns, does nothing with them, and returns the number of rows."""

    def read(part: Part) -> int:
        return sum(batch.num_rows for batch in part.batches())

    with ThreadPoolExecutor(THREADS, initializer=keep) as pool:
        return sum(pool.map(read, parts_of(case)))


def decode_by_pyarrow(case: Case) -> int:
    metadata = pq.read_metadata(case.log.path)

    def read(group: int) -> int:
        with pq.ParquetFile(case.log.path, metadata=metadata) as file:
            return file.read_row_group(group, columns=list(case.columns), use_threads=False).num_rows

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(read, range(metadata.num_row_groups)))


def check_parity(case: Case) -> None:
    part = parts_of(case)[1]
    wanted = pq.ParquetFile(case.log.path).read_row_group(1, columns=list(case.columns))
    assert pa.Table.from_batches(part.batches()).equals(wanted.select(case.columns))
    assert decode(case) == decode_by_pyarrow(case) == case.log.rows
