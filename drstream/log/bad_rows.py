"""Rows that cannot be used. A check is written once, where a field is read: it says which rows are bad, and why.

`Reader` decides what that means: an error at the first such row, or a count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, phrase
from drstream.kernels.checks import first_not_finite
from drstream.log.columns import floats, has_nulls, nulls
from drstream.types import Bools, Floats, Ints

SKIP = phrase('on_bad_row="skip"', "--on-bad-row skip")
REMEDY = f"Repair or remove such rows, or pass {SKIP} to leave them out and have them counted"
SHOWN = 8  # items of a list that a message shows

Where = Callable[[int], str]  # returns where an event is stored, for messages


class BadRowsError(Exception):
    """Some rows of a batch cannot be used, for one reason. No other row was bad for an earlier one.

    reason   Rows are counted by it.
    columns  Where the bad value is. Values of further columns are shown beside it.
    rows     Which rows are bad; at least one.
    places   For each row, the entry of its lists that is bad; None if the whole value is.
    hint     What to do, beside what can be done about all bad rows.
    """

    def __init__(
        self, reason: str, columns: tuple[str, ...], rows: Bools, places: Ints | None = None, hint: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason, self.columns, self.rows, self.places, self.hint = reason, columns, rows, places, hint

    @property
    def first(self) -> int:
        """The first bad row."""
        return int(np.argmax(self.rows))

    def value(self, batch: pa.RecordBatch) -> Any:
        """The value that is bad in the first bad row."""
        return batch.column(self.columns[0])[self.first].as_py()

    def error(self, batch: pa.RecordBatch, where: Where) -> LogError:
        """Return what to tell the user about the first bad row."""
        i = self.first
        value, *others = (self._shown(batch.column(name)[i].as_py()) for name in self.columns)
        place = "" if self.places is None else f" in place {self.places[i]}"
        got = "" if value == "None" and not place else f": got {value}{place}"
        beside = " and ".join(f"{name!r} holds {o}" for name, o in zip(self.columns[1:], others, strict=True))
        got += f", where {beside}," if beside else ""
        return LogError(f"{self.reason}{got} at {where(i)}, column {self.columns[0]!r}. {self.hint}{REMEDY}")

    def _shown(self, value: Any) -> str:
        if self.places is not None and isinstance(value, list):
            value = value[self.places[self.first]]
        if not isinstance(value, list) or len(value) <= SHOWN:
            return repr(value)
        return f"[{', '.join(map(repr, value[:SHOWN]))}, ...], {len(value)} items"


def refuse(bad: Bools, reason: str, *columns: str, hint: str = "") -> None:
    """Raise an error if any row is bad."""
    if bad.any():
        raise BadRowsError(reason, columns, bad, hint=hint)


def refuse_items(bad: Bools, starts: Ints, reason: str, *columns: str, hint: str = "") -> None:
    """Raise an error if any item of lists is bad. List i has the items starts[i] to starts[i + 1] - 1."""
    items = np.flatnonzero(bad)
    if not len(items):
        return
    row = np.searchsorted(starts, items, side="right") - 1
    rows, places = np.zeros(len(starts) - 1, bool), np.zeros(len(starts) - 1, np.int64)
    rows[row] = True
    places[row[::-1]] = (items - starts[row])[::-1]  # of several, the first
    raise BadRowsError(reason, columns, rows, places, hint)


def whole(batch: pa.RecordBatch, name: str, reason: str, hint: str = "") -> pa.Array:
    """Return a column that has no nulls."""
    column = batch.column(name)
    if has_nulls(column):
        raise BadRowsError(reason, (name,), nulls(column), hint=hint)
    return column


def finite_numbers(batch: pa.RecordBatch, name: str, role: str) -> Floats:
    """Return a column of finite numbers as float64."""
    values = floats(whole(batch, name, f"{role} is null"))
    if first_not_finite(values) >= 0:
        raise BadRowsError(f"{role} is not finite", (name,), ~np.isfinite(values))
    return values


def probabilities(batch: pa.RecordBatch, name: str, role: str) -> Floats:
    """Return a column of numbers in (0, 1] as float64."""
    values = floats(whole(batch, name, f"{role} is null"))
    refuse_improper(values, role, name)
    return values


def refuse_improper(values: Floats, role: str, *columns: str, starts: Ints | None = None) -> None:
    """Raise an error unless all numbers, or items of lists, are in (0, 1]."""
    if values.min(initial=1.0) > 0 and values.max(initial=1.0) <= 1:  # neither is true if one is NaN
        return
    bad, reason, hint = ~((values > 0) & (values <= 1)), f"{role} is not in (0, 1]", likely_cause(values)
    if starts is None:
        raise BadRowsError(reason, columns, bad, hint=hint)
    refuse_items(bad, starts, reason, *columns, hint=hint)


def likely_cause(values: Floats) -> str:
    """Return what numbers that should be probabilities may be, and what to do; nothing if most are all right."""
    known = values[np.isfinite(values)]
    if not len(known):
        return ""
    if (known <= 0).all() and known.min() < 0:
        return "All are negative, as logarithms are: store their exponentials, e.g. numpy.exp(p). "
    if known.min() >= 0 and 1 < known.max() <= 100 and (known > 1).mean() > 0.5:
        return "Most are between 1 and 100: of percentages, store p / 100; of inverse propensities, 1 / p. "
    if known.min() >= 1:
        return "All are 1 or more, as inverse propensities are: store 1 / p. "
    return ""
