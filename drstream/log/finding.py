"""The pass over a log that finds the categories of its context columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, phrase
from drstream.log.columns import has_nulls
from drstream.sources.base import Part, Source
from drstream.sources.parquet import ParquetSource

MOST = 100_000  # a column with more values is hashed, not listed


@dataclass(frozen=True)
class Found:
    """The categories of a column, sorted, and whether it has nulls."""

    values: tuple[Any, ...]
    null: bool


def find_categories(source: Source, names: Sequence[str]) -> dict[str, Found]:
    """Return the categories of these columns, in one pass over them. Filters, splits and bad rows do not matter.

    So the parts of a split have the same features.
    """
    seen = {name: _Seen(name) for name in names}
    for found in _each_part(source, names):
        for name, new in found.items():
            seen[name].merge(new)
    return {name: Found(tuple(sorted(found.values)), found.null) for name, found in seen.items()}


class _Seen:
    """The categories of a column, in some parts of a log."""

    def __init__(self, name: str) -> None:
        self.name, self.null = name, False
        self.values: set[Any] = set()

    def add(self, column: pa.Array) -> None:
        self.null = self.null or has_nulls(column)
        distinct = column.unique()
        if isinstance(distinct, pa.DictionaryArray):
            distinct = distinct.dictionary.take(distinct.indices.drop_null())
        self.values.update(distinct.to_pylist())
        self._tidy()

    def merge(self, other: _Seen) -> None:
        self.null = self.null or other.null
        self.values |= other.values
        self._tidy()

    def _tidy(self) -> None:
        self.values.discard(None)
        if len(self.values) > MOST:
            hashed = phrase(f"drs.Hashed({self.name!r}, bits=18)", f"--hashed {self.name}:18")
            raise LogError(
                f"context column {self.name!r} holds over {MOST:,} different values, e.g. {min(self.values)!r}: hash "
                f"them with {hashed}, or leave the column out of the context"
            )


def _each_part(source: Source, names: Sequence[str]) -> Iterator[Mapping[str, _Seen]]:
    """Yield the categories of each part. Row groups of Parquet files are read by several threads."""

    def look(part: Part) -> dict[str, _Seen]:
        seen = {name: _Seen(name) for name in names}
        for batch in part.batches():
            for name, found in seen.items():
                found.add(batch.column(name))
        return seen

    parts = source.peek().parts(names, text=names)
    if not isinstance(source, ParquetSource):
        yield from map(look, parts)
        return
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(look, parts)
