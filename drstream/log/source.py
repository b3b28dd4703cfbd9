"""From files and streams to parts: the row groups of Parquet files, or segments of 131,072 rows.

A part is the unit of parallel work and of merging. What a name on disk means is in `files.py`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drstream.errors import LogError, parameter
from drstream.log.files import arrow_says, unreadable
from drstream.log.schema import is_list

SEGMENT = 131_072
HOLD_BYTES = 1 << 30  # of a stream that can be read once, to find its labels
DECODE_BYTES = 1 << 25  # of a row group at a time, in each thread
LIST_ROWS = 1 << 16  # the same for lists, whose levels take much memory: larger batches are slower, too


@dataclass(frozen=True)
class Place:
    """For messages: where the rows of a part stand."""

    first_row: int  # its number in the log
    name: str = ""  # of a file or table, where it has one
    row_group: int | None = None

    def __str__(self) -> str:
        return self.name if self.row_group is None else f"row group {self.row_group} of {self.name}"

    def of_row(self, row: int) -> str:
        """The row's number in the log, and in its row group."""
        if self.row_group is not None:
            return f"row {row} (row {row - self.first_row} of {self})"
        return f"row {row} of {self}" if self.name else f"row {row}"


class Part(Protocol):
    """Some consecutive rows of a log."""

    @property
    def first_row(self) -> int:
        """Its number in the log."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def place(self) -> Place:
        """Where these rows stand."""

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Record batches in order, of at most so many rows; by default as is fastest."""


class Source(Protocol):
    name: str
    schema: pa.Schema
    keys: tuple[Any, ...]  # what it reads: paths of files, or objects; sources with one in common may share rows

    @property
    def rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Part]:
        """The parts in order. Parts whose statistics exclude the filter may be left out; rows are not filtered.

        Columns named in `text` may come as dictionaries, which are cheaper to decode.
        """

    def peek(self, rows: int | None = None) -> Source:
        """A source to look at before the pass proper: at least its first rows, or all of them."""


class Same:
    """Equal if it is the same object. In another process there is none like it."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is not None and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __reduce__(self) -> tuple[type[Same], tuple[None]]:
        return Same, (None,)


# Parquet


@dataclass
class RowGroup:
    """One row group of a Parquet file."""

    path: str
    filesystem: pa.fs.FileSystem
    index: int
    first_row: int
    rows: int
    columns: tuple[str, ...]
    constants: dict[str, pa.Scalar]  # the columns that the partitioned path gives
    dictionaries: tuple[str, ...]  # text columns to decode as dictionaries
    metadata: pq.FileMetaData  # of the file, else read again for each row group
    row_bytes: int  # about what a decoded row takes
    lists: bool  # some column holds lists

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.path, self.index)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        stored = [name for name in self.columns if name not in self.constants]
        rows = rows or (LIST_ROWS if self.lists else max(1, DECODE_BYTES // self.row_bytes))
        try:
            with self._open() as file:
                if rows >= self.rows:  # a third faster than in batches, for 20 columns
                    whole = file.read_row_group(self.index, columns=stored, use_threads=False)
                    batches = iter(whole.to_batches())
                else:
                    batches = file.iter_batches(rows, row_groups=[self.index], columns=stored, use_threads=False)
                for batch in batches:
                    yield self._with_constants(batch)
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read {self.place}: {arrow_says(error)}. Is the file damaged?") from None

    def _open(self) -> pq.ParquetFile:
        options = {"metadata": self.metadata, "read_dictionary": self.dictionaries}
        if isinstance(self.filesystem, pa.fs.LocalFileSystem):
            return pq.ParquetFile(self.path, memory_map=True, **options)
        return pq.ParquetFile(self.filesystem.open_input_file(self.path), pre_buffer=True, **options)

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch


class ParquetSource:
    """Parquet files of one schema, in the order given."""

    def __init__(self, dataset: ds.FileSystemDataset, name: str) -> None:
        self.name = name
        self.filesystem = dataset.filesystem
        self.schema = dataset.schema
        self.fragments = list(dataset.get_fragments())
        self.keys = tuple(os.path.abspath(f) if os.path.exists(f) else f for f in dataset.files)

    @cached_property
    def _row_groups(self) -> list[list[tuple[int, int]]]:
        """Number and rows of each row group of each file; reads every footer once and compares the schemas."""
        groups = []
        for fragment in self.fragments:
            try:
                groups.append([(group.id, group.num_rows) for group in fragment.row_groups])
                difference = schema_difference(fragment, self.schema)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(fragment.path, error) from None
            if difference is not None:
                name, wanted, found = difference
                raise LogError(
                    f"files differ: column {name!r} is {wanted} in {self.fragments[0].path}, but {found} in "
                    f"{fragment.path}. Give files of one schema, or a pyarrow dataset with the schema you want"
                )
        return groups

    @property
    def rows(self) -> int:
        return sum(rows for groups in self._row_groups for _, rows in groups)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[RowGroup]:
        kinds = [self.schema.field(n).type for n in columns]
        size = sum(map(_bytes, kinds)) or 1, any(is_list(kind) or pa.types.is_map(kind) for kind in kinds)
        text = [n for n in text if n in columns and pa.types.is_string(self.schema.field(n).type)]
        first_row = 0
        for fragment, groups in zip(self.fragments, self._row_groups, strict=True):
            constants = {
                name: pa.scalar(value, self.schema.field(name).type)
                for name, value in ds.get_partition_keys(fragment.partition_expression).items()
                if name in columns
            }
            kept = {index for index, _ in groups}
            if filter is not None:
                pieces = fragment.split_by_row_group(filter=filter, schema=self.schema)
                kept = {group.id for piece in pieces for group in piece.row_groups}
            form = tuple(columns), constants, tuple(n for n in text if n not in constants)
            for index, rows in groups:
                if index in kept and rows:
                    where = fragment.path, self.filesystem, index, first_row, rows
                    yield RowGroup(*where, *form, fragment.metadata, *size)
                first_row += rows

    def minimum_maximum(self, column: str) -> tuple[Any, Any] | None:
        """From the row groups' statistics; None where any lacks them."""
        lows, highs = [], []
        for fragment in self.fragments if self._row_groups else []:  # which reads and checks the footers
            for group in fragment.row_groups:
                statistics = (group.statistics or {}).get(column)
                if not statistics or "min" not in statistics:
                    return None
                lows.append(statistics["min"])
                highs.append(statistics["max"])
        return (min(lows), max(highs)) if lows else None


def schema_difference(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> tuple[str, Any, Any] | None:
    """The first column that a file has otherwise: its name, the type wanted, the type found."""
    constants = ds.get_partition_keys(fragment.partition_expression)
    stored = {column.name: column.type for column in fragment.physical_schema}
    for wanted in schema:
        found = stored.get(wanted.name, "missing")
        if wanted.name not in constants and found != wanted.type:
            return wanted.name, wanted.type, found
    return None


def _bytes(kind: pa.DataType) -> int:
    """What a value of this type takes in memory, about."""
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 16


# Tables: in memory, or Arrow IPC files mapped into it


@dataclass
class Segment:
    """Consecutive rows of a table or a stream, already in memory."""

    table: pa.Table
    first_row: int
    name: str = ""  # of the file, where there is one

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
        self.table = _without_views(table)
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
    ) -> Iterator[Segment]:
        table = self.table.select(list(columns))
        for start in range(0, self.rows, SEGMENT):
            yield Segment(table.slice(start, SEGMENT), start, self.place)


# Streams


@dataclass
class StreamSource:
    """Record batches that arrive one after the other; `open` starts again, unless the stream can be read once."""

    open: Callable[[], Iterable[pa.RecordBatch]]
    name: str
    schema: pa.Schema
    keys: tuple[Any, ...] = ()
    one_shot: bool = False
    repeatable: bool = True  # for certain: it may be opened just to look at it
    spent: bool = field(default=False, init=False)
    rows: int | None = field(default=None, init=False)
    _seen: Iterator[pa.RecordBatch] | None = field(default=None, init=False, repr=False)  # a stream that was looked at

    def __post_init__(self) -> None:
        self.schema = _without_views(self.schema.empty_table()).schema

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Segment]:
        if self.spent:
            raise LogError(
                f"this log was read from a {self.name}, which can be read only once. "
                "Pass a pyarrow Table (reader.read_all()), a Parquet path or a pyarrow dataset to read it again"
            )
        self.spent = self.one_shot
        first_row, held, rows = 0, [], 0
        for batch in self._read():
            batch = _without_views(batch.select(list(columns)))
            while rows + batch.num_rows >= SEGMENT:
                held.append(batch.slice(0, SEGMENT - rows))
                batch = batch.slice(SEGMENT - rows)
                yield Segment(pa.Table.from_batches(held), first_row)
                first_row, held, rows = first_row + SEGMENT, [], 0
            if batch.num_rows:
                held.append(batch)
                rows += batch.num_rows
        if held:
            yield Segment(pa.Table.from_batches(held), first_row)

    def _read(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        stream = self.open() if self._seen is None else self._seen
        self._seen = None
        try:
            for batch in stream:
                yield batch
                rows += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read the {self.name} after row {rows}: {arrow_says(error)}") from None

    def peek(self, rows: int | None = None) -> Source:
        """Itself; or, of a stream that may be read only once, its first rows, which are kept for the pass to come."""
        if self.repeatable or self.spent:
            return self
        self.spent = self.one_shot  # until it is put together again
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
                    f"the labels of a {self.name} are not known before it is read, and it is over "
                    f"{HOLD_BYTES >> 30} GiB: pass a new one and the labels with {parameter('actions')}, or pass a "
                    "Parquet path"
                )
        self._seen, self.spent = itertools.chain(batches, stream), False
        return TableSource(pa.Table.from_batches(batches, batches[0].schema if batches else self.schema), self.name)


def _without_views(data: Any) -> Any:
    """Views of strings and bytes as plain ones: not every function of Arrow's takes them."""
    for i, column in enumerate(data.schema):
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            plain = pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary()
            data = data.set_column(i, column.name, data.column(i).cast(plain))
    return data
