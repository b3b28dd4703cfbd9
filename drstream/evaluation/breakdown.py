"""The table of segments: estimates, differences, p-values and q-values for each segment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from drstream.evaluation.result import Evaluation


def segment_table(result: Evaluation) -> pa.Table:
    """One row for each segment, policy and estimator."""
    columns: dict[str, list[Any]] = {name: [] for name in result.by}
    rows: list[dict[str, Any]] = []
    for key in result._segments:
        part = result._evaluation_of(key)
        for policy in part.policies:
            for estimator in part.estimators:
                found = part[policy, estimator]
                gain = part.difference(policy, estimator=estimator)
                for name, value in zip(result.by, key, strict=True):
                    columns[name].append(value)
                rows.append(
                    {
                        "policy": policy,
                        "estimator": estimator,
                        "value": found.value,
                        "low": found.low,
                        "high": found.high,
                        "difference": gain.value,
                        "difference_low": gain.low,
                        "difference_high": gain.high,
                        "n": part.n,
                        "ess": found.ess,
                        "p_value": p_value(gain.value, gain.stderr),
                        "method": found.method,
                    }
                )
    _add_q_values(rows)
    values = {name: pa.array(_of_one_type(column)) for name, column in columns.items()}
    table = pa.Table.from_pylist(rows)
    for place, (name, column) in enumerate(values.items()):
        table = table.add_column(place, name, column)
    return table


def _of_one_type(values: list[Any]) -> list[Any]:
    """Values of one type for Arrow. The pooled segment has text in every column."""
    kinds = {type(value) for value in values if value is not None}
    return values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]


def p_value(difference: float, stderr: float) -> float:
    """The two-sided p-value of a difference, by the normal distribution."""
    if math.isnan(difference) or not stderr > 0:
        return math.nan
    return 2 * NormalDist().cdf(-abs(difference) / stderr)


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
