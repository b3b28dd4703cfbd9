"""Evaluates simulated logs, and notes each interval."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from drstream.evaluation.result import Evaluation
from drstream.findings import LEVELS
from drstream.intervals import methods, z_score
from scripts.studies.coverage.world import Cell, World
from scripts.studies.trials import generator

CHUNK = 50  # logs of a task
COMPARED = 100  # logs in which all methods are compared, as some take long
USUAL = 0.95
DEFAULT, NORMAL = "default", "normal"
OTHERS = [name for name in methods.ALL if name not in (NORMAL, "cluster", "bootstrap")]
NUMBERS = ("truth", "error", "stderr", "low", "high", "width")


@dataclass
class Notes:
    """What was found in some logs of a world.

    rows      One for each interval: what is estimated, the estimator, the method, the numbers, the worst level of the
              findings about it.
    findings  In how many logs there is a finding: by level and check.
    levels    The worst level of the findings of a log.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    logs: int = 0

    def merge(self, other: Notes) -> None:
        for row in other.rows:
            row["log"] += self.logs
        self.rows += other.rows
        self.findings.update(other.findings)
        self.levels.update(other.levels)
        self.logs += other.logs


def measure(name: str, world: World, seed: int, chunk: int, count: int = CHUNK, *, others: bool = False) -> Notes:
    """Draw some logs of a world and evaluate them; by other methods, too, if the world says so."""
    notes = Notes()
    for table in world.draw(generator(seed, zlib.crc32(name.encode()), chunk), count):
        note(notes, world, world.evaluate(table))
        if others and world.bound is not None:
            known = {"interval": OTHERS, "reward_range": (0.0, 1.0), "max_weight_bound": world.bound}
            for cell in world.cells(world.evaluate(table, **known)):
                for method, (low, high) in cell.others.items():
                    _add(notes, cell, method, low, high, 0)
    return notes


def note(notes: Notes, world: World, result: Evaluation) -> None:
    found = [f for f in result.findings if f.level != LEVELS[0]]
    notes.logs += 1
    notes.findings.update({f"{f.level}: {f.check}" for f in found})
    notes.levels[max((f.level for f in found), key=LEVELS.index, default=LEVELS[0])] += 1
    for cell in world.cells(result):
        about = [f.level for f in found if f.policy is None or f.policy in cell.policies]
        level = max(map(LEVELS.index, about), default=0)
        _add(notes, cell, DEFAULT, cell.low, cell.high, level, cell.width)
        half = z_score(USUAL) * cell.stderr
        _add(notes, cell, NORMAL, cell.value - half, cell.value + half, level)


def _add(
    notes: Notes, cell: Cell, method: str, low: float, high: float, level: int, width: float | None = None
) -> None:
    about = {"what": cell.what, "estimator": cell.estimator, "method": method, "log": notes.logs}
    numbers = cell.truth, cell.error, cell.stderr, low, high, high - low if width is None else width
    notes.rows.append({**about, **dict(zip(NUMBERS, numbers, strict=True)), "level": level})
