"""The distinct integers of a column, in one cheap pass: parts whose statistics show nothing new are not read."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.sources.base import Part

Columns = Callable[[Part], Iterator[pa.Array]]  # gives the column of a part, batch by batch
Range = Callable[[Part], tuple[int, int] | None]  # smallest and largest number of a part, if its statistics tell


def find_distinct(
    parts: Iterable[Part], columns: Columns, range_of: Range, kind: pa.DataType, most: int, threads: bool
) -> NDArray[Any]:
    """Return the distinct integers of a column of all parts, sorted. Of more than `most`, some may be missing.

    threads  Whether parts may be read by several threads at once.
    """
    found = np.empty(0, np.uint64 if pa.types.is_uint64(kind) else np.int64)

    def read(part: Part) -> NDArray[Any]:
        each = [_distinct(column, found.dtype) for column in columns(part)]
        return np.unique(np.concatenate([*each, found[:0]]))

    def new_parts() -> Iterator[Part]:
        for part in parts:
            known = range_of(part)
            if known is None or not _has_all(found, *known):
                yield part

    for values in _in_order(read, new_parts()) if threads else map(read, new_parts()):
        places = np.minimum(np.searchsorted(found, values), max(len(found) - 1, 0))
        new = values[found[places] != values] if len(found) else values
        if len(new):
            found = np.union1d(found, new)
        if len(found) > most:
            break
    return found


def _distinct(column: pa.Array, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the distinct integers of a column. Booleans are 0 and 1."""
    values = pc.unique(column.drop_null())
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode().drop_null()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return values.to_numpy(zero_copy_only=False).astype(kind, copy=False)


def _has_all(found: NDArray[Any], low: int, high: int) -> bool:
    """Whether all integers from low to high are among sorted ones."""
    size = high - low + 1
    if size > len(found):
        return False
    first = int(np.searchsorted(found, found.dtype.type(low)))
    return bool(first + size <= len(found) and found[first] == low and found[first + size - 1] == high)


def _in_order(read: Callable[[Part], NDArray[Any]], parts: Iterator[Part]) -> Iterator[NDArray[Any]]:
    """Yield what is read of each part. The first part is read alone: it often tells all there is to know."""
    first = next(parts, None)
    if first is None:
        return
    yield read(first)
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    under_way: deque[Future[NDArray[Any]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="drstream-labels")
    try:
        for part in parts:
            under_way.append(pool.submit(read, part))
            if len(under_way) > workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
