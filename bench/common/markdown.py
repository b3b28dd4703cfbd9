"""Formats numbers, verdicts and tables for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Info = dict[str, Any]  # what a benchmark noted in its extra_info


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def verdict(info: Info, full: bool) -> str:
    if info["required" if "required" in info else "required_mb"] is None:
        return ""
    return ("yes" if info["passed"] is True else "**no**") + ("" if full else " (not judged)")


def against(info: Info) -> str:
    """The baseline, with its rows where it gets only the log's first events."""
    return info["baseline"] + (f", {info['baseline_rows']:,} rows" if info["baseline_rows"] < info["rows"] else "")


def spread(ratio: float, ratios: list[float]) -> str:
    """The ratio, with those of the smallest and the largest pair."""
    form = ".4f" if ratio < 0.1 else ".2f" if ratio < 10 else ".1f" if ratio < 100 else ".0f"
    return f"{ratio:{form}} ({min(ratios):{form}} to {max(ratios):{form}})"


def millions(number: float) -> str:
    return f"{number / 1e6:.3g} M"


def seconds(time: float) -> str:
    return f"{time:.2f} s"


def megabytes(number: float) -> str:
    return f"{number:.0f} MB"
