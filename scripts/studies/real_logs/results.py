"""Rows of results: an estimate beside the truth, and how both are compared and stored."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drstream as drs
from drstream.storage import atomic_path
from scripts.studies.trials import Row, Setting

DIGITS = 12  # other processors may round the last ones otherwise


def write(name: str, run: Callable[[Setting], dict[str, Any]], setting: Setting) -> Path:
    """Runs one log, and writes NAME.json with its results and settings."""
    started = time.perf_counter()
    found = run(setting)
    about = {
        "quick": setting.quick,
        "seconds": round(time.perf_counter() - started, 1),
        "workers": setting.workers,
        "date": time.strftime("%Y-%m-%d"),
    }
    setting.output.mkdir(parents=True, exist_ok=True)
    path = setting.output / f"{name}.json"
    with atomic_path(path) as unfinished:
        unfinished.write_text(json.dumps(_rounded({"about": about, **found}), indent=1) + "\n")
    return path


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def bounds(estimate: drs.Estimate) -> Row:
    return {
        "value": estimate.value,
        "stderr": estimate.stderr,
        "low": estimate.low,
        "high": estimate.high,
        "method": estimate.method,
    }


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
