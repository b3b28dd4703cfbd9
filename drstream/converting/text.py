"""Text files as a source: blocks of whole lines are the parts of the log.

A first pass finds the type of each column and the number of rows of each block, as neither is known before the last
line. `lines.py` says what a block and its lines are.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drstream import execution
from drstream.converting.lines import NOT_UTF8, Left, Malformed, Syntax, TextPart
from drstream.errors import LogError
from drstream.progress import reporter
from drstream.sources.base import Part, Source
from drstream.sources.names import arrow_says

BLOCK_BYTES = 1 << 23  # enough for a thread to work on; a thread holds about five times as much
LONGEST_LINE = 1 << 28
EXACT = 1 << 53  # float64 holds all whole numbers up to this one
WHOLE = re.compile(r"[+-]?\d+")


class TextSource:
    """Text files of one syntax and with the same columns, in the order given.

    skip       Malformed lines are left out and counted. Otherwise the first one raises an error.
    constants  Columns that the path of a file tells: names and values.
    """

    def __init__(
        self,
        paths: Sequence[str],
        name: str,
        syntax: Syntax,
        threads: int = 1,
        progress: bool = False,
        skip: bool = False,
        constants: Callable[[str], dict[str, str]] = lambda path: {},
    ):
        self.name = name
        self.paths = tuple(paths)
        self.keys = tuple(map(os.path.abspath, paths))
        self.syntax = syntax
        self.skip = skip
        self.constants = constants
        self.rounded: dict[str, str] = {}  # the first whole number of a float64 column that it cannot hold, and where
        self.extremes: dict[str, tuple[int, int]] = {}  # of the whole numbers of a column, or of the lengths of lists
        self.left_out: dict[str, str] = {}  # the first line that holds no row, by reason
        self._rows: list[int] = []  # of each block
        self._dropped: dict[int, Counter[str]] = {}  # lines without a row, by block
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
        for number, block in enumerate(self._blocks()):
            block.schema, block.first_row, block.rows = schema, first_row, next(counts, -1)
            block.dropped = self._dropped.get(number, block.dropped)
            first_row += block.rows
            if block.rows or block.dropped:
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
                self._remember(look, block)
                for column in look.schema:
                    types[column.name] = self._join(column, types.get(column.name, column.type), block)
                self._rows.append(look.rows)
                row += look.rows
                report(row, "finding the types of the columns")
        if not row:
            first = next((f", but e.g. {what}" for what in self.left_out.values()), "")
            raise LogError(f"{self.name} holds no row: there is nothing to read{first}")
        for name in signed:
            if types[name] == pa.uint64():
                types[name] = pa.float64()
        self.rounded = {name: large[name] for name in large if types[name] == pa.float64()}
        return pa.schema(list(types.items()))

    def _remember(self, look: _Look, block: TextPart) -> None:
        """Keep the extremes of columns, and which lines of a block are left out."""
        for name, (low, high) in look.extremes.items():
            before = self.extremes.get(name, (low, high))
            self.extremes[name] = min(low, before[0]), max(high, before[1])
        if look.left_out:
            self._dropped[len(self._rows)] = Counter({reason: left.count for reason, left in look.left_out.items()})
        for reason, left in look.left_out.items():
            self.left_out.setdefault(reason, f"{left.what}, at line {block.first_line + left.line} of {block.path}")

    @property
    def dropped(self) -> dict[str, int]:
        """Number of lines that hold no row, by reason."""
        return dict(sum(self._dropped.values(), Counter()))

    def _join(self, column: pa.Field, before: pa.DataType, block: TextPart) -> pa.DataType:
        kinds = {before, column.type}
        if pa.uint64() in kinds and kinds <= {pa.uint64(), pa.int64(), pa.float64()}:
            return pa.float64() if pa.float64() in kinds else pa.uint64()
        found = self.syntax.common_type(before, column.type)
        if found is None:
            raise LogError(
                f"column {column.name!r} holds {before} at first, but {column.type} in lines {block.first_line} to "
                f"{block.first_line + block.count - 1} of {block.path}. Write all its values in the same way"
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
                raise LogError(
                    f"{path} has a line of over {LONGEST_LINE >> 20} MB from line {line} on: is it a text? In CSV, a "
                    "quote that is never closed makes such a line, too"
                )
            if end and not begun:
                names, taken = self.syntax.begin(held[:end], path)
                line += held[:taken].count(b"\n")
                held, end, begun = held[taken:], end - taken, True
            if end:
                block = TextPart(path, held[:end], line, names, self.syntax, self.skip)
                block.constants = self.constants(path)
                line += block.count
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
    left_out: dict[str, Left]
    extremes: dict[str, tuple[int, int]] = field(default_factory=dict)


def _look_at(block: Part) -> Iterator[tuple[TextPart, _Look]]:
    assert isinstance(block, TextPart)
    found = block.parse()
    table = found.table
    look = _Look(table.schema, table.num_rows, {}, set(), {}, found.left_out)
    for place, column in enumerate(table.schema):
        values = table.column(place)
        if pa.types.is_binary(column.type):
            look.not_utf8[column.name] = _not_utf8(values)
        elif pa.types.is_list(column.type):
            low, high = (value.as_py() for value in pc.min_max(pc.list_value_length(values)).values())
            if low is not None:
                look.extremes[column.name] = low, high
        elif column.type in (pa.int64(), pa.float64()):
            low, high = (value.as_py() for value in pc.min_max(values).values())
            if low is not None and column.type == pa.int64():
                look.extremes[column.name] = low, high
            if low is not None and low < 0:
                look.signed.add(column.name)
            if block.syntax.typed or low is None or max(high, -low) < EXACT:
                continue
            if column.type == pa.float64() and low >= 0 and _all_fit(block, column.name):
                look.schema = look.schema.set(place, column.with_type(pa.uint64()))
            large = _first_large(block, column, values)
            if large is not None:
                look.large[column.name] = large
    block.release()
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
        block.syntax.parse(block.data, block.names, pa.schema([(name, pa.uint64())]), block.skip)
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
