"""What a source and its parts are; and the sources that are in memory, or arrive as streams.

A part is the unit of parallel work and of merging. It is a row group of a Parquet file (`parquet.py`), or a segment of
131,072 rows. `files.py` says what a name on disk means.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import LogError, parameter
from drstream.log.files import arrow_says, checked

PIECE = 131_072
READ_ROWS = 65_536  # of a record batch that is read of a file
HOLD_BYTES = 1 << 30  # most that is held of a stream that can be read once, to find its labels


@dataclass(frozen=True)
class Place:
    """Where the rows of a part are stored, for messages."""

    first_row: int  # number in the log
    name: str = ""  # name of the file or table, if it has one
    row_group: int | None = None
    file_row: int = 0  # number of its file's first row in the log

    def __str__(self) -> str:
        return self.name if self.row_group is None else f"row group {self.row_group} of {self.name}"

    def of_row(self, row: int) -> str:
        """Return the row's number in the log and, for Parquet, in its row group."""
        if self.row_group is not None:
            return f"row {row} (row {row - self.first_row} of {self})"
        return f"row {row} of {self}" if self.name else f"row {row}"


class Part(Protocol):
    """Some consecutive rows of a log."""

    @property
    def first_row(self) -> int:
        """Number of the first row in the log."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def place(self) -> Place:
        """Where these rows are stored."""

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, in order. By default, the source takes the fastest size."""


@runtime_checkable
class Source(Protocol):
    name: str
    schema: pa.Schema
    keys: tuple[Any, ...]  # paths of files, or objects, that it reads; sources with a common key may share rows

    @property
    def rows(self) -> int | None:
        """Number of rows; None if only reading them would tell."""

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Part]:
        """Yield the parts in order. Parts whose statistics exclude the filter may be left out. Rows are not filtered.

        Columns named in `text` may come as dictionaries, which are cheaper to decode.
        """

    def peek(self, rows: int | None = None) -> Source:
        """Return a source to look at before the first pass. It has at least the first `rows` rows, by default all."""


class Same:
    """Holds an object. Two are equal if they hold the same object. A pickled copy equals none."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is not None and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __reduce__(self) -> tuple[type[Same], tuple[None]]:
        return Same, (None,)


# Tables: in memory, or Arrow IPC files mapped into it


@dataclass
class TablePart:
    """Consecutive rows of a table or a stream, already in memory."""

    table: pa.Table
    first_row: int
    name: str = ""  # name of the file, if there is one

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.name)

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


# Streams


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
        first_row, held, rows = 0, [], 0
        for batch in self._read():
            batch = without_views(batch.select(list(columns)))
            while rows + batch.num_rows >= PIECE:
                held.append(batch.slice(0, PIECE - rows))
                batch = batch.slice(PIECE - rows)
                yield TablePart(pa.Table.from_batches(held), first_row)
                first_row, held, rows = first_row + PIECE, [], 0
            if batch.num_rows:
                held.append(batch)
                rows += batch.num_rows
        if held:
            yield TablePart(pa.Table.from_batches(held), first_row)

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


def without_views(data: Any) -> Any:
    """Convert string views and binary views to plain columns, as some functions of Arrow do not take views.

    Lists of string views become lists of strings.
    """
    for i, column in enumerate(data.schema):
        if pa.types.is_large_list(column.type) and pa.types.is_string_view(column.type.value_type):
            data = data.set_column(i, column.name, data.column(i).cast(pa.large_list(pa.large_string())))
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            plain = pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary()
            data = data.set_column(i, column.name, data.column(i).cast(plain))
    return data
