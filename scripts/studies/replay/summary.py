"""Makes the tables of the study from its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.replaying.grid import PRIOR
from drstream.replaying.options import GRID
from scripts.studies.replay.online import MANY_RUNS, RUNS
from scripts.studies.replay.simulating import AUTO
from scripts.studies.replay.worlds import ACTIONS, EXPLORATION, HORIZONS, LOGGERS
from scripts.studies.results import Found

Key = tuple[int, int, str, str]  # actions, horizon, logger, learner
LEAST, AIM = 0.90, 0.93  # coverage of a cell and of all


class Runs:
    """Runs of one method in some cells, beside the truth."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.value, self.low, self.high, self.truth, self.by_step = (
            np.array([math.nan if row[name] is None else row[name] for row in rows], float)
            for name in ("value", "low", "high", "truth", "by_step")
        )
        self.replicates = np.array([row["replicates"] for row in rows], float)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def known(self) -> int:
        """Number of runs that have an interval."""
        return int((self.low == self.low).sum())

    @property
    def covered(self) -> int:
        return int(((self.low <= self.truth) & (self.truth <= self.high)).sum())

    @property
    def coverage(self) -> float:
        return self.covered / self.known if self.known else math.nan

    @property
    def coverage_error(self) -> float:
        """Standard error of the coverage, by the share (k + 1) / (n + 2), so that it is never 0."""
        near = (self.covered + 1) / (self.known + 2)
        return math.sqrt(near * (1 - near) / max(self.known, 1))

    def error(self, values: NDArray[np.float64]) -> float:
        """Root mean squared error, relative to the truth."""
        return math.sqrt(_known(np.mean, (values / self.truth - 1) ** 2))

    @property
    def rmse(self) -> float:
        return self.error(self.value)

    @property
    def bias(self) -> float:
        return _known(np.mean, self.value / self.truth - 1)

    @property
    def width(self) -> float:
        """Median half width, relative to the truth."""
        return _known(np.median, (self.high - self.low) / 2 / self.truth)


def _known(statistic: Callable[[NDArray[np.float64]], Any], values: NDArray[np.float64]) -> float:
    """A statistic of the values that are numbers."""
    known = values[~np.isnan(values)]
    return float(statistic(known)) if len(known) else math.nan


class Study:
    def __init__(self, folder: Path) -> None:
        truths = pq.read_table(folder / "truths.parquet").to_pylist()
        self.truths = {(t["actions"], t["horizon"], t["learner"]): t for t in truths}
        self.rows: dict[tuple[str, Key], list[dict[str, Any]]] = {}
        for row in pq.read_table(folder / "results.parquet").to_pylist():
            row["truth"] = self.truths[row["actions"], row["horizon"], row["learner"]]["truth"]
            key = row["actions"], row["horizon"], row["logger"], row["learner"]
            self.rows.setdefault((row["method"], key), []).append(row)
        self.cells = [key for method, key in self.rows if method == AUTO]
        self.methods = list(dict.fromkeys(method for method, _ in self.rows))
        self.learners = list(dict.fromkeys(key[3] for key in self.cells))

    def runs(self, method: str, cells: Iterable[Key], logs: int | None = None) -> Runs:
        found = [row for cell in cells for row in self.rows.get((method, cell), ())]
        return Runs([row for row in found if logs is None or row["log"] < logs])

    def where(self, **wanted: Any) -> list[Key]:
        names = "actions", "horizon", "logger", "learner"
        return [c for c in self.cells if all(dict(zip(names, c, strict=True))[k] == v for k, v in wanted.items())]

    def logs(self, method: str) -> int:
        """Number of logs of a cell that the method was tried on."""
        return max((row["log"] for (m, _), rows in self.rows.items() if m == method for row in rows), default=-1) + 1


def summary(folder: Path) -> Found:
    study, found = Study(folder), Found()
    everything = study.runs(AUTO, study.cells)
    logs = study.logs(AUTO)
    chance = sum(math.comb(logs, k) * 0.95**k * 0.05 ** (logs - k) for k in range(math.ceil(LEAST * logs)))
    found.figures = {
        "actions K": ", ".join(map(str, ACTIONS)),
        "steps T": ", ".join(f"{t:,}" for t in HORIZONS),
        "ε of the ε-greedy logging policy": f"{EXPLORATION:g}",
        "online runs of a learner, and of one in Python": f"{MANY_RUNS:,}, {RUNS['Python']:,}",
        "cells": f"{len(study.cells)}",
        "logs of a cell": f"{logs}",
        "runs": f"{everything.known:,}",
        "level, %": "95",
        "coverage of the default, %": f"{_percent(everything.coverage)} ± {_percent(everything.coverage_error)}",
        "aim for all cells, and for each": f"{AIM:.0%}, {LEAST:.0%}",
        "cells below the aim that chance alone gives": f"{chance * len(study.cells):.0f}",
        "targets of the default": ", ".join(f"{target:g}" for target in GRID),
        "prior of the slope of the bias, in ranges of the learning curve": f"{PRIOR:g}",
    }
    _overall(study, found)
    _cells(study, found)
    _errors(study, found)
    _worst(study, found)
    _averages(study, found)
    return found


def _percent(value: float, digits: int = 1) -> str:
    return "" if value != value else f"{100 * value:.{digits}f}"


def _overall(study: Study, found: Found) -> None:
    rows = []
    for method in study.methods:
        runs = study.runs(method, study.cells)
        cells = [study.runs(method, [cell]) for cell in study.cells]
        below = sum(one.coverage < LEAST for one in cells if one.known)
        errors = [(one.rmse, abs(one.bias)) for one in cells if len(one)]
        rmse, bias = (_known(np.mean, np.array(column)) for column in zip(*errors, strict=True))
        rows.append(
            [
                *(method, f"{_percent(runs.coverage)} ± {_percent(runs.coverage_error)}", str(below)),
                *(_percent(runs.width), f"{runs.replicates.mean():.0f}", str(len(runs) - runs.known)),
                *(_percent(rmse, 2), _percent(bias, 2)),
            ]
        )
    head = ["method", "coverage, %", f"cells below {LEAST:.0%}", "half width, %", "replicates", "no interval"]
    found.table("Each method over all cells, in % of the truth", [*head, "rmse, %", "size of the bias, %"], rows)


def _cells(study: Study, found: Found) -> None:
    by = [
        ("learner", study.learners, "logger", LOGGERS),
        ("actions", ACTIONS, "horizon", HORIZONS),
        ("learner", study.learners, "horizon", HORIZONS),
    ]
    for name, values, across, others in by:
        rows = []
        for value in values:
            runs = [study.runs(AUTO, study.where(**{name: value, across: other})) for other in others]
            rows.append([str(value), *(f"{_percent(one.coverage)} ± {_percent(one.coverage_error)}" for one in runs)])
        title = f"Coverage of the default by {name} and {across}, %"
        found.table(title, [name, *(str(other) for other in others)], rows)


def _errors(study: Study, found: Found) -> None:
    """How the default's error compares with the best choice in hindsight, in each cell."""
    targets = [m for m in study.methods if m.startswith("bias")]
    levels = [m for m in study.methods if m.startswith("q")]
    rows = []
    for name, methods in (("target of the grid", targets), ("fixed (q, c_max)", levels)):
        ratios = [float(row[-1]) for row in _beside(study, methods)]
        if ratios:
            values = np.array(ratios)
            rows.append([f"best {name}", str(len(values)), *(f"{f(values):.2f}" for f in (np.mean, np.median, np.max))])
    head = ["compared with", "cells", "mean", "median", "largest"]
    found.table("The default's rmse over that of the choice that is best in hindsight", head, rows)
    behind = sorted(_beside(study, levels), key=lambda row: -float(row[-1]))[:6]
    head = ["K", "T", "logging policy", "learner", "default, %", "best, %", "ratio"]
    found.table("Cells where the default is farthest behind the best (q, c_max)", head, behind)


def _beside(study: Study, methods: list[str]) -> list[list[str]]:
    """The rmse of the default in each cell, that of the best of some methods, and their ratio."""
    logs = min((study.logs(m) for m in methods), default=0)
    found = []
    for cell in study.cells:
        errors = [one.rmse for one in (study.runs(m, [cell], logs) for m in methods) if len(one) == logs]
        if errors:
            ours = study.runs(AUTO, [cell], logs).rmse
            found.append([*map(str, cell), _percent(ours), _percent(min(errors)), f"{ours / min(errors):.2f}"])
    return found


def _worst(study: Study, found: Found) -> None:
    runs = [(study.runs(AUTO, [cell]), cell) for cell in study.cells]
    runs = sorted((one for one in runs if one[0].known), key=lambda one: one[0].coverage)
    rows = [
        [*map(str, cell), *map(_percent, (one.coverage, one.bias, one.rmse)), f"{one.replicates.mean():.1f}"]
        for one, cell in [*runs[:12], runs[len(runs) // 2]]
    ]
    head = ["K", "T", "logging policy", "learner", "coverage, %", "bias, %", "rmse, %", "replicates"]
    found.table("The cells in which the default covers least, and the middle one", head, rows)


def _averages(study: Study, found: Found) -> None:
    rows = []
    for learner in study.learners:
        for horizon in HORIZONS:
            runs = study.runs(AUTO, study.where(learner=learner, horizon=horizon))
            rows.append([learner, f"{horizon:,}", _percent(runs.rmse, 2), _percent(runs.error(runs.by_step), 2)])
    found.table("rmse of both averages, in % of the truth", ["learner", "T", "V/C", "by step"], rows)
