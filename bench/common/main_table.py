"""Writes the top of the page: the main rows with their requirements."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from bench.common import missed
from bench.common.markdown import Info, spread, table, verdict

Topics = list[tuple[ModuleType, ModuleType]]  # cases and report of each topic, in the order of the page

MAIN = (
    "Medians of ratios to a side that runs in turns with drstream, with the smallest and the largest pair. The "
    "sections below say what each row measures. A missed requirement fails the run."
)
HEAD = ("what", "figure", "required", "met")


def sections(found: dict[str, Info], topics: Topics, full: bool) -> list[str]:
    return ["## Main rows", MAIN, table(HEAD, rows(found, topics, full)), *misses(found, topics)]


def rows(found: dict[str, Info], topics: Topics, full: bool) -> list[tuple[str, ...]]:
    """Rows that were not measured stay in the table."""
    shown: list[tuple[str, ...]] = []
    for cases, report in topics:
        cells: Callable[[Info], tuple[str, str]] = getattr(report, "main_cells", ratio_cells)
        for name, label in getattr(cases, "MAIN", {}).items():
            info = found.get(name)
            shown.append((label, *cells(info), verdict(info, full)) if info else (label, "not measured", "", "**no**"))
    return shown


def misses(found: dict[str, Info], topics: Topics) -> list[str]:
    """By how much each missed requirement is missed, and why."""
    names = {name: label for cases, _ in topics for name, label in getattr(cases, "MAIN", {}).items()}
    lines = [missed.of(label, found[name], found) for name, label in names.items() if _is_missed(found.get(name))]
    return ["**Missed**, and what the profile below shows:", "\n".join(lines)] if lines else []


def _is_missed(info: Info | None) -> bool:
    return info is not None and info["passed"] is not True


def ratio_cells(info: Info) -> tuple[str, str]:
    return spread(info["ratio"], info["ratios"]), f"{info['required']:.3g}"
