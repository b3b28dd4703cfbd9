"""Writes the top of the page: the main rows with their requirements, and their course over commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bench.common import history, missed, plots
from bench.common.markdown import Info, spread, table, verdict

Topics = list[tuple[ModuleType, ModuleType]]  # cases and report of each topic, in the order of the page

PLOT = "course.svg"
SHOWN = 6  # commits in the table; the plot has all
MAIN = (
    "Medians of ratios to a side that runs in turns with drstream, with the smallest and the largest pair. The "
    "sections below say what each row measures. A missed requirement fails the run."
)
COURSE = (
    "The main ratios of all saved runs (`bench/history`), over their requirements of today. Runs of different machines "
    "are hard to compare."
)


def sections(found: dict[str, Info], topics: Topics, full: bool, runs: list[history.Run]) -> list[str]:
    return ["## Main rows", MAIN, main(found, topics, full), *misses(found, topics), *course(topics, runs)]


def main(found: dict[str, Info], topics: Topics, full: bool) -> str:
    """Rows that were not measured stay in the table."""
    rows = []
    for cases, report in topics:
        cells: Callable[[Info], tuple[str, str]] = getattr(report, "main_cells", ratio_cells)
        for name, label in getattr(cases, "MAIN", {}).items():
            info = found.get(name)
            rows.append((label, *cells(info), verdict(info, full)) if info else (label, "not measured", "", "**no**"))
    return table(("what", "figure", "required", "met"), rows)


def misses(found: dict[str, Info], topics: Topics) -> list[str]:
    """By how much each missed requirement is missed, and why."""
    names = {name: label for cases, _ in topics for name, label in getattr(cases, "MAIN", {}).items()}
    lines = [missed.of(label, found[name], found) for name, label in names.items() if _is_missed(found.get(name))]
    return ["**Missed**, and what the profile below shows:", "\n".join(lines)] if lines else []


def _is_missed(info: Info | None) -> bool:
    return info is not None and info["passed"] is not True


def ratio_cells(info: Info) -> tuple[str, str]:
    return spread(info["ratio"], info["ratios"]), f"{info['required']:.3g}"


# The course over commits


@dataclass(frozen=True)
class Row:
    ratios: list[float | None]  # of each run; None: not measured
    required: float  # by the last run that has it


def course(topics: Topics, runs: list[history.Run]) -> list[str]:
    if not runs:
        return []
    rows = [
        (label, *("" if ratio is None else f"{ratio:.3g}" for ratio in row.ratios[-SHOWN:]))
        for measured in course_rows(topics, runs).values()
        for label, row in measured.items()
    ]
    about = ((run["datetime"][:10], history.commit(run)[:7], history.processor(run)) for run in runs[-SHOWN:])
    head = ("ratio", *map(", ".join, about))
    image = f"![Main ratios over their requirements, commit by commit]({plots.FOLDER}/{PLOT})"
    return ["### The course of the main ratios", COURSE, image, table(head, rows)]


def draw(topics: Topics, runs: list[history.Run], folder: Path) -> None:
    if runs:
        panels = {
            topic: {label: [r and r / row.required for r in row.ratios] for label, row in measured.items()}
            for topic, measured in course_rows(topics, runs).items()
        }
        plots.course(folder / PLOT, [history.commit(run)[:7] for run in runs], panels)


def course_rows(topics: Topics, runs: list[history.Run]) -> dict[str, dict[str, Row]]:
    """The main rows with ratios, by topic and short name."""
    infos = [{b["extra_info"]["name"]: b["extra_info"] for b in run["benchmarks"]} for run in runs]
    panels: dict[str, dict[str, Row]] = {}
    for cases, _ in topics:
        for name, label in getattr(cases, "MAIN", {}).items():
            found = [info.get(name, {}) for info in infos]
            if measured := [info for info in found if "ratio" in info]:
                row = Row([info.get("ratio") for info in found], measured[-1]["required"])
                panels.setdefault(cases.__name__.split(".")[1], {})[label] = row
    return panels
