"""Text files as a source: blocks of whole lines are the parts of the log.

A first pass finds the type of each column and the number of rows of each block, as neither is known before the last
line. What a line means is the business of a `Syntax`: `csv_lines.py` and `json_lines.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drstream import execution
from drstream.errors import LogError
from drstream.log.files import arrow_says
from drstream.log.source import Part, Place, Source
from drstream.progress import reporter

BLOCK_BYTES = 1 << 23  # enough for a thread to work on; a thread holds about five times as much
LONGEST_LINE = 1 << 28
EXACT = 1 << 53  # float64 holds all whole numbers up to this one
WHOLE = re.compile(r"[+-]?\d+")
NOT_UTF8 = "write it as UTF-8, e.g. with iconv -f latin1 -t utf-8"
REMEDY = "Repair the line, or remove it"


class Malformed(Exception):  # noqa: N818  # becomes a LogError, which also says where
    """A line that cannot be parsed. `row` counts from 0 in the block; None if it is not known."""

    def __init__(self, what: str, row: int | None = None) -> None:
        super().__init__(what)
        self.row = row


class Syntax(Protocol):
    """What the lines of a file mean."""

    name: str

    def begin(self, data: bytes, path: str) -> tuple[tuple[str, ...], int]:
        """Return the names of the columns, if the file begins with them, and how many bytes that takes."""

    def cut(self, data: bytes) -> int:
        """Return where the last whole record ends; 0 if none does."""

    def parse(self, data: bytes, names: tuple[str, ...], schema: pa.Schema | None) -> pa.Table:
        """Return the rows of a block: the columns of the schema or, without one, all columns with the types found."""

    def texts(self, data: bytes, names: tuple[str, ...], column: str) -> list[str | None]:
        """Return the numbers of a column as they are written, a row each."""

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        """Return the type for values of both types; None if there is none."""


@dataclass(frozen=True)
class Lines(Place):
    """Where the rows of a block are stored."""

    first_line: int = 1
    one_row_each: bool = True  # no line is empty, and no row takes several lines

    def of_row(self, row: int) -> str:
        line = self.first_line + row - self.first_row
        if self.one_row_each:
            return f"row {row} (line {line} of {self.name})"
        return f"row {row} (near line {line} of {self.name})"


@dataclass
class TextPart:
    """A block of whole lines of a file."""

    path: str
    data: bytes
    first_line: int
    names: tuple[str, ...]
    syntax: Syntax
    schema: pa.Schema | None = None  # of the columns to read
    first_row: int = 0
    rows: int = 0

    @property
    def lines(self) -> int:
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    @property
    def place(self) -> Place:
        return Lines(self.first_row, self.path, None, self.first_line, self.lines == self.rows)

    def table(self) -> pa.Table:
        try:
            return self.syntax.parse(self.data, self.names, self.schema)
        except Malformed as error:
            where = f"in {self.path}, lines {self.first_line} to {self.first_line + self.lines - 1}"
            if error.row is not None:
                where = f"at line {self._line_of(error.row)} of {self.path}"
            raise LogError(f"cannot read {self.syntax.name}: {error}, {where}. {REMEDY}") from None

    def _line_of(self, row: int) -> int:
        """Return the line of a row of the block, if no row takes several lines."""
        filled = [number for number, line in enumerate(self.data.splitlines()) if line.strip()]
        return self.first_line + (filled[row] if row < len(filled) else row)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        table = self.table()
        if table.num_rows != self.rows:
            raise LogError(f"{self.path} changed while it was read: convert it when it is complete")
        yield from table.combine_chunks().to_batches(max_chunksize=rows)


class TextSource:
    """Text files of one syntax and with the same columns, in the order given."""

    def __init__(self, paths: Sequence[str], name: str, syntax: Syntax, threads: int = 1, progress: bool = False):
        self.name = name
        self.paths = tuple(paths)
        self.keys = tuple(map(os.path.abspath, paths))
        self.syntax = syntax
        self.rounded: dict[str, str] = {}  # the first whole number of a float64 column that it cannot hold, and where
        self._rows: list[int] = []  # of each block
        self.schema = self._look(threads, progress)

    @property
    def rows(self) -> int:
        return sum(self._rows)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[TextPart]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        first_row, counts = 0, iter(self._rows)
        for block in self._blocks():
            block.schema, block.first_row, block.rows = schema, first_row, next(counts, -1)
            first_row += block.rows
            if block.rows:
                yield block

    def _look(self, threads: int, progress: bool) -> pa.Schema:
        """Read all files once, to find the types of the columns and the rows of each block."""
        types: dict[str, pa.DataType] = {}
        large: dict[str, str] = {}
        signed: set[str] = set()
        columns: tuple[str, ...] = ()
        row = 0
        with (
            reporter(progress, None) as report,
            closing(execution.stream(_look_at, self._blocks(), threads, 1)) as looks,
        ):
            for block, look in looks:
                block.first_row, block.rows = row, look.rows
                if columns and block.names and set(block.names) != set(columns):
                    other = sorted(set(block.names) ^ set(columns))[0]
                    raise LogError(
                        f"files differ: only one of {self.paths[0]} and {block.path} has the column {other!r}. Give "
                        "files with the same columns"
                    )
                columns = columns or block.names
                for name, (place, found) in look.not_utf8.items():
                    raise LogError(
                        f"column {name!r} holds {found!r} at {block.place.of_row(row + place)}, which is not UTF-8: "
                        f"{NOT_UTF8}"
                    )
                for name in look.large.keys() - large.keys():
                    place, value = look.large[name]
                    large[name] = f"{value} at {block.place.of_row(row + place)}"
                signed |= look.signed
                for column in look.schema:
                    types[column.name] = self._join(column, types.get(column.name, column.type), block)
                self._rows.append(look.rows)
                row += look.rows
                report(row, "finding the types of the columns")
        if not row:
            raise LogError(f"{self.name} holds no row: there is nothing to convert")
        for name in signed:
            if types[name] == pa.uint64():
                types[name] = pa.float64()
        self.rounded = {name: large[name] for name in large if types[name] == pa.float64()}
        return pa.schema(list(types.items()))

    def _join(self, column: pa.Field, before: pa.DataType, block: TextPart) -> pa.DataType:
        kinds = {before, column.type}
        if pa.uint64() in kinds and kinds <= {pa.uint64(), pa.int64(), pa.float64()}:
            return pa.float64() if pa.float64() in kinds else pa.uint64()
        found = self.syntax.common_type(before, column.type)
        if found is None:
            raise LogError(
                f"column {column.name!r} holds {before} at first, but {column.type} in lines {block.first_line} to "
                f"{block.first_line + block.lines - 1} of {block.path}. Write all its values in the same way"
            )
        return found

    def _blocks(self) -> Iterator[TextPart]:
        for path in self.paths:
            try:
                with pa.input_stream(path) as file:  # decompresses .gz, .bz2 and .zst
                    yield from self._blocks_of(path, file)
            except (pa.ArrowException, OSError) as error:
                raise LogError(f"cannot read {path}: {arrow_says(error)}. Is it complete?") from None

    def _blocks_of(self, path: str, file: pa.NativeFile) -> Iterator[TextPart]:
        held, line, begun = b"", 1, False
        names: tuple[str, ...] = ()
        while True:
            data = file.read(BLOCK_BYTES)
            held += data
            if not begun:
                held = held.removeprefix(b"\xef\xbb\xbf")  # the mark of UTF-8 that some programs write
                if b"\0" in held:
                    raise LogError(f"{path} holds bytes that are no text: write it as UTF-8")
            end = self.syntax.cut(held) if data else len(held)
            if not end and len(held) > LONGEST_LINE:
                raise LogError(f"{path} has a line of over {LONGEST_LINE >> 20} MB from line {line} on: is it a text?")
            if end and not begun:
                names, taken = self.syntax.begin(held[:end], path)
                line += held[:taken].count(b"\n")
                held, end, begun = held[taken:], end - taken, True
            if end:
                block = TextPart(path, held[:end], line, names, self.syntax)
                line += block.lines
                held = held[end:]
                yield block
            if not data:
                return


@dataclass
class _Look:
    """What a first look at a block tells."""

    schema: pa.Schema
    rows: int
    large: dict[str, tuple[int, str]]  # first row, and text, of a whole number that float64 may not hold
    signed: set[str]  # columns of whole numbers with negative ones
    not_utf8: dict[str, tuple[int, bytes]]  # first row, and value


def _look_at(block: Part) -> Iterator[tuple[TextPart, _Look]]:
    assert isinstance(block, TextPart)
    table = block.table()
    look = _Look(table.schema, table.num_rows, {}, set(), {})
    for place, column in enumerate(table.schema):
        values = table.column(place)
        if pa.types.is_binary(column.type):
            look.not_utf8[column.name] = _not_utf8(values)
        elif column.type in (pa.int64(), pa.float64()):
            low, high = (value.as_py() for value in pc.min_max(values).values())
            if low is not None and low < 0:
                look.signed.add(column.name)
            if low is None or max(high, -low) < EXACT:
                continue
            if column.type == pa.float64() and low >= 0 and _all_fit(block, column.name):
                look.schema = look.schema.set(place, column.with_type(pa.uint64()))
            found = _first_large(block, column, values)
            if found is not None:
                look.large[column.name] = found
    yield block, look


def _not_utf8(values: pa.ChunkedArray) -> tuple[int, bytes]:
    for row, value in enumerate(values.to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return row, value
    return 0, values[0].as_py()  # a column that is binary for another reason


def _all_fit(block: TextPart, name: str) -> bool:
    """Whether uint64 holds all numbers of a column."""
    try:
        block.syntax.parse(block.data, block.names, pa.schema([(name, pa.uint64())]))
    except Malformed:
        return False
    return True


def _first_large(block: TextPart, column: pa.Field, values: pa.ChunkedArray) -> tuple[int, str] | None:
    """Return the first whole number beyond 2^53, by its text, and its row. 1e20 and 2.5e300 are not written as such."""
    if column.type == pa.int64():
        row = pc.index(pc.or_(pc.greater(values, EXACT), pc.less(values, -EXACT)), True).as_py()
        return None if row < 0 else (row, str(values[row]))
    for row, text in enumerate(map(str, block.syntax.texts(block.data, block.names, column.name))):
        if len(text) >= len(str(EXACT)) and WHOLE.fullmatch(text) and abs(int(text)) > EXACT:
            return row, text
    return None
