"""Arrow IPC files. Their memory is mapped to learn where columns are, but rows are read.

The operating system kills a process that touches mapped memory of a file that has become shorter. A read of such a file
just ends early, which is an error that names it.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from drstream.errors import DrstreamError, LogError
from drstream.kernels import pages as kernels
from drstream.log.files import State, changed, check_names, checked, unreadable, unreadable_part
from drstream.log.memory import kept
from drstream.log.numbers import Form, Numbers, form_of
from drstream.log.pages import NO_PAGES, Columns, Space, Unusual, Use
from drstream.log.source import PIECE, Place, Source, TableSource

LOCAL = pa.fs.LocalFileSystem()


@dataclass(frozen=True)
class ArrowFile:
    """A mapped file, as it was when it was opened."""

    path: str
    state: State
    start: pa.Buffer  # its first bytes. It stays mapped with them, so that its addresses are those of nothing else

    @property
    def base(self) -> int:
        """The address of its first byte."""
        return int(self.start.address)

    def check_state(self) -> None:
        found = State.of(self.path, LOCAL)
        if found != self.state:
            raise changed(self.path, self.state, found)


class ArrowSource(TableSource):
    """Arrow IPC files of one schema, in the order given. The table says where columns are, and is not read."""

    def __init__(self, layout: pa.Table, files: Sequence[ArrowFile], name: str) -> None:
        super().__init__(layout, name, tuple(os.path.abspath(file.path) for file in files), place=name)
        self.opened = tuple(files)  # in the order given
        self.files = sorted(files, key=lambda file: file.base)
        self.bases = [file.base for file in self.files]
        self._selected: dict[tuple[str, ...], Selected] = {}

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Any]:  # an ArrowPart has all that a TablePart has
        selected = self._select(columns)
        for start in range(0, self.rows, PIECE):
            yield ArrowPart(self, selected, start, min(PIECE, self.rows - start))

    def _select(self, columns: Sequence[str]) -> Selected:
        names = tuple(columns)
        found = self._selected.get(names)
        if found is None:
            form = form_of([self.schema.field(name) for name in names])
            found = Selected(self.table.select(list(names)), form, self)
            self._selected = {names: found}  # those of the last pass
        return found

    def part(self, columns: Sequence[str], first_row: int, rows: int) -> ArrowPart:
        return ArrowPart(self, self._select(columns), first_row, rows)

    def file_of(self, buffer: pa.Buffer) -> ArrowFile | None:
        """Return the file that a buffer is mapped from; None if there is none."""
        place = bisect_right(self.bases, buffer.address) - 1
        if place < 0 or buffer.address >= self.bases[place] + self.files[place].state.size:
            return None
        return self.files[place]

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (tuple((file.path, file.state) for file in self.opened), self.name)


@dataclass(frozen=True)
class Stretches:
    """Where columns of numbers are stored, by stretches of rows in which each column is in one piece."""

    starts: list[int]  # first row of each, and the number of all rows
    files: list[ArrowFile]
    places: NDArray[np.int64]  # of the first row in the file, for each stretch and column
    table: NDArray[np.int64]  # of `kernels.decode`, for columns that are one page without levels

    def table_of(self, first_row: int, rows: int) -> tuple[ArrowFile, NDArray[np.int64]] | None:
        """Return the file of some rows and the table of their columns; None if they are in two stretches."""
        stretch = bisect_right(self.starts, first_row) - 1
        if first_row + rows > self.starts[stretch + 1]:
            return None
        table = self.table.copy()
        kernels.place_rows(table, self.places[stretch], first_row - self.starts[stretch], rows)
        return self.files[stretch], table


def _stretches(table: pa.Table, form: Form, file_of: Callable[[pa.Buffer], ArrowFile | None]) -> Stretches | None:
    """Find where columns are stored; None if some are null, decompressed, or in other pieces than the first column."""
    lengths = [[len(chunk) for chunk in column.chunks] for column in table.columns]
    if not lengths or any(other != lengths[0] for other in lengths):
        return None
    files: list[ArrowFile] = []
    places = np.empty((len(lengths[0]), len(lengths)), np.int64)
    for k, length in enumerate(lengths[0]):
        for c, width in enumerate(form.row_bytes):
            *valid, numbers = (chunk := table.column(c).chunk(k)).buffers()
            file = None if numbers is None or any(bits is not None for bits in valid) else file_of(numbers)
            if file is None or (chunk.offset + length) * width > numbers.size or (c and file is not files[-1]):
                return None
            if not c:
                files.append(file)
            places[k, c] = numbers.address - file.base + chunk.offset * width
    about = np.zeros((len(form.columns), kernels.FIELDS), np.int64)
    about[:, kernels.WIDTH] = [column.number.itemsize for column in form.columns]
    about[:, kernels.SIZE] = [column.size for column in form.columns]
    return Stretches([0, *itertools.accumulate(lengths[0])], files, places, about)


@dataclass(frozen=True)
class Selected:
    """Some columns of all rows. The table says where they are, and is not read."""

    table: pa.Table
    form: Form | None  # of the rows, if they are nothing but numbers
    source: ArrowSource

    @cached_property
    def stretches(self) -> Stretches | None:
        return None if self.form is None else _stretches(self.table, self.form, self.source.file_of)


@dataclass
class ArrowPart:
    """Consecutive rows of Arrow files."""

    source: ArrowSource
    selected: Selected
    first_row: int
    rows: int

    @property
    def name(self) -> str:
        return self.source.place

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.name)

    @property
    def layout(self) -> pa.Table:
        return self.selected.table.slice(self.first_row, self.rows)

    @property
    def table(self) -> pa.Table:
        """The rows, read into memory and checked."""
        where = f"rows {self.first_row:,} to {self.first_row + self.rows - 1:,} of {self.name}"
        try:
            with _Reads(self.source) as reads:
                columns = [
                    pa.chunked_array([reads.array(chunk) for chunk in column.chunks], column.type)
                    for column in self.layout.columns
                ]
        except DrstreamError:
            raise
        except (pa.ArrowException, IndexError, OSError) as error:  # the last one e.g. for a file that was deleted
            raise unreadable_part(where, error) from None
        return checked(pa.table(columns, self.layout.schema), where)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=rows)

    def hand_to(self, use: Use, chunk: int | None = None) -> bool:
        """Let all rows be used. Return False if they are not just numbers, or `use` says so.

        chunk  See `RowGroup.hand_to`.
        """
        form, stretches = self.selected.form, self.selected.stretches
        if form is None:
            return False
        if stretches is not None and (found := stretches.table_of(self.first_row, self.rows)) is not None:
            return self._flow(form, *found, use, chunk)
        starts = form.starts(self.rows)
        memory = kept.pool.lend(int(starts[-1]))
        array = memory.array
        try:
            with _Reads(self.source) as reads:
                for column, width, start in zip(self.layout.columns, form.row_bytes, starts.tolist(), strict=False):
                    for piece in column.chunks:
                        *valid, numbers = piece.buffers()
                        stop = start + len(piece) * width
                        if any(bits is not None for bits in valid):
                            return False
                        if not reads.fill(numbers, piece.offset * width, array[start:stop]):
                            return False
                        start = stop
        except (pa.ArrowException, IndexError, OSError):
            return False  # `table` says what is wrong
        return use(Numbers(form, starts, memory, self.rows), NO_PAGES) == kernels.DONE

    def _flow(self, form: Form, file: ArrowFile, table: NDArray[np.int64], use: Use, chunk: int | None) -> bool:
        """Let the kernel read the rows, which are in one piece of a file for each column."""
        try:
            with _Reads(self.source) as reads, suppress(Unusual):
                columns = Columns(form, table, reads.handle(file), self.rows, reads.handles.space, flow=True)
                columns.hand_to(use, chunk)
                return True
        except (pa.ArrowException, OSError):
            pass  # `table` says what is wrong
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return _part_of, (self.source, tuple(self.selected.table.column_names), self.first_row, self.rows)


def _part_of(source: ArrowSource, columns: Sequence[str], first_row: int, rows: int) -> ArrowPart:
    return source.part(columns, first_row, rows)


class _Handles:
    """Files of a source that are open, which can stay so for this thread's next part."""

    def __init__(self, source: ArrowSource) -> None:
        self.source = source
        self.numbers: dict[str, int] = {}  # by path
        self.space = Space(kept.pool)

    def close(self, all_but: Container[str] = ()) -> None:
        for path in [path for path in self.numbers if path not in all_but]:
            os.close(self.numbers.pop(path))

    __del__ = close


class _Reads:
    """Copies arrays from files, given arrays whose buffers are in their mapped memory, which is not touched."""

    def __init__(self, source: ArrowSource) -> None:
        self.file_of = source.file_of
        kept_ones, kept.opened = kept.opened, None  # another generator of this thread may need some of its own
        self.handles = kept_ones if isinstance(kept_ones, _Handles) and kept_ones.source is source else _Handles(source)
        self.used: dict[str, ArrowFile] = {}

    def __enter__(self) -> _Reads:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            for file in self.used.values():
                file.check_state()
            if kept.allowed:
                self.handles.close(all_but=self.used)
                kept.opened = self.handles

    def bytes(self, buffer: pa.Buffer, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a buffer. One that is not in a mapped file, e.g. decompressed, stays as it is."""
        if self.file_of(buffer) is None:
            return buffer.slice(start, stop - start)
        if start < 0 or stop < start or stop > buffer.size:
            raise IndexError(f"bytes {start:,} to {stop:,} of a buffer of {buffer.size:,}")
        memory = kept.pool.lend(stop - start)
        self.fill(buffer, start, memory.array)
        return memory.buffer()

    def fill(self, buffer: pa.Buffer, start: int, out: NDArray[np.uint8]) -> bool:
        """out <- bytes of a buffer, from `start` on. Returns False if the buffer is not in a mapped file."""
        file = self.file_of(buffer)
        if file is None:
            return False
        if start < 0 or start + len(out) > buffer.size:
            raise IndexError(f"bytes {start:,} to {start + len(out):,} of a buffer of {buffer.size:,}")
        view, at = memoryview(out.data), buffer.address - file.base + start
        handle = self.handle(file)
        while len(view):
            count = os.preadv(handle, [view], at)
            if not count:
                raise changed(file.path, file.state, State.of(file.path, LOCAL))
            view, at = view[count:], at + count
        return True

    def handle(self, file: ArrowFile) -> int:
        self.used[file.path] = file
        if file.path not in self.handles.numbers:
            try:
                file.check_state()
                self.handles.numbers[file.path] = os.open(file.path, os.O_RDONLY)
            except OSError as error:
                raise unreadable(file.path, error, "Arrow IPC") from None
        return self.handles.numbers[file.path]

    def _valid(self, array: pa.Array) -> pa.Buffer | None:
        """Return the bits that say which items are not null, from the first bit of a byte on."""
        buffer, skip = array.buffers()[0], array.offset % 8
        if buffer is None:
            return None
        found = self.bytes(buffer, array.offset // 8, (array.offset + len(array) + 7) // 8)
        bits = np.unpackbits(np.frombuffer(found, np.uint8), bitorder="little")[skip : skip + len(array)]
        return pa.py_buffer(np.packbits(bits, bitorder="little"))

    def array(self, array: pa.Array) -> pa.Array:
        kind = array.type
        if pa.types.is_dictionary(kind):
            indices, values = self.array(array.indices), self.array(array.dictionary)
            return pa.DictionaryArray.from_arrays(indices, values, ordered=kind.ordered, safe=False)
        if pa.types.is_null(kind):
            return pa.nulls(len(array))
        if pa.types.is_struct(kind):
            fields = [self.array(array.field(i)) for i in range(kind.num_fields)]
            return pa.Array.from_buffers(kind, len(array), [self._valid(array)], -1, 0, fields)
        skip = array.offset % 8  # bits are read by the byte
        first, last = array.offset - skip, array.offset + len(array)
        buffers = array.buffers()
        valid = buffers[0]
        read: list[pa.Buffer | None] = [None if valid is None else self.bytes(valid, first // 8, (last + 7) // 8)]
        children: list[pa.Array] = []
        if pa.types.is_boolean(kind):
            read.append(self.bytes(buffers[1], first // 8, (last + 7) // 8))
        elif pa.types.is_fixed_size_list(kind):
            size = kind.list_size
            children.append(self.array(array.values.slice(first * size, (last - first) * size)))
        elif _has_offsets(kind):
            width = 8 if str(kind).startswith("large_") else 4
            offsets = np.frombuffer(
                self.bytes(buffers[1], width * first, width * (last + 1)), np.int64 if width == 8 else np.int32
            )
            low, high = int(offsets[0]), int(offsets[-1])
            read.append(pa.py_buffer(offsets - offsets[0]))
            if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                items = array.values
                if not 0 <= low <= high <= len(items):
                    raise IndexError(f"items {low:,} to {high:,} of {len(items):,} in a list")
                children.append(self.array(items.slice(low, high - low)))
            else:
                read.append(self.bytes(buffers[2], low, high) if buffers[2] is not None else None)
        else:
            width = kind.bit_width // 8
            read.append(self.bytes(buffers[1], width * first, width * last))
        return pa.Array.from_buffers(kind, last - first, read, -1 if read[0] else 0, 0, children).slice(skip)


def _has_offsets(kind: pa.DataType) -> bool:
    t = pa.types
    text = t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind)
    return bool(text or t.is_list(kind) or t.is_large_list(kind))


def _is_simple(kind: pa.DataType) -> bool:
    """Whether `_Reads` can copy arrays of this type."""
    t = pa.types
    if t.is_struct(kind):
        return all(_is_simple(field.type) for field in kind.fields)
    if t.is_dictionary(kind) or t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return _is_simple(kind.value_type)
    fixed = t.is_primitive(kind) or t.is_decimal(kind) or t.is_fixed_size_binary(kind)
    return fixed or t.is_null(kind) or _has_offsets(kind)


@lru_cache(maxsize=4)
def reopened(files: tuple[tuple[str, State], ...], name: str) -> Source:
    """Open files again that another process opened, once in this one. They must not have changed since."""
    source = open_arrow([path for path, _ in files], name)
    assert isinstance(source, ArrowSource)
    for found, (path, state) in zip(source.opened, files, strict=True):
        if found.state != state:
            raise changed(path, state, found.state)
    return source


def open_arrow(paths: Sequence[str], name: str) -> Source:
    """Open Arrow IPC files. Those with columns of types that cannot be copied by rows are read into memory."""
    tables, files = [], []
    for path in paths:
        try:
            state = State.of(path, LOCAL)
            mapped = pa.memory_map(path)
            schema = pa.ipc.open_file(mapped).schema
            check_names(schema, path)
            simple = all(_is_simple(column.type) for column in schema)
            tables.append(pa.ipc.open_file(mapped if simple else pa.OSFile(path)).read_all())
            if simple:
                mapped.seek(0)
                files.append(ArrowFile(path, state, mapped.read_buffer(8)))
                tables[-1].validate()  # sizes of buffers; rows are checked when they are read
            else:
                tables[-1].validate(full=True)  # Arrow trusts offsets and indices in a file, and so do kernels
        except DrstreamError:
            raise
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError and others
            raise unreadable(path, error, "Arrow IPC") from None
        if tables[-1].schema != tables[0].schema:
            raise LogError(f"files differ: {path} has another schema than {paths[0]}")
    table = pa.concat_tables(tables)
    if len(files) < len(paths):
        return TableSource(table, name, tuple(map(os.path.abspath, paths)), place=name)
    return ArrowSource(table, files, name)
