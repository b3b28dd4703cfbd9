"""Vowpal Wabbit's dsjson: an event a line, as the decision service and its successors log it.

Each line is a JSON object with a label, a context `c` and perhaps candidates, `c._multi` (adf).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.converting.features import INDICES, SPARSE, VALUES, FeatureLines, index_of, lists
from drstream.converting.lines import MALFORMED, Malformed, Parsed
from drstream.types import Ints

NO_LABEL, SKIPPED = "no label", "marked _skipLearn"  # why a line is left out
SPARSE_ITEM = pa.struct(
    [pa.field("index", pa.int32(), nullable=False), pa.field("value", pa.float64(), nullable=False)]
)
ENTRIES = pa.list_(pa.field("element", SPARSE_ITEM, nullable=False))
ITEM_FEATURES = pa.list_(pa.field("element", ENTRIES, nullable=False))
ITEMS = pa.list_(pa.field("element", pa.int32(), nullable=False))
PROPENSITIES = pa.list_(pa.field("element", pa.float64(), nullable=False))
CONTEXTS = (INDICES, VALUES, "item_features")  # columns that take most of the time


class _LeftOut(Exception):  # noqa: N818  # becomes a count, or a `Malformed`
    def __init__(self, what: str, reason: str = MALFORMED) -> None:
        super().__init__(what)
        self.reason = reason


@dataclass(frozen=True)
class DsJson(FeatureLines):
    name: str = "dsjson"

    def parse(self, data: bytes, schema: pa.Schema | None, skip: bool) -> Parsed:
        wanted = None if schema is None else set(schema.names)
        rows = _Rows(wanted is None or bool(wanted & set(CONTEXTS)))
        found, lines = Parsed(None), []
        for number, line in enumerate(data.split(b"\n")):
            if not line.strip():
                continue
            try:
                rows.add(_event(line))
                lines.append(number)
            except _LeftOut as error:
                if error.reason == MALFORMED and not skip:
                    raise Malformed(str(error), number) from None
                found.leave_out(error.reason, number, str(error))
        if len(lines) < (lines[-1] + 1 if lines else 0):
            found.lines = np.array(lines, np.int64)
        columns = rows.columns(self.bits, wanted)
        if "timestamp" in columns and (schema is None or schema.field("timestamp").type != pa.string()):
            columns["timestamp"] = _times(columns["timestamp"])
        found.table = pa.table(columns if schema is None else {name: columns[name] for name in schema.names})
        return found

    def common_type(self, one: pa.DataType, other: pa.DataType) -> pa.DataType:
        return one if one == other else pa.string()  # of timestamps, some of which are none


@dataclass
class _Event:
    """A line."""

    action: int
    cost: float
    probability: float
    context: dict[str, Any]
    items: list[Any] | None
    propensities: list[float] | None
    rate: float | None
    event_id: str | None
    time: str | None


def _event(line: bytes) -> _Event:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _LeftOut(f"{error}: {line[:60].decode(errors='replace')!r}") from None
    if not isinstance(found, dict):
        raise _LeftOut(f"each line must be an object, but this is of type {type(found).__name__}")
    if found.get("_skipLearn") is True:
        raise _LeftOut("_skipLearn is true", SKIPPED)
    label = _label(found)
    if "cost" not in label:
        raise _LeftOut(f"there is no _label_cost in {line[:60].decode(errors='replace')!r}", NO_LABEL)
    context = found.get("c")
    if not isinstance(context, dict):
        raise _LeftOut(f"the context 'c' must be an object, but is {_shown(context)}")
    if "_slots" in context or "_outcomes" in found:
        raise _LeftOut("an event with slots has several actions: it cannot be one event of a log")
    items = context.get("_multi")
    if items is not None and not (isinstance(items, list) and items and all(isinstance(i, dict) for i in items)):
        raise _LeftOut(f"'_multi' must be a list of objects, but is {_shown(items)}")
    action = _action(found, label, None if items is None else len(items))
    drop = found.get("pdrop")
    return _Event(
        action,
        _number(label["cost"], "_label_cost"),
        _number(label.get("probability"), "_label_probability"),
        context,
        items,
        _propensities(found, items),
        None if drop is None else 1.0 - _number(drop, "pdrop"),
        _text(found.get("EventId")),
        _text(found.get("Timestamp")),
    )


def _label(found: dict[str, Any]) -> dict[str, Any]:
    """Return cost, probability and action, which stand in members of their own, or in an object `_label`."""
    whole = found.get("_label")
    parts = dict(whole) if isinstance(whole, dict) else {}
    parts |= {name[len("_label_") :]: value for name, value in found.items() if name[:7] == "_label_"}
    return {name.lower(): value for name, value in parts.items() if value is not None}


def _action(found: dict[str, Any], label: dict[str, Any], items: int | None) -> int:
    """Return the action from 0 on: _labelIndex, or _label_Action - 1."""
    index, action = found.get("_labelIndex"), label.get("action")
    for name, value, least in (("_labelIndex", index, 0), ("_label_Action", action, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise _LeftOut(f"{name} must be a whole number from {least} on, but is {_shown(value)}")
    if index is None and action is None:
        raise _LeftOut("there is neither _labelIndex nor _label_Action")
    if index is not None and action is not None and index != action - 1:
        raise _LeftOut(f"_labelIndex is {index}, but _label_Action is {action}: it must be one more")
    place = int(index) if index is not None else int(action or 0) - 1
    if items is not None and place >= items:
        raise _LeftOut(f"_labelIndex is {place}, but there are {items} candidates")
    return place


def _propensities(found: dict[str, Any], items: list[Any] | None) -> list[float] | None:
    """Return the probabilities of all candidates, in their own order. `p` has the order of the ranking `a`."""
    given = found.get("p", found.get("_p"))
    if given is None or items is None:
        return None
    if not isinstance(given, list) or len(given) != len(items):
        raise _LeftOut(f"'p' must hold {len(items)} probabilities, a candidate each, but is {_shown(given)}")
    ranking = found.get("a", found.get("_a"))
    if ranking is None:
        return [_number(value, "p") for value in given]
    places = ranking if isinstance(ranking, list) else []
    if sorted(value for value in places if isinstance(value, int)) != list(range(1, len(items) + 1)):
        raise _LeftOut(f"'a' must hold the candidates 1 to {len(items)}, each once, but is {_shown(ranking)}")
    out = [0.0] * len(items)
    for place, value in zip(places, given, strict=True):
        out[place - 1] = _number(value, "p")
    return out


def _number(value: Any, name: str) -> float:
    """Return a number; also NaN, which a log reports as a bad value."""
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _LeftOut(f"{name} must be a number, but is {_shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise _LeftOut(f"{name} is beyond all numbers: {str(value)[:40]}") from None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _shown(value: Any) -> str:
    return "missing" if value is None else json.dumps(value)[:60]


# Columns


@dataclass
class _Rows:
    """The events of a block, column by column."""

    with_context: bool
    events: list[_Event] = field(default_factory=list)
    shared: _Features = field(default_factory=lambda: _Features())
    items: _Features = field(default_factory=lambda: _Features())

    def add(self, event: _Event) -> None:
        if self.with_context:
            self.shared.add(event.context)
            for item in event.items or ():
                self.items.add(item)
        event.context = {}
        if event.items is not None:
            event.items = [None] * len(event.items)
        self.events.append(event)

    def columns(self, bits: int, wanted: set[str] | None) -> dict[str, pa.Array]:
        """Return the columns that are wanted; by default, all that occur."""
        found: dict[str, pa.Array] = {}
        for name, kind, of, usual in COLUMNS:
            if wanted is None or name in wanted or (name == "items" and "item_features" in wanted):
                column = [of(event) for event in self.events]
                if usual or wanted is not None or any(value is not None for value in column):
                    found[name] = pa.array(column, kind)
        if "sample_rate" in found:
            found["sample_rate"] = found["sample_rate"].fill_null(1.0)
        if self.with_context:
            starts, indices, values = self.shared.arrays(bits)
            found[INDICES], found[VALUES] = lists(indices, starts, SPARSE[0]), lists(values, starts, SPARSE[1])
            if "items" in found:
                found["item_features"] = self._item_features(bits, found["items"])
        return found

    def _item_features(self, bits: int, items: pa.Array) -> pa.Array:
        starts, indices, values = self.items.arrays(bits)
        entries = pa.StructArray.from_arrays([pa.array(indices), pa.array(values)], fields=list(SPARSE_ITEM))
        each = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), entries, type=ENTRIES)
        return pa.ListArray.from_arrays(items.offsets, each, type=ITEM_FEATURES, mask=items.is_null())


COLUMNS: tuple[tuple[str, pa.DataType, Callable[[_Event], Any], bool], ...] = (  # and whether each log has it
    ("event_id", pa.string(), lambda e: e.event_id, False),
    ("timestamp", pa.string(), lambda e: e.time, False),
    ("action", pa.int64(), lambda e: e.action, True),
    ("reward", pa.float64(), lambda e: 0.0 - e.cost, True),
    ("propensity", pa.float64(), lambda e: e.probability, True),
    ("propensities", PROPENSITIES, lambda e: e.propensities, False),
    ("sample_rate", pa.float64(), lambda e: e.rate, False),
    ("items", ITEMS, lambda e: None if e.items is None else range(len(e.items)), False),
)


def _times(texts: pa.Array) -> pa.Array:
    """Return points in time if all texts are, else the texts."""
    try:
        return texts.cast(pa.timestamp("ns", "UTC"))
    except pa.ArrowInvalid:
        return texts


@dataclass
class _Features:
    """Names and values of the features of many objects. A name is `space^name`; `space` says which object it is in."""

    names: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])

    def add(self, thing: dict[str, Any]) -> None:
        self._add_object(thing, "")
        self.ends.append(len(self.names))

    def _add_object(self, thing: dict[str, Any], space: str) -> None:
        """Add the members of an object. Those that begin with _ are no features."""
        for name, value in thing.items():
            if name[:1] != "_":
                self._add_value(value, space, name)
            elif name == "_text" and isinstance(value, str):
                for word in value.split():
                    self._append(f"{space}^{word}", 1.0)

    def _add_value(self, value: Any, space: str, name: str) -> None:
        if isinstance(value, str):
            self._append(f"{space}^{name}={value}", 1.0)
        elif isinstance(value, dict):
            self._add_object(value, f"{space}.{name}" if space else name)
        elif isinstance(value, list):
            for place, one in enumerate(value):
                self._add_value(one, space, name if isinstance(one, str | dict) else f"{name}[{place}]")
        elif value is not None and value is not False:
            try:
                self._append(f"{space}^{name}", float(value))
            except OverflowError:
                self._append(f"{space}^{name}", float("inf"))  # which a log reports as a bad value

    def _append(self, name: str, value: float) -> None:
        self.names.append(name)
        self.values.append(value)

    def arrays(self, bits: int) -> tuple[Ints, NDArray[np.int32], NDArray[np.float64]]:
        return np.array(self.ends), index_of(self.names, bits), np.array(self.values, np.float64)
