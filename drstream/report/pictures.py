"""What pictures show, as plain rows. Each is made once: drawn as SVG, drawn with matplotlib, and shown as a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
FAR = 8.0  # times the median width from which an interval is cut off, as all others would shrink to points


@dataclass(frozen=True)
class Column:
    """A column of the table behind a picture. The kind says how its values are written: see `numbers.cell`."""

    key: str
    label: str
    kind: str = "number"


@dataclass(frozen=True)
class Picture:
    """Rows, the columns of them that a table shows, and the words around them.

    title    What is shown.
    caption  How to read it.
    alt      What can be seen, for those who do not see it.
    shown    Number of rows that are drawn; None for all. The table has all of them.
    """

    title: str
    caption: str
    alt: str
    rows: Sequence[Row]
    columns: Sequence[Column]

    @property
    def drawn(self) -> Sequence[Row]:
        return self.rows


@dataclass(frozen=True)
class Spans(Picture):
    """Estimates with their intervals, one below the other. Rows have label, group, value, low, high, tone.

    The group is a heading above rows. The tone is "better", "worse", "stop", or "" for none; "main" stands out.
    """

    axis: str = ""
    reference: float = math.nan
    reference_label: str = ""
    signed: bool = False  # differences are written with their sign
    most: int = 60  # rows that are drawn; the table has all

    @property
    def drawn(self) -> Sequence[Row]:
        return self.rows[: self.most]

    def limits(self) -> tuple[float, float]:
        """The range of the axis. Intervals that are much wider than others are cut off."""
        rows = [row for row in self.drawn if math.isfinite(row["value"])]
        widths = [row["high"] - row["low"] for row in rows if math.isfinite(row["high"] - row["low"])]
        far = FAR * statistics.median(widths) if widths else math.inf
        ends = [self.reference] if math.isfinite(self.reference) else []
        for row in rows:
            wide = row["high"] - row["low"]
            if math.isfinite(wide) and (wide <= far or not far > 0):
                ends += [row["low"], row["high"]]
            elif not math.isfinite(wide):
                ends.append(row["value"])
        if not ends:
            ends = [row["value"] for row in rows] or [0.0, 1.0]
        return padded(min(ends), max(ends))


@dataclass(frozen=True)
class Line:
    """One line of a picture: the rows whose "series" is its name, and the keys of its coordinates."""

    name: str
    y: str
    low: str = ""
    high: str = ""
    dots: bool = False  # dots instead of a line


@dataclass(frozen=True)
class Lines(Picture):
    """Values along an axis, perhaps with bands. Rows have "series" and the keys of the lines."""

    lines: Sequence[Line] = ()
    x: str = "t"
    x_label: str = ""
    y_label: str = ""
    diagonal: bool = False  # whether a line says where y is x
    from_zero: bool = False

    def points(self, line: Line) -> list[Row]:
        """The rows of a line whose place is known."""
        found = [row for row in self.rows if row.get("series") == line.name]
        return [row for row in found if math.isfinite(row[self.x]) and math.isfinite(row[line.y])]

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ranges of both axes."""
        xs = [row[self.x] for line in self.lines for row in self.points(line)]
        ys = [
            row[key] for line in self.lines for row in self.points(line) for key in (line.y, line.low, line.high) if key
        ]
        ys = [y for y in ys if math.isfinite(y)] or [0.0, 1.0]
        ys += [0.0] if self.from_zero else []
        if self.diagonal:
            both = padded(min(xs + ys), max(xs + ys))
            return both, both
        low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
        bottom, top = padded(min(ys), max(ys))
        return (low, high), (0.0 if self.from_zero and min(ys) == 0 else bottom, top)


@dataclass(frozen=True)
class Bars(Picture):
    """Lengths, one below the other. Rows have label, group, value, and said, the text beside the bar."""

    largest: float = math.nan  # what the longest possible bar stands for; NaN for the largest value
    most: int = 40

    @property
    def drawn(self) -> Sequence[Row]:
        return self.rows[: self.most]

    def limits(self) -> tuple[float, float]:
        values = [row["value"] for row in self.drawn if math.isfinite(row["value"])]
        top = max([*values, 0.0]) if math.isnan(self.largest) else self.largest
        return min([*values, 0.0]), top or 1.0


def padded(low: float, high: float) -> tuple[float, float]:
    """Return a range with some room on both sides."""
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers in a range.

    >>> ticks(0.03, 0.17), ticks(0, 1000, 3), ticks(-1.2, 1.2)
    ([0.05, 0.1, 0.15], [0.0, 500.0, 1000.0], [-1.0, -0.5, 0.0, 0.5, 1.0])
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    found: list[float] = []
    while (first + len(found)) * step <= high + step * 1e-9 and len(found) < 20:
        found.append(round((first + len(found)) * step, 12 - math.floor(math.log10(step))) + 0.0)
    return found


def tick_label(value: float, step: float) -> str:
    """Return a tick with as many digits as its distance to the next needs.

    >>> tick_label(0.1, 0.05), tick_label(1500, 500), tick_label(2e6, 1e6)
    ('0.10', '1,500', '2 M')
    """
    if abs(value) >= 1e6 or (step >= 1e5 and value):
        return f"{value / 1e6:,.6g} M".replace("-", "−")
    places = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if step > 0 and places < 12 and abs(round(step * 10**places) - step * 10**places) > 1e-6:
        places += 1  # steps of 2.5
    said = f"{value:,.{places}f}" if places < 7 else f"{value:.3g}"
    return said.replace("-", "−")
