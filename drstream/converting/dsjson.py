"""Vowpal Wabbit's dsjson: an event a line, as the decision service and its successors log it.

Each line is a JSON object with a label, a context `c` and perhaps candidates, `c._multi` (adf).
"""

from __future__ import annotations

import json
from typing import Any

from drstream.converting.events import NO_LABEL, Features, LeftOut, LineEvent, Syntax

MOST = 1 << 53  # actions
SKIPPED = "marked _skipLearn"  # why a line is left out


def parse(line: bytes) -> LineEvent | None:
    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LeftOut(f"{error}: {line[:60].decode(errors='replace')!r}") from None
    if not isinstance(found, dict):
        raise LeftOut(f"each line must be an object, but this is of type {type(found).__name__}")
    if found.get("_skipLearn") is True:
        raise LeftOut("_skipLearn is true", SKIPPED)
    label = _label(found)
    if "cost" not in label:
        raise LeftOut(f"there is no _label_cost in {line[:60].decode(errors='replace')!r}", NO_LABEL)
    context = found.get("c")
    if not isinstance(context, dict):
        raise LeftOut(f"the context 'c' must be an object, but is {_shown(context)}")
    if "_slots" in context or "_outcomes" in found:
        raise LeftOut("an event with slots has several actions: it cannot be one event of a log")
    items = context.get("_multi")
    if items is not None and not (isinstance(items, list) and items and all(isinstance(i, dict) for i in items)):
        raise LeftOut(f"'_multi' must be a list of objects, but is {_shown(items)}")
    try:
        features = [_features_of(thing) for thing in [context, *(items or ())]]
        if b"\\u" in line:
            "".join(name for thing in features for name, _ in thing).encode()
    except (RecursionError, UnicodeEncodeError) as error:
        raise LeftOut(f"its features cannot be named: {error}") from None
    drop = found.get("pdrop")
    return LineEvent(
        _action(found, label, None if items is None else len(items)),
        _number(label["cost"], "_label_cost"),
        _number(label.get("probability"), "_label_probability"),
        features[0],
        items=None if items is None else features[1:],
        propensities=_propensities(found, items),
        rate=None if drop is None else 1.0 - _number(drop, "pdrop"),
        event_id=_text(found.get("EventId")),
        time=_text(found.get("Timestamp")),
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
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value < MOST):
            raise LeftOut(f"{name} must be a whole number from {least} on, but is {_shown(value)}")
    if index is None and action is None:
        raise LeftOut("there is neither _labelIndex nor _label_Action")
    if index is not None and action is not None and index != action - 1:
        raise LeftOut(f"_labelIndex is {index}, but _label_Action is {action}: it must be one more")
    place = int(index) if index is not None else int(action or 0) - 1
    if items is not None and place >= items:
        raise LeftOut(f"_labelIndex is {place}, but there are {items} candidates")
    return place


def _propensities(found: dict[str, Any], items: list[Any] | None) -> list[float] | None:
    """Return the probabilities of all candidates, in their own order. `p` has the order of the ranking `a`."""
    given = found.get("p", found.get("_p"))
    if given is None or items is None:
        return None
    if not isinstance(given, list) or len(given) != len(items):
        raise LeftOut(f"'p' must hold {len(items)} probabilities, a candidate each, but is {_shown(given)}")
    ranking = found.get("a", found.get("_a"))
    if ranking is None:
        return [_number(value, "p") for value in given]
    places = ranking if isinstance(ranking, list) else []
    if sorted(value for value in places if isinstance(value, int)) != list(range(1, len(items) + 1)):
        raise LeftOut(f"'a' must hold the candidates 1 to {len(items)}, each once, but is {_shown(ranking)}")
    out = [0.0] * len(items)
    for place, value in zip(places, given, strict=True):
        out[place - 1] = _number(value, "p")
    return out


def _number(value: Any, name: str) -> float:
    """Return a number; also NaN, which a log reports as a bad value."""
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LeftOut(f"{name} must be a number, but is {_shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise LeftOut(f"{name} is beyond all numbers: {str(value)[:40]}") from None


def _text(value: Any) -> str | None:
    return None if value is None else str(value).encode(errors="replace").decode()


def _shown(value: Any) -> str:
    return "missing" if value is None else json.dumps(value)[:60]


def _features_of(thing: dict[str, Any]) -> Features:
    found: Features = []
    _add_members(thing, "", found)
    return found


def _add_members(thing: dict[str, Any], space: str, found: Features) -> None:
    """Add the features of an object, by `space^name`. Members that begin with _ are none."""
    for name, value in thing.items():
        if name[:1] != "_":
            _add_value(value, space, name, found)
        elif name == "_text" and isinstance(value, str):
            found += [(f"{space}^{word}", 1.0) for word in value.split()]


def _add_value(value: Any, space: str, name: str, found: Features) -> None:
    if isinstance(value, str):
        found.append((f"{space}^{name}={value}", 1.0))
    elif isinstance(value, dict):
        _add_members(value, f"{space}.{name}" if space else name, found)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            _add_value(one, space, name if isinstance(one, str | dict) else f"{name}[{place}]", found)
    elif value is not None and value is not False:
        try:
            found.append((f"{space}^{name}", float(value)))
        except OverflowError:
            found.append((f"{space}^{name}", float("inf")))  # which a log reports as a bad value


DSJSON = Syntax("dsjson", parse)
