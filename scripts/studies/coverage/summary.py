"""Makes the tables of the study from the counts of all worlds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from drstream.evaluation import checks
from drstream.intervals import methods
from scripts.studies.coverage.measure import ALWAYS, COUNTED, DEFAULT, ESTIMATORS, GIVEN, LARGEST, LEVELS, USUAL, Count
from scripts.studies.coverage.simulating import FULL, THRESHOLDS
from scripts.studies.coverage.worlds import WORLDS
from scripts.studies.results import Found

PLAIN = "normal"
AIM = 0.93
ENOUGH = 50  # logs where an interval is defined; fewer say nothing about a method
EVERY_METHOD = (DEFAULT, *methods.ALL, ALWAYS, GIVEN, LARGEST, COUNTED)


class Cell(NamedTuple):
    """What is estimated, and by which estimator."""

    what: str
    estimator: str


class Measured:
    """The counts of one world."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text())
        self.name, self.title, self.logs, self.seed = (found[k] for k in ("world", "title", "logs", "seed"))
        self.chosen: list[list[Any]] = found["chosen"]
        self.findings: list[list[Any]] = found["findings"]
        self.counts = {tuple(row[:4]): Count(*row[4:]) for row in found["intervals"]}
        self.cells = list(dict.fromkeys(Cell(what, estimator) for what, estimator, *_ in self.counts))
        self.whats = list(dict.fromkeys(cell.what for cell in self.cells))

    def count(self, cell: Cell, method: str, level: float = USUAL) -> Count | None:
        found = self.counts.get((*cell, level, method))
        return found if found and found.logs else None

    def coverage(self, cell: Cell, method: str, level: float = USUAL) -> tuple[float, float]:
        """Coverage and its standard error, that of a share (k + 1) / (n + 2), so that it is never 0."""
        count = self.count(cell, method, level)
        if count is None:
            return math.nan, math.nan
        near = (count.covered + 1) / (count.logs + 2)
        return count.covered / count.logs, math.sqrt(near * (1 - near) / count.logs)

    def width(self, cell: Cell, method: str, level: float = USUAL) -> float:
        """Mean width, relative to the normal interval."""
        count, normal = self.count(cell, method, level), self.count(cell, PLAIN, level)
        if count is None or normal is None or not normal.width:
            return math.nan
        return (count.width / count.logs) / (normal.width / normal.logs)

    def measured(self, method: str) -> list[Cell]:
        """The cells that tell something about a method."""
        return [cell for cell in self.cells if (found := self.count(cell, method)) and found.logs >= ENOUGH]

    def worst(self, method: str) -> tuple[Cell, float, float]:
        """The cell where a method covers least at 95 %."""
        cell = min(self.measured(method), key=lambda c: self.coverage(c, method)[0])
        return cell, *self.coverage(cell, method)

    def methods_chosen(self, what: str) -> str:
        """Which methods the default chose, and how often."""
        found: dict[str, int] = {}
        for about, _, method, count in self.chosen:
            if about == what:
                found[method] = found.get(method, 0) + count
        total = sum(found.values())
        ordered = sorted(found.items(), key=lambda item: -item[1])
        return ", ".join(m if n == total else f"{m} {_share(n, total)}" for m, n in ordered)

    def flagged(self, policy: str) -> str:
        """How often a policy has a finding that must be read."""
        found = {level: count for name, level, count in self.findings if name == policy}
        total = sum(found.values())
        return ", ".join(f"{level} {_share(found[level], total)}" for level in ("look", "stop") if found.get(level))


def summary(folder: Path) -> Found:
    """The tables of all worlds that have counts in the folder."""
    worlds = [Measured(folder / f"{name}.json") for name in WORLDS if (folder / f"{name}.json").is_file()]
    found = Found()
    cells = [world.coverage(cell, DEFAULT) for world in worlds for cell in world.cells]
    middle = sorted(share for share, _ in cells)[len(cells) // 2]
    found.figures = {
        "level": f"{USUAL:.0%}",
        "logs of a world": " or ".join(f"{n:,}" for n in sorted({world.logs for world in worlds})),
        "logs with all methods and levels": f"{FULL:,}",
        "standard error of a coverage of 95 %": f"{max(math.sqrt(USUAL * (1 - USUAL) / w.logs) for w in worlds):.1%}",
        "worlds": f"{len(worlds)}",
        "cells": f"{len(cells)}",
        "aim": f"{AIM:.0%}",
        "cells below the aim": f"{sum(share < AIM for share, _ in cells)}",
        "cells below it by two standard errors, misses": f"{sum(_misses(*cell) for cell in cells)}",
        "coverage of the middle cell": _percent(middle),
        "coverage of the worst cell": _percent(min(cells)[0]),
        "carriers below which a finding says look": f"{checks.FEW_CARRIERS:g}",
    }
    _worst(worlds, found)
    _missed(worlds, found)
    if (folder / THRESHOLDS).is_file():
        _reasons(json.loads((folder / THRESHOLDS).read_text()), found)
    _around(worlds, found)
    _by_method(worlds, found)
    _always(worlds, found)
    return found


def _misses(share: float, error: float) -> bool:
    """The worst of many cells is low by chance, too: a miss is more than two standard errors below the aim."""
    return share + 2 * error < AIM


def _share(count: int, total: int) -> str:
    if 0 < count / total < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= count / total < 1 else f"{count / total:.0%}"


def _percent(share: float, error: float | None = None) -> str:
    if math.isnan(share):
        return ""
    return f"{100 * share:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def _worst(worlds: list[Measured], found: Found) -> None:
    rows = []
    for world in worlds:
        (cell, share, error), (_, normal, _) = [world.worst(method) for method in (DEFAULT, PLAIN)]
        rows.append([world.title, _percent(share, error), f"{cell.what}, {cell.estimator}", _percent(normal)])
    head = ["world", "default, worst cell, %", "which", "normal, worst cell, %"]
    found.table("The default at 95 %, in the worst cell of each world", head, rows)


def _missed(worlds: list[Measured], found: Found) -> None:
    rows = []
    for world in worlds:
        for cell in world.cells:
            share, error = world.coverage(cell, DEFAULT)
            if _misses(share, error):
                policies = [p for p in dict.fromkeys(row[0] for row in world.findings) if p in cell.what.split(" - ")]
                said = "; ".join(f"{p}: {world.flagged(p) or 'nothing'}" for p in policies)
                rows.append([world.title, cell.what, cell.estimator, _percent(share, error), said])
    head = ["world", "what", "estimator", "default, %", "findings, share of logs"]
    found.table("What the default does not cover, and how often a finding says so", head, rows)


def _reasons(measured: dict[str, Any], found: Found) -> None:
    """Why the default becomes careful: the coverage of normal intervals as weights become less uneven."""
    rows = [
        [
            *(f"{x['least']:g}", f"{x['rate']:.0%}", f"{x['rows']:,}", f"{x['ess']:.0f}", f"{x['large']:.1f}"),
            *(f"{x['rare']:.0f}", f"{x['large_rare']:.1f}", _percent(x["ips"]), _percent(x["snips"])),
        ]
        for x in sorted(measured["weights"], key=lambda x: (x["rate"], x["large"]))
    ]
    head = ["smallest p", "clicks", "rows", "ESS", "Σ w² / max w²", "rarer kind", "Σ w² / max w² of these"]
    found.table("Normal 95 % intervals with uneven weights", [*head, "ips, %", "snips, %"], rows)
    found.table(
        "Normal 95 % intervals with equal weights and few clicks",
        ["expected clicks", "ips, %", "snips, %"],
        [[str(x["clicks"]), _percent(x["ips"]), _percent(x["snips"])] for x in measured["clicks"]],
    )


def _around(worlds: list[Measured], found: Found) -> None:
    """Both sides of the thresholds."""
    rows = []
    for world in worlds:
        if world.name.startswith(("heavy", "few", "rare")) and "range" not in world.name:
            for what in world.whats:
                if " - " not in what and what != "common":
                    cells = [Cell(what, e) for e in ESTIMATORS]
                    normal = [_percent(world.coverage(c, PLAIN)[0]) for c in cells]
                    default = [_percent(world.coverage(c, DEFAULT)[0]) for c in cells]
                    width = f"{world.width(cells[1], DEFAULT):.2f}"
                    ends = [" / ".join(normal), " / ".join(default), width, world.methods_chosen(what)]
                    rows.append([world.title, what, *ends])
    estimators = " / ".join(ESTIMATORS)
    head = ["world", "policy", f"normal, {estimators}", f"default, {estimators}", "width, snips", "default is"]
    found.table("Normal intervals and the default around its thresholds", head, rows)


def _by_method(worlds: list[Measured], found: Found) -> None:
    """Each method over all cells that it was measured in, and its worst cell in each world."""
    rows = []
    for method in EVERY_METHOD:
        cells = [(world, cell) for world in worlds for cell in world.measured(method)]
        if cells:
            shares = sorted(world.coverage(cell, method)[0] for world, cell in cells)
            widths = sorted(width for w, c in cells if not math.isnan(width := w.width(c, method)))
            ends = [f"{widths[len(widths) // 2]:.2f}", f"{widths[-1]:.2f}"]
            worst = [_worst_of(worlds, method, users=users) for users in (False, True)]
            rows.append([method, str(len(cells)), _percent(shares[len(shares) // 2]), *worst[0], *worst[1], *ends])
    by_world = [
        [world.title, *(_percent(world.worst(m)[1]) if world.measured(m) else "" for m in EVERY_METHOD)]
        for world in worlds
    ]
    head = ["method", "cells", "middle cell, %", "worst, independent rows, %", "which", "worst, rows of users, %"]
    head += ["which", "middle width", "largest width"]
    found.table("Each method at 95 % over all cells; width relative to normal intervals", head, rows)
    found.table("Each method at 95 %, in the worst cell of each world, %", ["world", *EVERY_METHOD], by_world)


def _worst_of(worlds: list[Measured], method: str, *, users: bool) -> tuple[str, str]:
    """The worst cell of worlds with rows of users, or of those with independent rows: its coverage, and which it is."""
    some = [w for w in worlds if (WORLDS[w.name].per_user is not None) == users and w.measured(method)]
    if not some:
        return "", ""
    share, error, cell, title = min((*w.worst(method)[1:], w.worst(method)[0], w.title) for w in some)
    return _percent(share, error), f"{title}: {cell.what}, {cell.estimator}"


def _always(worlds: list[Measured], found: Found) -> None:
    rows = []
    for world in worlds:
        for cell in world.cells:
            if world.count(cell, ALWAYS):
                shares = [_percent(*world.coverage(cell, ALWAYS, level)) for level in LEVELS]
                rows.append([world.title, cell.what, cell.estimator, *shares])
    head = ["world", "what", "estimator", *(f"{level:.0%}" for level in LEVELS)]
    found.table('"anytime" after each of 32 stretches of the log, %', head, rows)
