"""Tables in memory, and streams, which arrive one record batch after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import LogError, parameter
from drstream.sources.base import PIECE, Place, Source, checked, without_views
from drstream.sources.names import arrow_says

HOLD_BYTES = 1 << 30  # most that is held of a stream that can be read once, to find its labels


@dataclass
class TablePart:
    """Consecutive rows of a table or a stream, already in memory."""

    table: pa.Table
    first_row: int
    name: str = ""  # name of the file, if there is one
    file_row: int = 0  # number of the file's first row in the log
    dropped: dict[str, int] = field(default_factory=dict)  # lines of a text that hold no row, by reason

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.name, file_row=self.file_row)

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=rows)


class TableSource:
    def __init__(self, table: pa.Table, name: str, keys: tuple[Any, ...] = (), place: str = "") -> None:
        self.table = without_views(table)
        self.name = name
        self.keys = keys
        self.place = place
        self.schema = self.table.schema

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        table = self.table.select(list(columns))
        for start in range(0, self.rows, PIECE):
            yield TablePart(table.slice(start, PIECE), start, self.place)


def pieces(batches: Iterable[pa.RecordBatch], first_row: int = 0, name: str = "") -> Iterator[TablePart]:
    """Yield rows that arrive one after the other in parts of 131,072, numbered from the first row on."""
    file_row, held, rows = first_row, [], 0
    for batch in batches:
        while rows + batch.num_rows >= PIECE:
            held.append(batch.slice(0, PIECE - rows))
            batch = batch.slice(PIECE - rows)
            yield TablePart(pa.Table.from_batches(held), first_row, name, file_row)
            first_row, held, rows = first_row + PIECE, [], 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
    if held:
        yield TablePart(pa.Table.from_batches(held), first_row, name, file_row)


@dataclass
class StreamSource:
    """Record batches that arrive one after the other. `open` starts the stream again, unless it is `one_shot`."""

    open: Callable[[], Iterable[pa.RecordBatch]]
    name: str
    schema: pa.Schema
    keys: tuple[Any, ...] = ()
    one_shot: bool = False
    repeatable: bool = True  # certainly: it may be opened just to look at it
    spent: bool = field(default=False, init=False)
    rows: int | None = field(default=None, init=False)
    _seen: Iterator[pa.RecordBatch] | None = field(default=None, init=False, repr=False)  # what `peek` has opened

    def __post_init__(self) -> None:
        self.schema = without_views(self.schema.empty_table()).schema

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        if self.spent:
            raise LogError(
                f"this log was read from a {self.name}, which can be read only once. "
                "Pass a pyarrow Table (reader.read_all()), a Parquet path or a pyarrow dataset to read it again"
            )
        self.spent = self.one_shot
        yield from pieces(without_views(batch.select(list(columns))) for batch in self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        stream = self.open() if self._seen is None else self._seen
        self._seen = None
        try:
            for batch in stream:
                yield checked(batch, f"the {self.name} after row {rows}")
                rows += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read the {self.name} after row {rows}: {arrow_says(error)}") from None

    def peek(self, rows: int | None = None) -> Source:
        """Return itself or, for a stream that may be readable once only, a table of its first rows.

        The next pass reads these rows again.
        """
        if self.repeatable or self.spent:
            return self
        self.spent = self.one_shot  # until the rows read here are put back
        stream = self._read()
        batches, count, size = [], 0, 0
        for batch in stream:
            batches.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if rows is not None and count >= rows:
                break
            if size > HOLD_BYTES:
                raise LogError(
                    f"the labels and categories of a {self.name} are not known before it is read, and it is over "
                    f"{HOLD_BYTES >> 30} GiB: pass a new one and the labels with {parameter('actions')}, or pass a "
                    "Parquet path"
                )
        self._seen, self.spent = itertools.chain(batches, stream), False
        return TableSource(pa.Table.from_batches(batches, batches[0].schema if batches else self.schema), self.name)
