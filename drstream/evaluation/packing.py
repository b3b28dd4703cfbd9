"""The sums of a pass as words and arrays for a file, and back."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.evaluation.form import Form
from drstream.evaluation.groupings import Key
from drstream.evaluation.sums import Sums, Table
from drstream.models.calibration import Calibration
from drstream.types import Floats

Packed = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # words, arrays


def pack(sums: Sums) -> Packed:
    """Return all of the sums. Records of no event are left out."""
    found, used = sums.calibration, np.flatnonzero(sums.calibration.table.any(axis=0))  # few of 16,000 buckets
    arrays: dict[str, NDArray[Any]] = {
        "whole": sums.whole,
        "mass": sums.mass,
        "logged": sums.logged,
        "octaves": sums.octaves,
        "extremes": sums.extremes,
        "deciles.used": used,
        "deciles": found.table[:, used],
        "predictions": found.sums,
    }
    words: dict[str, Any] = {
        "skipped": dict(sums.skipped),
        "items": sums.items,
        "other_than_clicks": int(sums.other_than_clicks[0]),
        "predictions": [found.predictions, found.clamped, found.unpredicted, float(found.least_propensity).hex()],
        "keys": {},
    }
    for name, table in sums.tables.items():
        words["keys"][name] = [_packed(key) for key in table.places]
        rows = np.flatnonzero(table.records[:, 0])
        arrays[f"{name}.rows"], arrays[name] = rows, table.records[rows]
    return words, arrays


def unpack(packed: Packed, form: Form, typical_reward: float) -> Sums:
    """Return the sums. A ValueError, KeyError or TypeError says that these are not the sums of such a pass."""
    words, arrays = packed
    layout = form.layout
    if len(arrays["whole"]) != layout.width or arrays["mass"].shape != (form.policies, form.actions):
        raise ValueError("number of policies and actions")  # before any memory is taken for them
    sums = Sums(form, typical_reward)
    for name in ("whole", "mass", "logged", "octaves", "extremes"):
        _fill(getattr(sums, name), arrays[name])
    sums.items, sums.other_than_clicks[0] = int(words["items"]), int(words["other_than_clicks"])
    sums.skipped = Counter({str(reason): int(count) for reason, count in words["skipped"].items()})
    _take_calibration(sums.calibration, words["predictions"], arrays)
    for name, table in sums.tables.items():
        _take_table(table, words["keys"][name], arrays[f"{name}.rows"], arrays[name])
    return sums


def _fill(out: NDArray[Any], found: NDArray[Any]) -> None:
    if found.shape != out.shape:
        raise ValueError(f"{found.shape} numbers for {out.shape}")
    out[...] = found


def _take_calibration(calibration: Calibration, words: Any, arrays: dict[str, NDArray[Any]]) -> None:
    used = arrays["deciles.used"]
    if len(used) and not (used.min() >= 0 and used.max() < calibration.table.shape[1]):
        raise ValueError("no such bucket")
    calibration.table[:, used] = arrays["deciles"]
    _fill(calibration.sums, arrays["predictions"])
    calibration.predictions, calibration.clamped, calibration.unpredicted = map(int, words[:3])
    calibration.least_propensity = float.fromhex(words[3])


def _take_table(table: Table, keys: Any, rows: NDArray[Any], records: Floats) -> None:
    table.places_of([_unpacked(key) for key in keys])
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(table.records)):
        raise ValueError("no such group")
    table.records[rows] = records


def _packed(key: Any) -> Any:
    """A key of a table as JSON: a number of a stretch, values of columns, or both."""
    if isinstance(key, int):
        return key
    if len(key) == 2 and isinstance(key[0], tuple):
        return {"of": packed_key(key[0]), "stretch": key[1]}
    return packed_key(key)


def _unpacked(key: Any) -> Any:
    if isinstance(key, dict):
        return unpacked_key(key["of"]), int(key["stretch"])
    return int(key) if isinstance(key, int) else unpacked_key(key)


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
