"""Sums over spans of time that grow until they are few, and the blocks of about equally many rows made of them.

A time is an integer: days, or units of a timestamp, or a float divided by a power of 2. A span is all times that agree
but for their last bits. Spans merge, so one pass is enough, and a log need not be sorted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.types import Bools, Floats, Ints

SPANS = 4096
BLOCKS = 20
SUMS = ("rows", "good", "reward", "reward2", "inverse", "inverse2")  # reward: less the log's typical one
MANTISSA = 52


@dataclass(frozen=True)
class Clock:
    """How to read the column of times."""

    column: str
    kind: pa.DataType
    exponent: int | None = None  # of floats: they are divided by 2**exponent

    def read(self, column: pa.Array) -> tuple[Ints, Bools]:
        """Return integer times, and which are missing."""
        if self.exponent is not None:
            values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            missing = ~np.isfinite(values)
            limit = 2.0**62
            scaled = np.clip(np.ldexp(np.where(missing, 0.0, values), -self.exponent), -limit, limit)
            return np.floor(scaled).astype(np.int64), missing
        missing = column.is_null().to_numpy(zero_copy_only=False)
        whole = column.cast(pa.int32()) if pa.types.is_date32(self.kind) else column
        return whole.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False), missing

    def shown(self, time: int) -> Any:
        """Return a time as the column would hold it, for people."""
        if self.exponent is not None:
            return math.ldexp(float(time), self.exponent)
        if pa.types.is_integer(self.kind):
            return int(time)
        whole = pa.scalar(time, pa.int64())
        if pa.types.is_timestamp(self.kind):  # in UTC: Arrow may not know the time zone
            text = whole.cast(pa.timestamp(self.kind.unit)).cast(pa.string()).as_py()
            return text + "Z" * (self.kind.tz is not None)
        day = whole.cast(pa.int32()) if pa.types.is_date32(self.kind) else whole
        return day.cast(self.kind).cast(pa.string()).as_py()


def make_clock(schema: pa.Schema, name: str, first: Floats) -> Clock:
    """Return how to read a column of times. `first` are some of its values, if it holds floats."""
    kind = schema.field(name).type
    exponent = None
    if pa.types.is_floating(kind):
        largest = float(np.abs(first[np.isfinite(first)]).max(initial=0.0)) or 1.0
        exponent = math.frexp(largest)[1] - MANTISSA
    return Clock(name, kind, exponent)


def is_time(kind: pa.DataType) -> bool:
    return (
        pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    )


def check_time(schema: pa.Schema, name: str) -> None:
    kind = schema.field(name).type
    if is_time(kind):
        return
    dated = [field.name for field in schema if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)]
    others = dated or [field.name for field in schema if is_time(field.type)]
    hint = f"columns that do: {', '.join(map(repr, others[:10]))}" if others else "no column of the log does"
    raise LogError(
        f"{parameter('time', name)}: the column has type {kind}, but a time is a timestamp, a date, an integer or a "
        f"float; {hint}"
    )


@dataclass
class Times:
    """Sums by span of time, in order of time, and whether time goes back from one row to the next."""

    shift: int = 0  # a span is all times with the same time >> shift
    spans: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # sorted, all different
    sums: Floats = field(default_factory=lambda: np.empty((len(SUMS), 0)))
    smallest: Floats = field(default_factory=lambda: np.empty(0))  # propensity
    earliest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    latest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    first: int | None = None  # time of the first row
    last: int | None = None
    backwards: int = 0  # rows that are earlier than the row before
    missing: int = 0

    def add(self, times: Ints, missing: Bools, sums: Floats, propensity: Floats) -> None:
        """Add rows: sums are (len(SUMS), rows), and a propensity is inf where there is none."""
        self.missing += int(missing.sum())
        if missing.any():
            times, sums, propensity = times[~missing], sums[:, ~missing], propensity[~missing]
        if not len(times):
            return
        back = int((times[1:] < times[:-1]).sum())
        one = Times(0, times, sums, propensity, times, times, int(times[0]), int(times[-1]), back)
        self.merge(one)

    def merge(self, other: Times) -> None:
        """Add the rows that come after these."""
        self.missing += other.missing
        if other.first is None:
            return
        self.backwards += other.backwards + (self.last is not None and other.first < self.last)
        self.first = other.first if self.first is None else self.first
        self.last = other.last
        shift = max(self.shift, other.shift)
        spans = np.concatenate([self.spans >> (shift - self.shift), other.spans >> (shift - other.shift)])
        order = np.argsort(spans, kind="stable")
        spans = spans[order]
        while _different(spans) > SPANS:
            shift += 1
            spans >>= 1
        starts = np.flatnonzero(np.concatenate([[True], spans[1:] != spans[:-1]]))
        self.shift, self.spans = shift, spans[starts]
        self.sums = np.add.reduceat(np.concatenate([self.sums, other.sums], axis=1)[:, order], starts, axis=1)
        for name, least in (("smallest", True), ("earliest", True), ("latest", False)):
            both = np.concatenate([getattr(self, name), getattr(other, name)])[order]
            setattr(self, name, (np.minimum if least else np.maximum).reduceat(both, starts))

    def blocks(self) -> list[tuple[int, int, float, Floats]]:
        """Return blocks of about equally many rows in order of time: first and last time, smallest p, and sums."""
        rows = self.sums[0]
        if not len(rows):
            return []
        middle = np.cumsum(rows) - rows / 2
        block = np.floor(middle / rows.sum() * BLOCKS)
        starts = np.flatnonzero(np.concatenate([[True], block[1:] != block[:-1]]))
        ends = np.append(starts[1:], len(rows))
        return [
            (
                int(self.earliest[a:b].min()),
                int(self.latest[a:b].max()),
                float(self.smallest[a:b].min()),
                self.sums[:, a:b].sum(axis=1),
            )
            for a, b in zip(starts, ends, strict=True)
        ]


def _different(ordered: Ints) -> int:
    return 1 + int((ordered[1:] != ordered[:-1]).sum())
