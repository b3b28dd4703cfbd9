"""LinePlace of text as a source: a line becomes an event, and events become record batches, whose features are hashed.

What a line means is the business of a syntax: `vw.py`, `dsjson.py`. A first pass finds the columns and the actions.
"""

from __future__ import annotations

import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from drstream.errors import LogError, parameter
from drstream.log.bad_rows import SKIP
from drstream.log.rows import keys_of
from drstream.running.progress import reporter
from drstream.sources.base import PIECE, Place, Source
from drstream.sources.memory import TablePart, TableSource
from drstream.sources.names import arrow_says, changed
from drstream.sources.text import MALFORMED
from drstream.types import Ints

BITS, MOST_BITS = 18, 30
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: the upper bits of the product depend on all bits
AT_ONCE = 8_192  # events that become a record batch: as objects of Python they take much memory
BUFFER, LONGEST_LINE = 1 << 20, 1 << 28  # bytes
LONGEST_VALUE = 300  # characters of a line that a message shows
NO_LABEL = "no label"  # why a line is left out
Features = list[tuple[str, float]]


class LeftOut(Exception):  # noqa: N818  # becomes a count, or a LogError, which also says where
    """A line without an event. A malformed one is an error, unless bad rows are skipped and it may be."""

    def __init__(self, what: str, reason: str = MALFORMED, skippable: bool = True) -> None:
        super().__init__(what if len(what) < LONGEST_VALUE else f"{what[:LONGEST_VALUE]} ...")
        self.reason, self.skippable = reason, skippable


@dataclass(slots=True)
class LineEvent:
    """What a line says."""

    action: int
    cost: float
    propensity: float
    features: Features  # of the context
    tag: str | None = None
    items: list[Features] | None = None  # of the candidates
    propensities: list[float] | None = None  # of all candidates
    rate: float | None = None  # with which such events are in the log
    event_id: str | None = None
    time: str | None = None


@dataclass(frozen=True)
class Syntax:
    """A format with an event a line. `parse` returns None for a line that is empty, or raises `LeftOut`."""

    name: str
    parse: Callable[[bytes], LineEvent | None]


# Columns


def _list_of(kind: Any) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


ENTRY = pa.struct([pa.field("index", pa.int32(), nullable=False), pa.field("value", pa.float64(), nullable=False)])
TYPES = {
    "event_id": pa.string(),
    "timestamp": pa.string(),
    "action": pa.int64(),
    "reward": pa.float64(),
    "propensity": pa.float64(),
    "tag": pa.string(),
    "propensities": _list_of(pa.float64()),
    "sample_rate": pa.float64(),
    "items": _list_of(pa.int32()),
    "indices": _list_of(pa.int32()),
    "values": _list_of(pa.float64()),
    "item_features": _list_of(_list_of(ENTRY)),
}
OF_EVENTS: dict[str, Callable[[LineEvent], Any]] = {
    "event_id": lambda e: e.event_id,
    "timestamp": lambda e: e.time,
    "action": lambda e: e.action,
    "reward": lambda e: 0.0 - e.cost,  # not -cost: a cost of 0 is a reward of 0, not of -0
    "propensity": lambda e: e.propensity,
    "tag": lambda e: e.tag,
    "propensities": lambda e: e.propensities,
    "sample_rate": lambda e: e.rate,
    "items": lambda e: None if e.items is None else range(len(e.items)),
}
ALWAYS = {"action", "reward", "propensity", "indices", "values"}
TIME = pa.timestamp("ns", "UTC")


def check_bits(bits: Any) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= MOST_BITS:
        raise LogError(f"{parameter('bits', bits)}: features are hashed to 2^bits indices; give 1 to {MOST_BITS}")
    return bits


def index_of(names: Sequence[str], bits: int) -> NDArray[np.int32]:
    """Return the index of each feature, from 0 to 2^bits - 1. This hash is drstream's own and never changes.

    It is the FNV-1a hash of the name's UTF-8 bytes, in 64 bits, times the golden ratio; of the product, the upper bits.
    Vowpal Wabbit has another one, so weights cannot be carried over.
    """
    return ((keys_of(pa.array(names, pa.large_string())) * GOLDEN) >> np.uint64(64 - bits)).astype(np.int32)


def _hashed(things: Sequence[Features], bits: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the indices and values of all features, and where those of each thing begin."""
    starts = np.cumsum([0, *map(len, things)])
    features = list(itertools.chain.from_iterable(things))
    names, values = zip(*features, strict=True) if features else ((), ())
    return pa.array(index_of(names, bits)), pa.array(values, pa.float64()), pa.array(starts, pa.int32())


def columns_of(events: Sequence[LineEvent], schema: pa.Schema, bits: int) -> pa.RecordBatch:
    """Return the events as columns."""
    found: dict[str, pa.Array] = {}
    if not {"indices", "values"}.isdisjoint(schema.names):
        indices, values, starts = _hashed([event.features for event in events], bits)
        found["indices"] = pa.ListArray.from_arrays(starts, indices, type=TYPES["indices"])
        found["values"] = pa.ListArray.from_arrays(starts, values, type=TYPES["values"])
    if "item_features" in schema.names:
        sets = [event.items for event in events]
        indices, values, starts = _hashed([item for items in sets for item in items or ()], bits)
        entries = pa.StructArray.from_arrays([indices, values], fields=list(ENTRY))
        kind = TYPES["item_features"]
        each = pa.ListArray.from_arrays(starts, entries, type=kind.value_type)
        starts = pa.array(np.cumsum([0, *(len(items or ()) for items in sets)]), pa.int32())
        none = pa.array([items is None for items in sets], pa.bool_())
        found["item_features"] = pa.ListArray.from_arrays(starts, each, type=kind, mask=none)
    for column in schema:
        if column.name in OF_EVENTS:
            values = pa.array(map(OF_EVENTS[column.name], events), TYPES[column.name], size=len(events))
            values = values.fill_null(1.0) if column.name == "sample_rate" else values
            found[column.name] = values.cast(column.type)
    return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


# The source


@dataclass(frozen=True)
class LinePlace(Place):
    """Where rows of a text are stored."""

    lines: Ints | None = field(default=None, compare=False)  # of the rows

    def of_row(self, row: int) -> str:
        assert self.lines is not None
        return f"row {row} (line {self.lines[row - self.first_row]} of {self.name})"


@dataclass
class LinePart(TablePart):
    lines: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def place(self) -> Place:
        return LinePlace(self.first_row, self.name, file_row=self.file_row, lines=self.lines)


class LineSource:
    """Files of one syntax, in the order given. Each pass parses them again.

    skip  Malformed lines are left out and counted. Otherwise the first one raises an error.
    """

    def __init__(
        self,
        paths: Sequence[str],
        name: str,
        syntax: Syntax,
        bits: int = BITS,
        skip: bool = False,
        progress: Any = False,
    ) -> None:
        self.paths, self.name, self.syntax = tuple(paths), name, syntax
        self.bits, self.skip = bits, skip
        self.keys = tuple(map(os.path.abspath, paths))
        self.dropped: Counter[str] = Counter()  # lines without a row in the last pass, by reason
        self.left_out: dict[str, str] = {}  # the first of them
        self.rows = self.most_action = self.most_items = 0
        self._first: list[LineEvent] = []
        self.schema = self._look(progress)

    def peek(self, rows: int | None = None) -> Source:
        held = columns_of(self._first, self.schema, self.bits)
        enough = rows is not None and min(rows, self.rows) <= len(held)
        return TableSource(pa.Table.from_batches([held]), self.name) if enough else self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[LinePart]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        self.dropped, self.left_out, before = Counter(), {}, Counter[str]()
        first_row = 0
        for path in self.paths:
            file_row, found = first_row, self._events(path)
            while True:
                batches: list[pa.RecordBatch] = []
                lines: list[int] = []
                while some := list(itertools.islice(found, min(AT_ONCE, PIECE - len(lines)))):
                    batches.append(columns_of([event for _, event in some], schema, self.bits))
                    lines += [line for line, _ in some]
                dropped, before = self.dropped - before, self.dropped.copy()
                if not lines and not dropped:
                    break
                table = pa.Table.from_batches(batches, schema)
                yield LinePart(table, first_row, path, file_row, dict(dropped), np.array(lines, np.int64))
                first_row += len(lines)
        if first_row != self.rows:
            raise changed(self.name, f"it had {self.rows:,} rows, and has {first_row:,}")

    def _look(self, progress: Any) -> pa.Schema:
        """Read all files once, to find the columns, the number of rows and the actions."""
        found, times = set(ALWAYS), True
        numbered = itertools.chain.from_iterable(map(self._events, self.paths))
        with reporter(progress, None) as report:
            while events := [event for _, event in itertools.islice(numbered, AT_ONCE)]:
                for name, of in OF_EVENTS.items():
                    if name not in found and any(of(event) is not None for event in events):
                        found.add(name)
                self._first = self._first or events
                self.rows += len(events)
                self.most_action = max(self.most_action, *(event.action for event in events))
                self.most_items = max(self.most_items, *(len(event.items or ()) for event in events))
                times = times and _are_times([event.time for event in events])
                report(self.rows, "looking for the columns")
        if not self.rows:
            first = next((f", but e.g. {what}" for what in self.left_out.values()), "")
            raise LogError(f"{self.name} holds no row: there is nothing to read{first}")
        if "items" in found:
            found.add("item_features")
        kinds = {**TYPES, "timestamp": TIME if times else pa.string()}
        return pa.schema([(name, kind) for name, kind in kinds.items() if name in found])

    def _events(self, path: str) -> Iterator[tuple[int, LineEvent]]:
        """Yield the events of a file, each with the number of its line."""
        for line, data in self._lines(path):
            try:
                event = self.syntax.parse(data)
            except LeftOut as error:
                if error.reason == MALFORMED and not (self.skip and error.skippable):
                    self._refuse(error, line, path)
                self.dropped[error.reason] += 1
                self.left_out.setdefault(error.reason, f"{error}, at line {line} of {path}")
                continue
            if event is not None:
                yield line, event

    def _refuse(self, error: LeftOut, line: int, path: str) -> NoReturn:
        advice = f", or pass {SKIP} to leave such lines out and have them counted" if error.skippable else ""
        raise LogError(
            f"cannot read {self.syntax.name}: {error}, at line {line} of {path}. Repair the line, or remove it{advice}"
        ) from None

    def _lines(self, path: str) -> Iterator[tuple[int, bytes]]:
        try:
            with (
                pa.input_stream(path) as stream,
                io.BufferedReader(stream, BUFFER) as file,
            ):  # decompresses .gz and others
                for number in itertools.count(1):
                    line = file.readline(LONGEST_LINE + 1)
                    if not line:
                        return
                    if len(line) > LONGEST_LINE:
                        raise LogError(f"{path} has a line of over {LONGEST_LINE >> 20} MB, line {number}: is it text?")
                    if b"\0" in line:
                        raise LogError(f"{path} holds bytes that are no text: write it as UTF-8")
                    yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # the mark of UTF-8
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read {path}: {arrow_says(error)}. Is it complete?") from None


def _are_times(texts: list[str | None]) -> bool:
    try:
        pa.array(texts, pa.string()).cast(TIME)
    except pa.ArrowInvalid:
        return False
    return True
