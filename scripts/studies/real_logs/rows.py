"""Rows of results: an estimate beside the truth, and how both are compared."""

from __future__ import annotations

import math
from typing import Any

import drstream as drs
from scripts.studies.trials import Row


def bounds(estimate: drs.Estimate) -> Row:
    return {
        "value": estimate.value,
        "stderr": estimate.stderr,
        "low": known(estimate.low),
        "high": known(estimate.high),
        "method": estimate.method,
    }


def known(value: float) -> float | None:
    return None if math.isnan(value) else value


def beside(estimate: drs.Estimate, truth: drs.Estimate) -> Row:
    """An estimate beside a truth that was measured on other events, so it has an interval of its own.

    The interval of the difference squares and adds the arms of both intervals (Newcombe 1998). For normal intervals it
    is the usual one. There is none if the estimate has no interval, or lies outside of its own interval.
    """
    row = {**bounds(estimate), "truth": truth.value, "truth_low": truth.low, "truth_high": truth.high}
    if math.isnan(estimate.low):
        return {**row, "inside": None, "agrees": None}
    inside = estimate.low <= truth.value <= estimate.high
    if not estimate.low <= estimate.value <= estimate.high:
        return {**row, "inside": inside, "agrees": None}
    gap = estimate.value - truth.value
    low = gap - math.hypot(estimate.value - estimate.low, truth.high - truth.value)
    high = gap + math.hypot(estimate.high - estimate.value, truth.value - truth.low)
    return {**row, "inside": inside, "agrees": low <= 0 <= high}


def findings(result: drs.Evaluation) -> list[Row]:
    """The findings that are printed: those that are not ok."""
    return [finding.to_dict() for finding in result.findings if finding.level != "ok"]


class Halves:
    """How often an estimate from one random half agrees with the truth of the other half."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Row] = {}

    def add(self, found: Row, **key: Any) -> None:
        row = self.rows.setdefault(tuple(key.values()), {**key, "cases": 0, "agree": 0})
        row["cases"] += 1
        row["agree"] += bool(found["agrees"])
