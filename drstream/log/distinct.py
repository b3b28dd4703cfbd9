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

from drstream.kernels.distinct import EMPTY, add_distinct
from drstream.sources.base import Part

SMALL = 1 << 15  # rows of which Arrow finds the distinct values, whose hash table is slower, but needs no kernel
SIZE = 1 << 12  # of the first hash table; it holds half as many

Bits = NDArray[np.uint64]  # integers of any type, as 64 bits
Columns = Callable[[Part], Iterator[pa.Array]]  # gives the column of a part, batch by batch
Range = Callable[[Part], tuple[int, int] | None]  # smallest and largest number of a part, if its statistics tell


def bits_of(column: pa.Array) -> Bits:
    """Return the integers of a column, or some that have the same distinct values. Booleans are 0 and 1."""
    if isinstance(column, pa.DictionaryArray):
        column = column.unique().dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if len(column) < SMALL:
        column = pc.unique(column)
    values = (column.drop_null() if column.null_count else column).to_numpy(zero_copy_only=False)
    return (values if values.dtype.itemsize == 8 else values.astype(np.int64)).view(np.uint64)


class Found:
    """A growing set of integers, of uint64 or int64."""

    def __init__(self, kind: type[np.integer[Any]]) -> None:
        self.kind = kind
        self._table, self._counts = np.zeros(SIZE, np.uint64), np.zeros(2, np.int64)
        self._sorted: NDArray[Any] = np.empty(0, kind)

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, values: Bits) -> None:
        while (done := int(add_distinct(values, self._table, self._counts))) < len(values):
            values = values[done:]
            full = self._table[self._table != EMPTY]
            self._table, self._counts[0] = np.zeros(4 * len(self._table), np.uint64), 0
            add_distinct(full, self._table, self._counts)

    @property
    def values(self) -> NDArray[Any]:
        if len(self._sorted) != len(self):
            known = self._table[self._table != EMPTY]
            known = np.append(known, EMPTY) if self._counts[1] else known
            self._sorted = np.sort(known.view(self.kind))
        return self._sorted

    def has_all(self, low: int, high: int) -> bool:
        """Whether all integers from low to high are known."""
        size = high - low + 1
        if size > len(self):
            return False
        first = int(np.searchsorted(self.values, self.kind(low)))
        return bool(first + size <= len(self) and self.values[first] == low and self.values[first + size - 1] == high)


def find_distinct(
    parts: Iterable[Part], columns: Columns, range_of: Range, kind: pa.DataType, most: int, threads: bool
) -> NDArray[Any]:
    """Return the distinct integers of a column of all parts, sorted. Of more than `most`, some may be missing.

    threads  Whether parts may be read by several threads at once.
    """
    found = Found(np.uint64 if pa.types.is_uint64(kind) else np.int64)

    def read(part: Part) -> list[Bits]:
        return [bits_of(column) for column in columns(part)]

    def new_parts() -> Iterator[Part]:
        for part in parts:
            known = range_of(part)
            if known is None or not found.has_all(*known):
                yield part

    for values in _in_order(read, new_parts()) if threads else map(read, new_parts()):
        for each in values:
            found.add(each)
        if len(found) > most:
            break
    return found.values


def _in_order(read: Callable[[Part], list[Bits]], parts: Iterator[Part]) -> Iterator[list[Bits]]:
    """Yield what is read of each part. The first part is read alone: it often tells all there is to know."""
    first = next(parts, None)
    if first is None:
        return
    yield read(first)
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    under_way: deque[Future[list[Bits]]] = deque()
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
