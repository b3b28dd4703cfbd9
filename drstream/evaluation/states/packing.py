"""Sums as arrays, and back. In a file, those of many logs stand side by side: row i of an array is about sums i."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from drstream.evaluation.form import SumsForm
from drstream.evaluation.rankings import PSEUDO
from drstream.evaluation.sums import Sums

ARRAYS = ("whole", "mass", "logged", "octaves", "extremes", "other_than_clicks")
COUNTS = ("predictions", "clamped", "unpredicted")  # of the calibration
VARYING = ("used", "deciles", "rows", "records")  # arrays whose length differs
MOST_RECORDS = 1 << 20  # of a table: no pass has more
Packed = dict[str, Any]


def pack(sums: Sums, tables: Collection[str]) -> Packed:
    """Return all that sums have, and the tables with these names. Records of no event are left out."""
    found = sums.calibration
    used = np.flatnonzero(found.table.any(axis=0))  # few of 16,000 buckets
    return {
        **{name: getattr(sums, name) for name in ARRAYS},
        "items": sums.items,
        "skipped": dict(sums.skipped),
        "used": used,
        "deciles": found.table[:, used].T,
        "errors": found.sums,
        "predictions": np.array([getattr(found, name) for name in COUNTS]),
        "least_propensity": float(found.least_propensity),
        "tables": pack_tables(sums, tables),
    }


def pack_tables(sums: Sums, names: Collection[str]) -> Packed:
    packed = {}
    for name in names:
        table = sums.tables[name]
        rows = np.flatnonzero(table.records[:, 0])
        packed[name] = {"keys": list(table.places), "rows": rows, "records": table.records[rows]}
    return packed


def unpack(packed: Packed, form: SumsForm, pivot: float) -> Sums:
    """Return the sums. A ValueError, KeyError or TypeError says that these are not the sums of such a pass."""
    if packed["whole"].shape != (form.layout.width,) or packed["mass"].shape != (form.policies, form.actions):
        raise ValueError("number of policies and actions")  # before any memory is taken for them
    sums = Sums(form, pivot)
    found, used = sums.calibration, packed["used"]
    for name in ARRAYS:
        _fill(getattr(sums, name), packed[name])
    _fill(found.sums, packed["errors"])
    _check_records(sums.whole[None], 0)
    if not _are_places(used, found.table.shape[1]):
        raise ValueError("no such bucket")
    found.table[:, used] = packed["deciles"].T
    for name, count in zip(COUNTS, packed["predictions"].tolist(), strict=True):
        setattr(found, name, int(count))
    found.least_propensity = float(packed["least_propensity"])
    sums.items = int(packed["items"])
    sums.skipped = Counter({str(reason): int(count) for reason, count in packed["skipped"].items()})
    unpack_tables(packed["tables"], sums)
    return sums


def unpack_tables(packed: Packed, sums: Sums) -> None:
    for name, found in packed.items():
        table, keys, rows = sums.tables[name], found["keys"], found["rows"]
        if len(keys) * table.per > MOST_RECORDS:
            raise ValueError(f"{len(keys):,} groups")
        table.places_of(keys)
        if not _are_places(rows, len(table.records)):
            raise ValueError("no such group")
        if len(rows):
            _check_records(found["records"], 1)
            table.records[rows] = found["records"]
    for grouping in sums.form.groupings:
        if grouping.sums and (sums.tables[grouping.name].records[:, _weights(sums.form)] < 0).any():
            raise ValueError("a weight below 0")


def _weights(form: SumsForm) -> list[int]:
    """Where a record of sums has those of weights, but for pseudo-inverse ones, which may be below 0."""
    places = [form.columns.index(name) for name in form.weights if name != f"{PSEUDO.name}.weight"]
    return [1 + form.first + j * len(form.columns) + place for j in range(form.policies) for place in places]


def _check_records(records: Any, least: int) -> None:
    """Raise an error unless records have numbers of events, and nothing in them is NaN or infinite."""
    counts = records[:, 0]
    if not np.isfinite(records).all() or not ((counts >= least) & (counts == np.floor(counts))).all():
        raise ValueError("number of events")


def check_keys(sums: Sums) -> None:
    """Raise an error unless pairs of groups, such as segments and buckets, are of groups that are known."""
    for grouping in sums.form.groupings:
        if len(grouping.parts) == 2:
            keys: Any = sums.tables[grouping.name].places.keys()
            known = sums.tables[grouping.parts[0]].places.keys()
            if not (keys == known if grouping.sums else {key[0] for key in keys} <= known):
                raise ValueError(grouping.name)


def _fill(out: Any, found: Any) -> None:
    if found.shape != out.shape or found.dtype != out.dtype:
        raise ValueError(f"{found.dtype} {found.shape} for {out.dtype} {out.shape}")
    out[...] = found


def _are_places(found: Any, size: int) -> bool:
    return found.dtype == np.int64 and found.ndim == 1 and not ((found < 0) | (found >= size)).any()


def stack(many: Sequence[Packed]) -> Packed:
    """Put packed sums side by side. At least one is needed."""
    out: Packed = {"count": len(many)}
    for name, value in many[0].items():
        values = [one[name] for one in many]
        if name == "tables":
            out[name] = {table: stack([one[table] for one in values]) for table in value}
        elif name in VARYING:
            out[name], out["lengths"] = np.concatenate(values), np.array([len(one) for one in values])
        else:
            out[name] = np.array(values) if isinstance(value, np.ndarray) else values
    return out


def unstack(stacked: Packed) -> list[Packed]:
    found = dict(stacked)
    count, ends = found.pop("count"), np.cumsum(found.pop("lengths"))
    columns: dict[str, Sequence[Any]] = {}
    for name, value in found.items():
        if name == "tables":
            tables = {table: unstack(one) for table, one in value.items()}
            columns[name] = [{table: one[i] for table, one in tables.items()} for i in range(count)]
        elif name in VARYING:
            if len(value) != ends[-1]:
                raise ValueError(f"{len(value)} {name}")
            columns[name] = np.split(value, ends[:-1])
        else:
            columns[name] = value
    if any(len(values) != count for values in columns.values()):
        raise ValueError("number of files")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
