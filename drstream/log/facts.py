"""What is known of a log's source: its first rows, and what passes over it have found. All copies of a log share it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from drstream.log.chunks import exact
from drstream.sources.base import Source

FIRST_ROWS = 1024  # rows that say what is usual
LOOKED_AT = 8_192  # first rows that are looked at for what is odd

Fact = TypeVar("Fact")


class SourceFacts:
    """Facts about a source. Each is found once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._known: dict[Hashable, Any] = {}

    def of(self, key: Hashable, find: Callable[[], Fact]) -> Fact:
        """Return what is known by a key that says all that it depends on, beside the source; find it the first time."""
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def known(self, key: Hashable) -> bool:
        return key in self._known

    def first(self, columns: Sequence[str]) -> pa.RecordBatch | None:
        """Return the first rows of these columns; None if there are none."""
        return self.of(("first rows", tuple(columns)), lambda: self._first(columns))

    def more(self, columns: Sequence[str], rows: int) -> pa.RecordBatch | None:
        """Return more of the first rows, of several parts if the first has fewer; None if there are none."""
        return self.of(("more rows", tuple(columns), rows), lambda: self._more(columns, rows))

    def _more(self, columns: Sequence[str], rows: int) -> pa.RecordBatch | None:
        parts = self.source.peek(rows).parts(columns)
        return next(exact((batch for part in parts for batch in part.batches(rows)), rows), None)

    def _first(self, columns: Sequence[str]) -> pa.RecordBatch | None:
        for part in self.source.peek(FIRST_ROWS).parts(columns):
            for batch in exact(part.batches(FIRST_ROWS), FIRST_ROWS):
                return batch
        return None
