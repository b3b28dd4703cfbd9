"""Record batches of any length, cut and joined into batches of one length, or of multiples of a tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

FEW = 16_384  # rows of a batch that are worth the time it takes Python


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]


def multiples(batches: Iterator[pa.RecordBatch], unit: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of a multiple of `unit`, a divisor of FEW. The last may have any number.

    Copies small batches only.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if held and count + batch.num_rows >= FEW:
            missing = -count % unit
            held.append(batch.slice(0, missing))
            yield joined(held)
            batch = batch.slice(missing)
            held, count = [], 0
        whole = batch.num_rows // unit * unit
        if not held and whole >= FEW:
            yield batch.slice(0, whole)
            batch = batch.slice(whole)
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield joined(held)


def exact(batches: Iterable[Any], rows: int, join: Callable[[list[Any]], Any] = joined) -> Iterator[Any]:
    """Yield the same rows in batches, or tables, of exactly `rows`; the last may be shorter.

    Copies only if batches do not fit.
    """
    held: list[Any] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            held.append(batch.slice(0, rows - count))
            yield join(held)
            batch = batch.slice(rows - count)
            held, count = [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield join(held)
