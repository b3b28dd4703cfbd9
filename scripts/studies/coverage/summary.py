"""Makes the tables of the study from what was noted in all worlds, and judges them by the goal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.findings import LEVELS, LOOK, STOP
from drstream.intervals import z_score
from scripts.studies.coverage.measure import DEFAULT, NORMAL, USUAL
from scripts.studies.coverage.world import PLAIN_BEST
from scripts.studies.coverage.worlds import GROUPS, WORLDS
from scripts.studies.results import Found

AIM, ERRORS = 0.93, 3.0  # a cell fails if it is below the aim by more than three standard errors
MIDDLE_WIDTH, LARGE_WIDTH = 1.1, 1.35  # of the median of all cells, and of their 90 % quantile
STOPS, LOOKS = 0.01, 0.05  # most of healthy logs
ENOUGH = 20  # logs where an interval is defined; fewer say nothing


@dataclass(frozen=True)
class Cell:
    """One kind of interval over all logs of a world.

    n         Logs where the interval is defined.
    below     Share of these whose interval lies below the truth; above: likewise.
    width     Median width, relative to the oracle's normal interval.
    said      Share of logs with a "look" or "stop" about it.
    warned    The same share among the logs that miss; NaN if none does.
    stopped   The share of those with a "stop" among the logs that miss.
    undefined Share of logs without an interval.
    unsaid    Share of logs without an interval and without a "stop".
    """

    world: str
    what: str
    estimator: str
    method: str
    n: int
    coverage: float
    below: float
    above: float
    width: float
    said: float
    warned: float
    stopped: float
    undefined: float
    unsaid: float

    @property
    def error(self) -> float:
        """The standard error of the coverage, that of a share (k + 1) / (n + 2), so that it is never 0."""
        near = (self.coverage * self.n + 1) / (self.n + 2)
        return math.sqrt(near * (1 - near) / self.n)

    @property
    def fails(self) -> bool:
        return self.coverage + ERRORS * self.error < AIM

    @property
    def silent(self) -> bool:
        """Whether it fails, and most of the logs that miss have no finding."""
        return self.fails and not self.warned > 0.5

    @property
    def quiet(self) -> bool:
        """Whether most logs have no finding."""
        return self.said < 0.5


@dataclass(frozen=True)
class Measured:
    """What was noted in one world."""

    name: str
    about: dict[str, Any]
    cells: list[Cell]

    def of(self, method: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.method == method]

    def worst(self, method: str) -> Cell | None:
        return min(self.of(method), key=lambda cell: cell.coverage, default=None)

    def share(self, level: str) -> float:
        """The share of logs whose worst finding has this level."""
        return float(self.about["levels"].get(level, 0)) / self.about["logs"]


def read_world(name: str, path: Path) -> Measured:
    table = pq.read_table(path)
    return Measured(name, json.loads(table.schema.metadata[b"study"]), cells_of(name, table))


def cells_of(name: str, table: pa.Table) -> list[Cell]:
    """The cells of a world, from its rows in `Notes`."""
    columns = {column: table[column].to_numpy() for column in table.column_names}
    places: dict[tuple[str, str, str], list[int]] = {}
    for i, key in enumerate(zip(*(columns[c] for c in ("what", "estimator", "method")), strict=True)):
        places.setdefault(key, []).append(i)
    numbers = {c: columns[c] for c in ("truth", "error", "low", "high", "width", "level")}
    cells = [_cell(name, key, {c: values[rows] for c, values in numbers.items()}) for key, rows in places.items()]
    return [cell for cell in cells if cell.n >= ENOUGH]


def _cell(name: str, key: tuple[str, str, str], found: dict[str, NDArray[Any]]) -> Cell:
    defined = ~(np.isnan(found["low"]) | np.isnan(found["high"]))
    n = int(defined.sum())
    below, above = found["high"] < found["truth"], found["low"] > found["truth"]
    oracle = 2 * z_score(USUAL) * np.nanstd(found["error"])
    width = float(np.median(found["width"][defined]) / oracle) if n and oracle > 0 else math.nan
    said, stop, missed = found["level"] > 0, found["level"] == LEVELS.index(STOP), below | above
    warned, stopped = (float(x[missed].mean()) if missed.any() else math.nan for x in (said, stop))
    shares = [float(x.sum()) / max(n, 1) for x in (defined & ~(below | above), below, above)]
    without = 1 - n / len(defined), float((~defined & ~stop).mean())
    return Cell(name, *key, n, *shares, width, float(said.mean()), warned, stopped, *without)


def summary(folder: Path) -> Found:
    """The tables of all worlds that were simulated into the folder."""
    worlds = [read_world(name, path) for name in WORLDS if (path := folder / f"{name}.parquet").is_file()]
    cells = [cell for world in worlds for cell in world.of(DEFAULT) if cell.what != PLAIN_BEST]
    found = Found()
    found.figures = _figures(worlds, cells)
    found.figures |= {f"goal: {what}": text for what, text in judge(worlds, cells).items()}
    _failures(cells, found)
    _by_group(worlds, cells, found)
    _by_world(worlds, found)
    _healthy(worlds, found)
    _by_method(worlds, found)
    return found


def _figures(worlds: list[Measured], cells: list[Cell]) -> dict[str, str]:
    logs = sorted({world.about["logs"] for world in worlds})
    shares = sorted(cell.coverage for cell in cells)
    quiet = [cell for cell in cells if cell.quiet]
    widths = np.array([cell.width for cell in cells])
    middle, large = np.nanquantile(widths, [0.5, 0.9])
    return {
        "level": f"{USUAL:.0%}",
        "logs of a world": " or ".join(f"{n:,}" for n in logs),
        "standard error of a coverage of 95 %": f"{math.sqrt(USUAL * (1 - USUAL) / logs[0]):.1%}",
        "worlds": f"{len(worlds)}",
        "cells": f"{len(cells)}",
        "aim": f"{AIM:.0%}",
        "cells below the aim": f"{sum(cell.coverage < AIM for cell in cells)}",
        "cells below it by three standard errors": f"{sum(cell.fails for cell in cells)}",
        "those of them where most logs that miss have no finding": f"{sum(cell.silent for cell in cells)}",
        "coverage of the middle cell": percent(shares[len(shares) // 2]),
        "coverage of the worst cell": _worst(cells),
        "coverage of the worst cell without findings in most logs": _worst(quiet),
        "cells without findings in most logs": f"{len(quiet)}",
        "middle width": f"{middle:.2f}",
        "width that 90 % of the cells are below": f"{large:.2f}",
        "largest width": f"{np.nanmax(widths):.2f}",
    }


def judge(worlds: list[Measured], cells: list[Cell]) -> dict[str, str]:
    """The goal, line by line: what was found, and whether it holds."""

    def line(holds: bool, found: str, wanted: str) -> str:
        return f"{'holds' if holds else 'MISSED'}: {found}; wanted: {wanted}"

    silent = [cell for cell in cells if cell.silent]
    failing = [cell for cell in cells if cell.quiet and cell.fails]
    unsaid = max(cell.unsaid for cell in cells)
    middle, large = np.nanquantile([cell.width for cell in cells], [0.5, 0.9])
    return {
        "misses are said": line(
            not silent,
            f"{len(silent)} cells fail without a finding in most logs that miss",
            f"none (below {AIM:.0%} by more than {ERRORS:.0f} standard errors)",
        ),
        "coverage without findings": line(
            not failing, f"{len(failing)} cells without findings in most logs fail", "none"
        ),
        "no interval": line(not unsaid, f"at most {unsaid:.1%} of a cell's logs have none, and no stop", "none"),
        "middle width": line(middle <= MIDDLE_WIDTH, f"{middle:.2f}", f"at most {MIDDLE_WIDTH}"),
        "large widths": line(large <= LARGE_WIDTH, f"{large:.2f}", f"at most {LARGE_WIDTH}"),
        "healthy logs": _judge_healthy([world for world in worlds if WORLDS[world.name].healthy], line),
    }


def _judge_healthy(worlds: list[Measured], line: Any) -> str:
    logs = sum(world.about["logs"] for world in worlds)
    if not logs:
        return "not measured"
    stops, looks = (sum(world.about["levels"].get(x, 0) for world in worlds) / logs for x in (STOP, LOOK))
    said = f"{stops:.1%} stop, {looks:.1%} look in {logs:,} logs of {len(worlds)} worlds"
    return str(line(stops <= STOPS and looks <= LOOKS, said, f"{STOPS:.0%} and {LOOKS:.0%}"))


def percent(share: float, error: float | None = None) -> str:
    if math.isnan(share):
        return ""
    return f"{100 * share:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def _worst(cells: list[Cell]) -> str:
    worst = min(cells, key=lambda cell: cell.coverage, default=None)
    return "none" if worst is None else f"{percent(worst.coverage)} ({_which(worst)})"


def _whole(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _which(cell: Cell) -> str:
    return f"{WORLDS[cell.world].title}: {cell.what}, {cell.estimator}"


def _row(cell: Cell) -> list[str]:
    """Coverage, misses on both sides, width, findings in all logs and in those that miss."""
    missed = f"{percent(cell.below)} / {percent(cell.above)}"
    width = "" if math.isnan(cell.width) else f"{cell.width:.2f}"
    return [percent(cell.coverage, cell.error), missed, width, *map(_whole, (cell.said, cell.warned, cell.stopped))]


ROW = ["default, %", "misses below / above, %", "width", "logs with a finding", "of those that miss", "a stop"]


def _failures(cells: list[Cell], found: Found) -> None:
    """One row for each world where a cell fails: the worst of those that are silent, else of all."""
    by_world: dict[str, list[Cell]] = {}
    for cell in (cell for cell in cells if cell.fails):
        by_world.setdefault(cell.world, []).append(cell)
    worst = [min(of, key=lambda cell: (not cell.silent, cell.coverage)) for of in by_world.values()]
    rows = []
    for cell in sorted(worst, key=lambda cell: (not cell.silent, cell.coverage)):
        of, silent = by_world[cell.world], sum(c.silent for c in by_world[cell.world])
        many = f"{len(of)} of {sum(c.world == cell.world for c in cells)}", f"{silent}"
        rows.append([WORLDS[cell.world].title, *many, f"{cell.what}, {cell.estimator}", *_row(cell)])
    head = ["world", "cells that fail", "silently", "worst", *ROW]
    found.table("What the default does not cover, silent cells first", head, rows)


def _by_group(worlds: list[Measured], cells: list[Cell], found: Found) -> None:
    rows = []
    for group, names in GROUPS.items():
        of = [cell for cell in cells if cell.world in names]
        if of:
            shares, widths = [cell.coverage for cell in of], [cell.width for cell in of]
            normal = [cell.coverage for world in worlds if world.name in names for cell in world.of(NORMAL)]
            numbers = [percent(float(np.median(shares))), percent(min(shares))]
            numbers += [f"{np.nanmedian(widths):.2f}", f"{np.nanquantile(widths, 0.9):.2f}"]
            numbers += [percent(float(np.median(normal))) if normal else "", percent(min(normal)) if normal else ""]
            failing = f"{sum(cell.fails for cell in of)}", f"{sum(cell.silent for cell in of)}"
            rows.append([group, f"{len({cell.world for cell in of})}", f"{len(of)}", *numbers, *failing])
    head = ["group", "worlds", "cells", "middle, %", "worst, %", "middle width", "90 % width"]
    head += ["normal: middle, %", "worst, %", "fail", "silently"]
    found.table("The default by group of worlds", head, rows)


def _by_world(worlds: list[Measured], found: Found) -> None:
    rows = []
    for world in worlds:
        of = [cell for cell in world.of(DEFAULT) if cell.what != PLAIN_BEST]
        if of:
            worst, normal = min(of, key=lambda cell: cell.coverage), world.worst(NORMAL)
            width = f"{np.nanmedian([cell.width for cell in of]):.2f}"
            ends = [*map(_whole, (worst.said, worst.warned, worst.stopped)), percent(normal.coverage) if normal else ""]
            about = percent(worst.coverage, worst.error), f"{worst.what}, {worst.estimator}"
            rows.append([WORLDS[world.name].title, *about, width, *ends])
    head = ["world", "worst cell, %", "which", "middle width", *ROW[-3:], "normal, worst cell, %"]
    found.table("The default in each world", head, rows)


def _healthy(worlds: list[Measured], found: Found) -> None:
    of = [world for world in worlds if WORLDS[world.name].healthy]
    rows = [
        [WORLDS[w.name].title, f"{w.share(STOP):.1%}", f"{w.share(LOOK):.1%}", _most(w.about["findings"].items())]
        for w in of
    ]
    found.table("Healthy logs: the worst finding", ["world", "stop", "look", "most frequent"], rows)


def _most(findings: Iterable[tuple[str, int]]) -> str:
    return max(findings, key=lambda item: item[1], default=("", 0))[0]


def _by_method(worlds: list[Measured], found: Found) -> None:
    """Each method in the worlds where all were asked for."""
    compared = [world for world in worlds if WORLDS[world.name].bound is not None]
    rows = []
    for method in dict.fromkeys(cell.method for world in compared for cell in world.cells):
        cells = [cell for world in compared for cell in world.of(method)]
        worst = min(cells, key=lambda cell: cell.coverage)
        width = np.nanmedian([cell.width for cell in cells])
        middle = percent(float(np.median([cell.coverage for cell in cells])))
        numbers = [middle, percent(worst.coverage, worst.error), f"{width:.2f}"]
        rows.append(
            [method, f"{len(cells)}", *numbers, f"{np.mean([cell.undefined for cell in cells]):.0%}", _which(worst)]
        )
    head = ["method", "cells", "middle, %", "worst, %", "middle width", "undefined", "which"]
    found.table("Each method, where rewards are clicks and weights are bounded", head, rows)
