"""The table of segments: estimates, differences, p-values and q-values for each segment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Key = tuple[Any, ...]


def segment_table(by: Sequence[str], rows: Sequence[tuple[Key, dict[str, Any]]]) -> pa.Table:
    """One row for each segment, policy and estimator, with p-values and q-values of the differences."""
    found = []
    for _, row in rows:
        known = not math.isnan(row["difference_low"])  # DM has no interval unless asked for, and so no p-value
        p = p_value(row["difference"], row["difference_stderr"]) if known else math.nan
        found.append({**row, "p_value": p})
    _add_q_values(found)
    table = pa.Table.from_pylist(found)
    for place, name in enumerate(by):
        table = table.add_column(place, name, pa.array(_of_one_type([key[place] for key, _ in rows])))
    return table


def _of_one_type(values: list[Any]) -> list[Any]:
    """Values of one type for Arrow. The pooled segment has text in every column."""
    kinds = {type(value) for value in values if value is not None}
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]


def p_value(difference: float, stderr: float) -> float:
    """The two-sided p-value of a difference, by the normal distribution."""
    if math.isnan(difference) or not stderr > 0:
        return math.nan
    return math.erfc(abs(difference) / stderr / math.sqrt(2))


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
