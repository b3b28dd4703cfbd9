"""Writes docs/replay_study.md from the results of the study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drstream.replaying.grid import PRIOR
from drstream.replaying.options import GRID
from drstream.storage import atomic_path
from scripts.studies.paper.page import wrapped
from scripts.studies.paper.rows import table as plain_table
from scripts.studies.replay.run import AUTO
from scripts.studies.replay.worlds import ACTIONS, EXPLORATION, HORIZONS, LOGGERS

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
        return float(np.sqrt(np.nanmean((values / self.truth - 1) ** 2)))

    @property
    def rmse(self) -> float:
        return self.error(self.value)

    @property
    def bias(self) -> float:
        return float(np.nanmean(self.value / self.truth - 1))

    @property
    def width(self) -> float:
        """Median half width, relative to the truth."""
        return float(np.nanmedian((self.high - self.low) / 2 / self.truth))


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


def write(folder: Path, page: Path) -> None:
    study = Study(folder)
    sections = [_head(study), _overall(study), _cells(study), _errors(study), _worst(study), _averages(study)]
    with atomic_path(page) as unfinished:
        unfinished.write_text(wrapped("\n\n".join(sections)))


def table(heads: list[str], rows: list[list[Any]]) -> str:
    return plain_table(heads, [[str(cell) for cell in row] for row in rows])


def _percent(value: float, digits: int = 1) -> str:
    return "" if value != value else f"{100 * value:.{digits}f}"


def _head(study: Study) -> str:
    logs, targets = study.logs(AUTO), ", ".join(f"{target:g}" for target in GRID)
    loggers = "uniform, softmax with a floor of 0.2/K, and ε-greedy with "
    return f"""# How far replay is from true online runs

`scripts/replays` simulates logs of worlds whose truth is known and writes this page. Every number on it comes from the
rows in [replay_study/](replay_study/). The truth is the mean reward per step of true online runs of the same learner
(2,000 runs; 500 for the Python policy): users arrive, the learner chooses, the world rewards, the learner learns.

There are K = {", ".join(map(str, ACTIONS))} actions, T = {", ".join(f"{t:,}" for t in HORIZONS)} steps, and three
logging policies: {loggers}ε = {EXPLORATION:g}. The learners are
{", ".join(study.learners)}, with their default parameters. ("Python" is a policy in plain Python, without contexts.) A
log has 10 K T rows, but at least 20,000 and at most 300,000. A fifth of it fits a ridge regression, and the rest is
replayed. Each cell, that is each K, T, logging policy and learner, has {logs} logs. Intervals are those of 95 %.

The default, `bias="auto"`, tries the targets {targets} of the bias mass. These targets, and the prior of the slope of
the bias ({PRIOR:g} ranges of the learning curve), were chosen on other worlds and logs than those of this page."""


def _overall(study: Study) -> str:
    rows = []
    for method in study.methods:
        found = study.runs(method, study.cells)
        cells = [study.runs(method, [cell]) for cell in study.cells]
        below = sum(one.coverage < LEAST for one in cells if one.known)
        about = [f"{_percent(found.coverage)} ± {_percent(found.coverage_error)}", below, _percent(found.width)]
        about += [f"{found.replicates.mean():.0f}", len(found) - found.known]
        rows.append([f"**{method}**" if method == AUTO else method, *about])
    everything = study.runs(AUTO, study.cells)
    verdict = "at least" if everything.coverage >= AIM else "**below**"
    heads = [
        "method",
        "coverage, %",
        f"cells below {LEAST:.0%}",
        "half width, % of the truth",
        "replicates",
        "no interval",
    ]
    return f"""## Coverage

Over all cells, the default interval contains the truth in {_percent(everything.coverage)} ±
{_percent(everything.coverage_error)} % of {everything.known:,} runs, {verdict} the {AIM:.0%} that we aim at. We also
aim at {LEAST:.0%} in every cell; the [worst cells](#the-worst-cells) are below. The half width is the median. "No
interval" counts runs with fewer than two replicates, which show none. The rows of q have fewer logs, leave out the
Python policy, and leave out logs on which no learner completed a replicate.

{table(heads, rows)}"""


def _cells(study: Study) -> str:
    by = [
        ("learner", study.learners, "logger", LOGGERS),
        ("actions", ACTIONS, "horizon", HORIZONS),
        ("learner", study.learners, "horizon", HORIZONS),
    ]
    text = []
    for name, values, across, others in by:
        rows = []
        for value in values:
            found = [study.runs(AUTO, study.where(**{name: value, across: other})) for other in others]
            rows.append([value, *(f"{_percent(one.coverage)} ± {_percent(one.coverage_error)}" for one in found)])
        text.append(table([f"{name} \\ {across}", *(str(other) for other in others)], rows))
    joined = "\n\n".join(text)
    return f"""## Coverage of the default by learner, logging policy, K and T

{joined}"""


def _errors(study: Study) -> str:
    """How the default's error compares with the best choice in hindsight, in each cell."""
    targets = [m for m in study.methods if m.startswith("bias")]
    levels = [m for m in study.methods if m.startswith("q")]
    rows = []
    for name, methods in (("target of the grid", targets), ("fixed (q, c_max)", levels)):
        logs = min((study.logs(m) for m in methods), default=0)
        ratios = []
        for cell in study.cells:
            found = [study.runs(m, [cell], logs) for m in methods]
            errors = [one.rmse for one in found if len(one) == logs]
            if errors:
                ratios.append(study.runs(AUTO, [cell], logs).rmse / min(errors))
        if ratios:
            values = np.array(ratios)
            rows.append(
                [f"best {name}", len(values), f"{values.mean():.2f}", f"{np.median(values):.2f}", f"{values.max():.2f}"]
            )
    single = []
    for method in [AUTO, *targets, *levels]:
        runs = [study.runs(method, [cell]) for cell in study.cells]
        errors = [(one.rmse, one.bias) for one in runs if len(one)]
        known = np.array([e for e in errors if e[0] == e[0]])
        single.append([method, _percent(float(known[:, 0].mean()), 2), _percent(float(np.abs(known[:, 1]).mean()), 2)])
    return f"""## Error

The root mean squared error of the default in a cell, divided by that of the choice that is best in that cell in
hindsight. Below 1, the default is better than every single choice, because it pools several simulations.

{table(["compared with", "cells", "mean", "median", "largest"], rows)}

Means over cells, in percent of the truth. The bias of a cell is measured on few logs, so its mean size is not 0 for an
unbiased method.

{table(["method", "rmse, %", "size of the bias, %"], single)}"""


def _worst(study: Study) -> str:
    found = [(study.runs(AUTO, [cell]), cell) for cell in study.cells]
    found = sorted((one for one in found if one[0].known), key=lambda one: one[0].coverage)
    logs = study.logs(AUTO)
    chance = sum(math.comb(logs, k) * 0.95**k * 0.05 ** (logs - k) for k in range(math.ceil(LEAST * logs)))
    rows = []
    for one, cell in found[:12]:
        rows.append(
            [*cell, _percent(one.coverage), _percent(one.bias), _percent(one.rmse), f"{one.replicates.mean():.1f}"]
        )
    return f"""## The worst cells

The twelve cells in which the default covers least. With {logs} logs, a cell whose true coverage is 95 % shows less than
{LEAST:.0%} with probability {chance:.2f}, so about {chance * len(study.cells):.0f} of {len(study.cells)} cells would.

{table(["K", "T", "logging policy", "learner", "coverage, %", "bias, %", "rmse, %", "replicates"], rows)}

The six cells whose error is the largest compared with the best fixed (q, c_max) of the same cell in hindsight:

{table(["K", "T", "logging policy", "learner", "default, %", "best, %", "ratio"], _behind(study))}"""


def _behind(study: Study) -> list[list[Any]]:
    levels = [m for m in study.methods if m.startswith("q")]
    logs = min((study.logs(m) for m in levels), default=0)
    found = []
    for cell in study.cells:
        errors = [one.rmse for one in (study.runs(m, [cell], logs) for m in levels) if len(one) == logs]
        if errors:
            ours = study.runs(AUTO, [cell], logs).rmse
            found.append([*cell, _percent(ours), _percent(min(errors)), f"{ours / min(errors):.2f}"])
    return sorted(found, key=lambda row: -float(row[-1]))[:6]


def _averages(study: Study) -> str:
    rows = []
    for learner in study.learners:
        for horizon in HORIZONS:
            found = study.runs(AUTO, study.where(learner=learner, horizon=horizon))
            rows.append([learner, f"{horizon:,}", _percent(found.rmse, 2), _percent(found.error(found.by_step), 2)])
    return f"""## Which average

`value` is V/C, the mean over replicates. `by_step` is the mean over t of the pooled reward of step t. The root mean
squared error of both, in percent of the truth:

{table(["learner", "T", "V/C", "by step"], rows)}"""
