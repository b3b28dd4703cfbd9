"""Tables of a result: segments, with q-values over all of them, and weights by size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.kernels.account import HIGHEST, LOWEST
from drstream.types import Floats

Key = tuple[Any, ...]


def segment_table(by: Sequence[str], rows: Sequence[tuple[Key, dict[str, Any]]]) -> pa.Table:
    """One row for each segment, policy and estimator, with q-values of the differences."""
    found = [dict(row) for _, row in rows]
    _add_q_values(found)
    table = pa.Table.from_pylist(found)
    for place, name in enumerate(by):
        table = table.add_column(place, name, array_of([key[place] for key, _ in rows]))
    return table


def array_of(values: list[Any]) -> pa.Array:
    """Return an array of one type. The pooled segment has text in every column."""
    kinds = {type(value) for value in values if value is not None}
    unsigned = any(isinstance(value, int) and value >= 1 << 63 for value in values)
    if len(kinds) > 1:
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values, pa.uint64()) if unsigned else pa.array(values)


def _add_q_values(rows: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["policy"], row["estimator"]), []).append(row)
    for group in groups.values():
        for row, q in zip(group, benjamini_hochberg([row["p_value"] for row in group]), strict=True):
            row["q_value"] = q


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Benjamini, Hochberg 1995). Undefined ones stay NaN and do not count.

    >>> [round(q, 3) for q in benjamini_hochberg([0.01, 0.04, 0.03])]
    [0.03, 0.04, 0.04]
    """
    known = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    order = sorted(known, key=lambda i: p_values[i], reverse=True)
    found = [math.nan] * len(p_values)
    least = 1.0
    for place, i in enumerate(order):
        least = min(least, p_values[i] * len(known) / (len(known) - place))
        found[i] = least
    return found


def weight_table(counts: Floats) -> pa.Table:
    """Return one row for each bin, from the first to the last that has a weight: its edges, and how many it has."""
    used = np.flatnonzero(counts[1:]) + 1
    places = [*([0] if counts[0] else []), *(range(used[0], used[-1] + 1) if len(used) else ())]
    rows = [dict(zip(("from", "below"), edges(p), strict=True)) | {"events": int(counts[p])} for p in places]
    return pa.Table.from_pylist(rows)


def edges(place: int) -> tuple[float, float]:
    """Return the smallest weight of a bin, and the one that is too large for it.

    >>> [edges(place) for place in (0, 1, 11, 25)]
    [(0.0, 0.0), (0.0, 0.001953125), (1.0, 2.0), (16384.0, inf)]
    """
    if not place:
        return 0.0, 0.0
    octave = place - 1 + LOWEST
    return 0.0 if octave == LOWEST else 2.0**octave, np.inf if octave == HIGHEST else 2.0 ** (octave + 1)
