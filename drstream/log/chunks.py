"""Record batches of any length, cut and joined into batches of one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]


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
