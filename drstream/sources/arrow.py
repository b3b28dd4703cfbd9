"""Arrow IPC files: some record batches, or rows of them, are a part of a log.

Rows are read, not mapped: the operating system ends a process that touches mapped memory of a file that has become
shorter. A read of such a file just ends early, which is an error that names it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import DrstreamError, LogError
from drstream.sources.base import PIECE, FileState, Place, Source, checked, without_views
from drstream.sources.names import changed, check_names, unreadable, unreadable_part

LOCAL = pa.fs.LocalFileSystem()
MOST_HELD = 4  # record batches of which another part takes the other rows


@dataclass(frozen=True)
class ArrowFile:
    """An Arrow file as it was when it was opened."""

    path: str
    state: FileState

    def check_state(self) -> None:
        self.state.check(self.path, FileState.of(self.path, LOCAL))

    def read(self, index: int, fields: tuple[int, ...]) -> pa.RecordBatch:
        """Return some columns of a record batch, not checked."""
        self.check_state()
        with pa.OSFile(self.path) as file:
            batch = _opened(file, fields).get_batch(index)
        self.check_state()
        return batch


def _opened(file: pa.NativeFile, fields: Sequence[int] = ()) -> pa.ipc.RecordBatchFileReader:
    """Open a file to read some of its columns; all, if none is given."""
    return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False, included_fields=list(fields)))


@dataclass(frozen=True)
class Stretch:
    """Some rows of a record batch."""

    file: ArrowFile
    index: int  # of the batch
    start: int
    stop: int
    rows: int  # of the batch


@dataclass
class ArrowPart:
    """Consecutive rows of Arrow files."""

    name: str
    first_row: int
    columns: tuple[str, ...]
    fields: tuple[int, ...]  # of these columns in the file
    stretches: tuple[Stretch, ...]
    held: Held = field(repr=False)

    @property
    def rows(self) -> int:
        return sum(stretch.stop - stretch.start for stretch in self.stretches)

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.name)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        for stretch in self.stretches:
            batch = self._read(stretch)
            step = rows or batch.num_rows
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)

    def _read(self, stretch: Stretch) -> pa.RecordBatch:
        where = f"rows {self.first_row:,} to {self.first_row + self.rows - 1:,} of {self.name}"
        try:
            batch = self.held.read(stretch, self.fields)
            return without_views(checked(batch, where).select(list(self.columns)))
        except DrstreamError:
            raise
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError and others
            raise unreadable_part(where, error) from None


class Held:
    """Record batches of which parts of a pass have taken some rows: those with the other rows need not read them again.

    It ends with its pass. In a worker process, all parts share one.
    """

    def __init__(self) -> None:
        self.batches: OrderedDict[Any, tuple[pa.RecordBatch, int]] = OrderedDict()  # with how many rows are taken
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_worker, ()

    def read(self, stretch: Stretch, fields: tuple[int, ...]) -> pa.RecordBatch:
        size = stretch.stop - stretch.start
        if size == stretch.rows:
            return self._of_batch(stretch, stretch.file.read(stretch.index, fields))
        key = stretch.file, stretch.index, fields
        with self.lock:
            batch, taken = self.batches.pop(key, (None, 0))
            if batch is None:
                batch = self._of_batch(stretch, stretch.file.read(stretch.index, fields))
            if taken + size < stretch.rows:
                self.batches[key] = batch, taken + size
                if len(self.batches) > MOST_HELD:
                    self.batches.popitem(last=False)
        stretch.file.check_state()
        return batch.slice(stretch.start, size)

    def _of_batch(self, stretch: Stretch, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows != stretch.rows:
            raise changed(stretch.file.path, f"a record batch had {stretch.rows:,} rows, and has {batch.num_rows:,}")
        return batch


_held = Held()


def _of_worker() -> Held:
    return _held


class ArrowSource:
    """Arrow IPC files of one schema, in the order given. Parts have 131,072 rows, wherever files and batches end."""

    def __init__(self, files: Sequence[tuple[ArrowFile, Sequence[int]]], schema: pa.Schema, name: str) -> None:
        self.name = name
        self.files = files  # with the rows of each record batch
        self.stored = schema
        self.schema = without_views(schema.empty_table()).schema
        self.keys = tuple(os.path.abspath(file.path) for file, _ in files)

    @property
    def rows(self) -> int:
        return sum(sum(lengths) for _, lengths in self.files)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[ArrowPart]:
        names = tuple(columns)
        fields = tuple(sorted(self.stored.get_field_index(name) for name in names)) or (0,)
        first_row, rows, held = 0, 0, Held()
        stretches: list[Stretch] = []
        for file, lengths in self.files:
            for index, length in enumerate(lengths):
                start = 0
                while start < length:
                    stop = min(length, start + PIECE - rows)
                    stretches.append(Stretch(file, index, start, stop, length))
                    rows, start = rows + stop - start, stop
                    if rows == PIECE:
                        yield ArrowPart(self.name, first_row, names, fields, tuple(stretches), held)
                        first_row, rows, stretches = first_row + PIECE, 0, []
        if rows:
            yield ArrowPart(self.name, first_row, names, fields, tuple(stretches), held)


def open_arrow(paths: Sequence[str], name: str) -> Source:
    """Open Arrow IPC files."""
    files: list[tuple[ArrowFile, Sequence[int]]] = []
    first: pa.Schema | None = None
    for path in paths:
        try:
            file = ArrowFile(path, FileState.of(path, LOCAL))
            with pa.OSFile(path) as opened:
                schema = pa.ipc.open_file(opened).schema
                check_names(schema, path)
                lengths = _lengths(opened, schema)
            file.check_state()
        except DrstreamError:
            raise
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError and others
            raise unreadable(path, error, "Arrow IPC") from None
        first = schema if first is None else first
        if schema != first:
            raise LogError(f"files differ: {path} has another schema than {paths[0]}")
        files.append((file, lengths))
    assert first is not None
    return ArrowSource(files, first, name)


def _lengths(file: pa.NativeFile, schema: pa.Schema) -> list[int]:
    """Return the rows of each record batch. pyarrow tells it of a batch that is read, so the smallest column is."""
    reader = _opened(file, [min(range(len(schema)), key=lambda i: _bits(schema.types[i]))] if len(schema) else ())
    lengths = []
    for i in range(reader.num_record_batches):
        batch = reader.get_batch(i)
        batch.validate()
        lengths.append(batch.num_rows)
    return lengths


def _bits(kind: pa.DataType) -> int:
    """Return the approximate size of a value in a file."""
    kind = kind.index_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(kind):
        return 0
    return int(kind.bit_width) if pa.types.is_primitive(kind) else 1024
