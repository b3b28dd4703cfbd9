"""Files with an event a line as a source: blocks of whole lines are the parts of the log.

A first pass finds the columns and the number of rows of each block, as neither is known before the last line.
`lines.py` says what a block and its lines are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drstream.converting.lines import Left, Syntax, TextPart
from drstream.errors import LogError
from drstream.running import execution
from drstream.running.progress import reporter
from drstream.sources.base import Part, Source
from drstream.sources.names import arrow_says

BLOCK_BYTES = 1 << 23  # enough for a thread to work on; a thread holds about five times as much
LONGEST_LINE = 1 << 28


class LineSource:
    """Files of one syntax, in the order given.

    skip  Malformed lines are left out and counted. Otherwise the first one raises an error.
    """

    def __init__(
        self,
        paths: Sequence[str],
        name: str,
        syntax: Syntax,
        threads: int = 1,
        progress: bool = False,
        skip: bool = False,
    ):
        self.name = name
        self.paths = tuple(paths)
        self.keys = tuple(map(os.path.abspath, paths))
        self.syntax = syntax
        self.skip = skip
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
        """Read all files once, to find the columns and the rows of each block."""
        types: dict[str, pa.DataType] = {}
        row = 0
        with (
            reporter(progress, None) as report,
            closing(execution.stream(_look_at, self._blocks(), threads, 1)) as looks,
        ):
            for block, look in looks:
                block.first_row, block.rows = row, look.rows
                self._remember(look, block)
                for column in look.schema:
                    before = types.get(column.name, column.type)
                    types[column.name] = self.syntax.common_type(before, column.type)
                self._rows.append(look.rows)
                row += look.rows
                report(row, "looking for the columns")
        if not row:
            first = next((f", but e.g. {what}" for what in self.left_out.values()), "")
            raise LogError(f"{self.name} holds no row: there is nothing to read{first}")
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

    def _blocks(self) -> Iterator[TextPart]:
        for path in self.paths:
            try:
                with pa.input_stream(path) as file:  # decompresses .gz, .bz2 and .zst
                    yield from self._blocks_of(path, file)
            except (pa.ArrowException, OSError) as error:
                raise LogError(f"cannot read {path}: {arrow_says(error)}. Is it complete?") from None

    def _blocks_of(self, path: str, file: pa.NativeFile) -> Iterator[TextPart]:
        held, line, begun = b"", 1, False
        while True:
            data = file.read(BLOCK_BYTES)
            held += data
            if not begun:
                held = held.removeprefix(b"\xef\xbb\xbf")  # the mark of UTF-8 that some programs write
                if b"\0" in held:
                    raise LogError(f"{path} holds bytes that are no text: write it as UTF-8")
            end = held.rfind(b"\n") + 1 if data else len(held)
            if not end and len(held) > LONGEST_LINE:
                raise LogError(f"{path} has a line of over {LONGEST_LINE >> 20} MB from line {line} on: is it a text?")
            if end:
                begun = True
                block = TextPart(path, held[:end], line, self.syntax, self.skip)
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
    left_out: dict[str, Left]
    extremes: dict[str, tuple[int, int]] = field(default_factory=dict)


def _look_at(block: Part) -> Iterator[tuple[TextPart, _Look]]:
    assert isinstance(block, TextPart)
    found = block.parse()
    table = found.table
    look = _Look(table.schema, table.num_rows, found.left_out)
    for place, column in enumerate(table.schema):
        values = table.column(place)
        if pa.types.is_list(column.type) or column.type == pa.int64():
            numbers = pc.list_value_length(values) if pa.types.is_list(column.type) else values
            low, high = (value.as_py() for value in pc.min_max(numbers).values())
            if low is not None:
                look.extremes[column.name] = low, high
    block.release()
    yield block, look
