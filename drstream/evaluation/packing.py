"""The state of a pass as numbers for a file, and back: floats, integers, and a few words as JSON.

The order of the numbers is that of the code below, and docs/states.md says it in words. Reading takes what the form of
the sums says, and raises an error unless that is all there is.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.evaluation.form import Form
from drstream.evaluation.tally import Outside, Tally, new_tally
from drstream.evaluation.totals import Key, Lengths, Segments, Stretch, Totals
from drstream.models.calibration import Calibration
from drstream.moments import fields_of
from drstream.types import Floats, Ints

Packed = tuple[dict[str, Any], Floats, Ints]  # words, floats, integers


class Writer:
    """Gathers numbers."""

    def __init__(self) -> None:
        self.floats: list[Floats] = []
        self.ints: list[Ints] = []

    def put(self, *values: Any) -> None:
        for value in values:
            array = np.asarray(value).reshape(-1)
            (self.floats if array.dtype.kind == "f" else self.ints).append(array)

    def packed(self, words: dict[str, Any]) -> Packed:
        none_f, none_i = np.empty(0), np.empty(0, np.int64)
        return words, np.concatenate([none_f, *self.floats]), np.concatenate([none_i, *self.ints])


class Reader:
    """Gives numbers back, in the same order."""

    def __init__(self, floats: Floats, ints: Ints) -> None:
        self.floats, self.ints = floats, ints
        self._float = self._int = 0

    def take(self, out: NDArray[Any]) -> None:
        """Fill an array."""
        found: NDArray[Any]
        if out.dtype.kind == "f":
            found, self._float = self.floats[self._float : self._float + out.size], self._float + out.size
        else:
            found, self._int = self.ints[self._int : self._int + out.size], self._int + out.size
        if len(found) != out.size:
            raise ValueError("too few numbers")
        out[...] = found.reshape(out.shape)

    def ints_of(self, count: int) -> list[int]:
        out = np.empty(count, np.int64)
        self.take(out)
        return out.tolist()

    def floats_of(self, count: int) -> list[float]:
        out = np.empty(count)
        self.take(out)
        return out.tolist()

    def end(self) -> None:
        if self._float != len(self.floats) or self._int != len(self.ints):
            raise ValueError("too many numbers")


def pack(tally: Tally) -> Packed:
    writer, calibration = Writer(), tally.calibration
    _put_totals(writer, tally.totals)
    writer.put(tally.reduced, tally.mass, tally.even, tally.logged, tally.other_than_clicks)
    used = np.flatnonzero(calibration.table.any(axis=0))  # few of 16,000 buckets
    writer.put(len(used), used, calibration.table[:, used], calibration.sums)
    writer.put(calibration.predictions, calibration.clamped, calibration.unpredicted, calibration.least_propensity)
    words: dict[str, Any] = {"skipped": dict(tally.skipped)}
    if tally.outside:
        words["outside"] = [[*key, o.count, float(o.first).hex(), o.where] for key, o in tally.outside.items()]
    if tally.lengths is not None:
        words["lengths"] = [tally.lengths.shortest, tally.lengths.longest, tally.lengths.items]
    for name, found in (("segments", tally.segments), ("loggers", tally.loggers)):
        if found is not None:
            words[name] = [packed_key(key) for key in found.totals]
            for totals in found.totals.values():
                _put_totals(writer, totals)
    return writer.packed(words)


def unpack(packed: Packed, form: Form, typical_reward: float) -> Tally:
    """Return the state. A ValueError, KeyError or TypeError says that these are not the numbers of such a state."""
    words, floats, ints = packed
    _check_size(form, len(floats), len(ints))
    reader, tally = Reader(floats, ints), new_tally(form, typical_reward)
    _take_totals(reader, tally.totals)
    for array in (tally.reduced, tally.mass, tally.even, tally.logged):
        reader.take(array)
    tally.other_than_clicks, used = reader.ints_of(2)
    _take_calibration(reader, tally.calibration, used)
    tally.skipped = Counter({str(reason): int(count) for reason, count in words["skipped"].items()})
    for what, policy, count, first, where in words.get("outside", ()):
        tally.outside[what, policy] = Outside(int(count), float.fromhex(first), str(where))
    if "lengths" in words:
        tally.lengths = Lengths(*map(int, words["lengths"]))
    for name, found in (("segments", tally.segments), ("loggers", tally.loggers)):
        if found is not None:
            _take_segments(reader, found, words[name])
    reader.end()
    return tally


def _check_size(form: Form, floats: int, ints: int) -> None:
    """Raise an error if a form asks for more numbers than there are, before any memory is taken for them."""
    counts = form.policies, form.actions
    if not all(isinstance(count, int) and count >= 0 for count in counts) or form.actions > ints:
        raise ValueError("no such number of policies and actions")
    first, policies = 1 + bool(form.down_sampled), form.policies
    sizes = [len(terms) * (policies if form.paired else 1) + first for terms in form.groups]
    products = sum(size**2 for size in sizes) * (1 if form.paired else policies)
    if 2 * (first + policies * len(form.columns)) + products + policies * form.actions > floats:
        raise ValueError("too few numbers")


def _put_totals(writer: Writer, totals: Totals) -> None:
    writer.put(*fields_of(totals.moments), totals.inspected)
    if totals.shape.buckets:
        writer.put(totals.bucket_counts, totals.bucket_sums)
    if totals.shape.stretches:
        writer.put(len(totals.stretches))
        for index, stretch in totals.stretches.items():
            writer.put(index, stretch.events, stretch.sums, stretch.products)
    if totals.shape.octaves:
        writer.put(totals.octaves)


def _take_totals(reader: Reader, totals: Totals) -> None:
    for array in (*fields_of(totals.moments), totals.inspected):
        reader.take(array)
    if totals.shape.buckets:
        reader.take(totals.bucket_counts)
        reader.take(totals.bucket_sums)
    if totals.shape.stretches:
        for _ in range(reader.ints_of(1)[0]):
            index, events = reader.ints_of(2)
            stretch = Stretch.create(totals.shape.layout)
            stretch.events = events
            reader.take(stretch.sums)
            reader.take(stretch.products)
            totals.stretches[index] = stretch
    if totals.shape.octaves:
        reader.take(totals.octaves)


def _take_calibration(reader: Reader, calibration: Calibration, used: int) -> None:
    if not 0 <= used <= calibration.table.shape[1]:
        raise ValueError("too many buckets")
    places = np.array(reader.ints_of(used), np.int64)
    if used and not (places.min() >= 0 and places.max() < calibration.table.shape[1]):
        raise ValueError("no such bucket")
    table = np.empty((3, used))
    reader.take(table)
    calibration.table[:, places] = table
    reader.take(calibration.sums)
    calibration.predictions, calibration.clamped, calibration.unpredicted = reader.ints_of(3)
    calibration.least_propensity = reader.floats_of(1)[0]


def _take_segments(reader: Reader, found: Segments, keys: Iterable[Any]) -> None:
    for key in keys:
        totals = found.shape.create()
        _take_totals(reader, totals)
        found.totals[unpacked_key(key)] = totals


def packed_key(key: Key) -> list[Any]:
    """Values as JSON. Dates are written as such."""
    return [value if value is None or isinstance(value, bool | int | str) else _tagged(value) for value in key]


def _tagged(value: Any) -> dict[str, Any]:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return {"date": value.isoformat()}
    if isinstance(value, float) and math.isfinite(value):
        return {"float": value.hex()}
    raise TypeError(f"a {type(value).__name__} cannot be written to a state")


def unpacked_key(key: Any) -> Key:
    return tuple(_untagged(value) for value in key)


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    return datetime.date.fromisoformat(text) if kind == "date" else float.fromhex(text)
