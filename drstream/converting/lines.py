"""Lines of text as rows: what a syntax is, a block of whole lines, which line a row is in, and lines that are left out.

What a line means is the business of a `Syntax`: `vw_lines.py`, `dsjson_lines.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from drstream.errors import LogError
from drstream.log.bad_rows import SKIP
from drstream.sources.base import Place
from drstream.sources.text import MALFORMED as MALFORMED
from drstream.sources.text import NOT_UTF8 as NOT_UTF8
from drstream.types import Ints

REMEDY = "Repair the line, or remove it"
LONGEST_VALUE = 300  # characters of a line that a message shows


class Malformed(Exception):  # noqa: N818  # becomes a LogError, which also says where
    """A line that cannot be parsed. `line` counts from 0 in the block; None if it is not known.

    skippable  Whether the line may be left out where bad rows are skipped.
    """

    def __init__(self, what: str, line: int | None = None, skippable: bool = True) -> None:
        super().__init__(shortened(what))
        self.line = line
        self.skippable = skippable


def shortened(text: str) -> str:
    return text if len(text) < LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ..."


@dataclass
class Left:
    """Lines of a block that hold no row, for one reason."""

    count: int
    line: int  # the first of them, from 0 in the block
    what: str  # about the first of them


@dataclass
class Parsed:
    """The rows of a block."""

    table: pa.Table
    lines: Ints | None = None  # the line of each row, from 0 in the block, unless row i is in line i
    left_out: dict[str, Left] = field(default_factory=dict)  # by reason

    def leave_out(self, reason: str, line: int, what: str, count: int = 1) -> None:
        """Count lines without a row. Lines come in order."""
        if reason in self.left_out:
            self.left_out[reason].count += count
        else:
            self.left_out[reason] = Left(count, line, shortened(what))


class Syntax(Protocol):
    """What the lines of a file mean."""

    @property
    def name(self) -> str:
        """What a message calls it."""

    def parse(self, data: bytes, schema: pa.Schema | None, skip: bool) -> Parsed:
        """Return the rows of a block: the columns of the schema or, without one, all columns with the types found.

        skip  Malformed lines are left out. Otherwise the first one raises `Malformed`.
        """

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType:
        """Return the type for values of both types."""


@dataclass(frozen=True)
class Lines(Place):
    """Where the rows of a block are stored."""

    first_line: int = 1
    lines: Ints | None = field(default=None, compare=False)  # of the rows; None if row i is in line i

    def of_row(self, row: int) -> str:
        place = row - self.first_row
        line = self.first_line + int(place if self.lines is None else self.lines[place])
        return f"row {row} (line {line} of {self.name})"


@dataclass
class TextPart:
    """A block of whole lines of a file."""

    path: str
    data: bytes
    first_line: int
    syntax: Syntax
    skip: bool = False  # malformed lines
    schema: pa.Schema | None = None  # of the columns to read
    first_row: int = 0
    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # lines without a row, by reason
    parsed: Parsed | None = None

    @cached_property
    def count(self) -> int:
        """Number of lines."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    @property
    def place(self) -> Place:
        return Lines(self.first_row, self.path, first_line=self.first_line, lines=self.parse().lines)

    def parse(self) -> Parsed:
        """Return the rows, and what is known about the lines. They are parsed once."""
        if self.parsed is None:
            self.parsed = self._parse()
        return self.parsed

    def release(self) -> None:
        """Forget the rows, which take memory, but not which lines they are in."""
        assert self.parsed is not None
        self.parsed.table = None

    def _parse(self) -> Parsed:
        try:
            return self.syntax.parse(self.data, self.schema, self.skip)
        except Malformed as error:
            where = f"in {self.path}, lines {self.first_line} to {self.first_line + self.count - 1}"
            if error.line is not None:
                where = f"at line {self.first_line + error.line} of {self.path}"
            remedy = f"{REMEDY}, or pass {SKIP} to leave such lines out and have them counted"
            raise LogError(
                f"cannot read {self.syntax.name}: {error}, {where}. {remedy if error.skippable else REMEDY}"
            ) from None

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        table = self.parse().table
        if table.num_rows != self.rows:
            raise LogError(f"{self.path} changed while it was read: convert it when it is complete")
        yield from table.combine_chunks().to_batches(max_chunksize=rows)
