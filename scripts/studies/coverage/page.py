"""Writes docs/coverage.md from the counts of all worlds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from drstream.evaluation import checks
from drstream.evaluation.settings import CAREFUL, CLUSTERED
from drstream.evaluation.settings import DEFAULT as PLAIN
from drstream.intervals import methods
from drstream.storage import atomic_path
from scripts.studies.coverage.measure import ALWAYS, COUNTED, DEFAULT, ESTIMATORS, GIVEN, LARGEST, LEVELS, USUAL, Count
from scripts.studies.coverage.run import THRESHOLDS
from scripts.studies.coverage.worlds import WORLDS
from scripts.studies.paper.page import wrapped
from scripts.studies.paper.rows import table

AIM = 0.93
EVERY_METHOD = (DEFAULT, *methods.ALL, GIVEN, LARGEST, COUNTED)


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

    def worst(self, method: str) -> tuple[Cell, float, float]:
        """The cell where a method covers least at 95 %."""
        cell = min((c for c in self.cells if self.count(c, method)), key=lambda c: self.coverage(c, method)[0])
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


def write(folder: Path, page: Path) -> None:
    """Write the page, with all worlds that have counts in the folder."""
    worlds = [Measured(folder / f"{name}.json") for name in WORLDS if (folder / f"{name}.json").is_file()]
    known = folder / THRESHOLDS
    found = json.loads(known.read_text()) if known.is_file() else None
    text = [
        _head(worlds),
        _summary(worlds),
        _misses(worlds),
        _rules(worlds, found),
        _always(worlds),
        _bounds(worlds),
        _defaults(worlds),
    ]
    text.append(_methods_head())
    text += [_of_world(world) for world in worlds]
    with atomic_path(page) as unfinished:
        unfinished.write_text(wrapped("\n".join(text)))


def _share(count: int, total: int) -> str:
    if 0 < count / total < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= count / total < 1 else f"{count / total:.0%}"


def _width(world: Measured, cell: Cell, method: str) -> str:
    width = world.width(cell, method)
    return "" if math.isnan(width) else f"{width:.2f}"


def _percent(share: float, error: float | None = None) -> str:
    if math.isnan(share):
        return ""
    return f"{100 * share:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")


def _head(worlds: list[Measured]) -> str:
    logs = sorted({world.logs for world in worlds})
    seeds = ", ".join(map(str, sorted({world.seed for world in worlds})))
    error = max(math.sqrt(0.95 * 0.05 / n) for n in logs)
    return f"""# How often intervals cover the truth

A 95 % interval should contain the true value in 95 of 100 logs. `scripts/coverage` simulates logs whose true values are
known, evaluates them, and counts. It writes the counts to [coverage/](coverage/), and this page. Each world has
{" or ".join(f"{n:,}" for n in logs)} logs (seed {seeds}). A coverage of 95 % then has a standard error of
{error:.1%}, and ± on this page is one standard error. `scripts/coverage --quick` takes a tenth of the logs.

Named methods get the range of the rewards, (0, 1), and the true bound on the weights. The *default* is what `evaluate`
shows without `interval=`. It gets neither of them, unless the world says so. The reward model of DR is a poor one in
all worlds. `a - logging` is the paired difference between policy a and the logging policy, and `a - b` that between two
policies. Width is the mean width relative to that of the normal interval.
"""


def _summary(worlds: list[Measured]) -> str:
    rows = []
    for world in worlds:
        cells = [world.worst(method) for method in (DEFAULT, PLAIN)]
        (cell, share, error), (_, normal, _) = cells
        shown = f"**{_percent(share, error)}**" if share + 2 * error < AIM else _percent(share, error)
        rows.append([world.title, shown, f"{cell.what}, {cell.estimator}", _percent(normal)])
    head = ["world", "default, worst cell, %", "which", "normal, worst cell, %"]
    found = [world.coverage(cell, DEFAULT) for world in worlds for cell in world.cells]
    shares = [(share < AIM, share + 2 * error < AIM) for share, error in found]
    return f"""## The default at 95 %, in the worst cell of each world

The aim is at least {AIM:.0%} in every cell: for every policy, difference and estimator. The worst of many cells is low
by chance, too. So a cell counts as a miss, in bold, if it lies more than two standard errors below {AIM:.0%}. Of
{len(shares)} cells, {sum(low for low, _ in shares)} lie below {AIM:.0%} at all, and {sum(miss for _, miss in shares)}
are misses.

{table(head, rows)}
"""


def _misses(worlds: list[Measured]) -> str:
    rows = []
    for world in worlds:
        for cell in world.cells:
            share, error = world.coverage(cell, DEFAULT)
            if share + 2 * error < AIM:
                policies = [p for p in dict.fromkeys(row[0] for row in world.findings) if p in cell.what.split(" - ")]
                said = "; ".join(f"{p}: {world.flagged(p) or 'nothing'}" for p in policies)
                rows.append([world.title, cell.what, cell.estimator, _percent(share, error), said])
    head = ["world", "what", "estimator", "default, %", "findings, share of logs"]
    shown = table(head, rows) if rows else "None."
    return f"""## What the default does not cover

These are the cells that miss the aim, and how often the result says that its interval may be wrong.

{shown}
"""


def _rules(worlds: list[Measured], found: dict[str, Any] | None) -> str:
    return f"""## How the default chooses

Without `cluster=`, the default is "{PLAIN}". It changes to "{CAREFUL}" for a policy, and for its differences, if one of
these rules holds. The thresholds are constants of `drstream/evaluation/checks.py`. They were chosen on logs of
another seed. The form of the gamma interval was settled after a look at the first 100 logs of each world on this page.
So the page is no fresh test of it: these 100 of the 1,000 logs were seen before.

| rule | threshold |
|---|---|
| Σ w² / max w²: so many events of the largest weight would have the same sum of squares | < {checks.FEW_LARGE:g} |
| effective number of events with a positive reward, or without one if rewards are clicks | < {checks.FEW_REWARDS:g} |
| Σ w² / max w² with the squares of the rarer kind of events only | < {checks.FEW_LARGE_REWARDS:g} |

With `cluster=`, the default is "{CLUSTERED}". Its degrees of freedom are the effective number of clusters, minus one.
"{COUNTED}" in the tables below has the number of all clusters instead. It changes to "{CAREFUL}", with clusters in the
place of events, if a few clusters among all decide. This is so if Σ W² / max W² over clusters is below
{checks.FEW_LARGE_CLUSTERS:g}, and below a quarter of the effective number of clusters. It is also so if fewer than
{checks.FEW_REWARDS:g} effective clusters, and fewer than half of all, have events of the rarer kind.

If no method that covers is known, as for continuous rewards without `reward_range=`, the result says so.

{_measured_reasons(found)}
"{CAREFUL}" without a bound on the weights is wide, and covers nearly always. `max_weight_bound=` makes it narrower: the
tables of named methods below have the bound.

{_around(worlds)}
"""


def _measured_reasons(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    rows = [
        [
            *(f"{x['least']:g}", f"{x['rate']:.0%}", f"{x['rows']:,}", f"{x['ess']:.0f}", f"{x['large']:.1f}"),
            *(f"{x['rare']:.0f}", f"{x['large_rare']:.1f}", _percent(x["ips"]), _percent(x["snips"])),
        ]
        for x in sorted(found["weights"], key=lambda x: (x["rate"], x["large"]))
    ]
    head = ["smallest p", "clicks", "rows", "ESS", "Σ w² / max w²", "rarer kind", "Σ w² / max w² of these"]
    weights = table([*head, "ips, %", "snips, %"], rows)
    clicks = table(
        ["expected clicks", "ips, %", "snips, %"],
        [[str(x["clicks"]), _percent(x["ips"]), _percent(x["snips"])] for x in found["clicks"]],
    )
    logs = found["logs"]
    return f"""Why these rules: the coverage of normal 95 % intervals as weights become less uneven, over {logs:,} logs
(standard error {math.sqrt(0.05 * 0.95 / logs):.1%}), with medians of what the rules look at. Rows are ordered by
Σ w² / max w². With 35 % clicks, the coverage of IPS has nearly the same order, whatever the smallest propensity. It
does not have the order of the effective sample size (ESS). With 90 % clicks, non-clicks are what SNIPS lacks.

{weights}

The same with equal weights and few clicks, over {10 * logs:,} logs:

{clicks}
"""


def _around(worlds: list[Measured]) -> str:
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
    return table(head, rows)


def _always(worlds: list[Measured]) -> str:
    rows = []
    for world in worlds:
        for cell in world.cells:
            if world.count(cell, ALWAYS):
                shares = [_percent(*world.coverage(cell, ALWAYS, level)) for level in LEVELS]
                rows.append([world.title, cell.what, cell.estimator, *shares, _width(world, cell, "anytime")])
    head = ["world", "what", "estimator", *(f"{level:.0%}" for level in LEVELS), "width at the end, 95 %"]
    return f"""## "anytime" at all times at once

The logging policy learns while it logs, and records exact propensities. An interval counts as covering if it contains
the truth after each of 32 stretches of the log.

{table(head, rows)}
"""


def _bounds(worlds: list[Measured]) -> str:
    rows = []
    for world in worlds:
        for cell in world.cells:
            if cell.estimator != "snips" and world.count(cell, GIVEN):
                shares = [" / ".join(_percent(world.coverage(cell, GIVEN, level)[0]) for level in LEVELS)]
                shares += [_percent(world.coverage(cell, m)[0]) for m in (LARGEST, "freedman", "bernstein", PLAIN)]
                widths = [_width(world, cell, m) for m in (GIVEN, LARGEST, "freedman", "bernstein")]
                rows.append([world.title, cell.what, cell.estimator, *shares, *widths])
    head = ["world", "what", "estimator", "given, 90 / 95 / 99 %", "largest", "measured", "bernstein", "normal"]
    head += [f"width, {name}" for name in ("given", "largest", "measured", "bernstein")]
    return f"""## Freedman's bound, and what a guarantee costs

"freedman" is the bound of Theorem 3.9 in Freedman's own form. Its coverage is guaranteed if all constants are given.
"Given" has the true constants of the world. "Largest" has the largest possible ones, which a user knows who knows only
the range of rewards and the largest weight. "Measured" has constants from the log, and is no guarantee. Coverage is at
95 %, and at 90 and 99 % for "given". Worlds of users are left out, because none of these methods is about clusters.

{table(head, rows)}
"""


def _defaults(worlds: list[Measured]) -> str:
    rows = []
    for world in worlds:
        for what in world.whats:
            cells = [Cell(what, e) for e in ESTIMATORS]
            shares = [f"{_percent(*world.coverage(c, DEFAULT))} ({world.width(c, DEFAULT):.2f})" for c in cells]
            rows.append([world.title, what, *shares, world.methods_chosen(what), world.flagged(what)])
    head = ["world", "what", *(f"{e}, % (width)" for e in ESTIMATORS), "default is", "findings"]
    return f"""## The default at 95 %, in all cells

{table(head, rows)}
"""


def _methods_head() -> str:
    return f"""## All methods

Cells show the coverage at 90, 95 and 99 %, in percent, and the width at 95 % in parentheses. Cells with one coverage
are about 95 %. Coverage at 90 and 99 %, and that of t, bootstrap, bernstein, freedman and anytime, is from the first
200 logs: its standard error is 2.1 % at 90 %, 1.5 % at 95 % and 0.7 % at 99 %. For logging policies that learn, it is
from all logs. "bernstein", "freedman" and "anytime" are about the mean score of IPS or DR also where the estimator is
SNIPS. "freedman" measures its constants, "{GIVEN}" has the true ones, and "{LARGEST}" the largest possible ones.
Methods other than "cluster", "bootstrap", "likelihood" and "gamma" take all rows as independent.
"""


def _of_world(world: Measured) -> str:
    rows = []
    for what in world.whats:
        for method in EVERY_METHOD:
            cells = [Cell(what, e) for e in ESTIMATORS]
            if any(world.count(c, method) for c in cells):
                rows.append([what, method, *(_three(world, c, method) for c in cells)])
    return f"### {world.title[:1].upper()}{world.title[1:]}\n\n{table(['what', 'method', *ESTIMATORS], rows)}\n"


def _three(world: Measured, cell: Cell, method: str) -> str:
    shares = [world.coverage(cell, method, level) for level in LEVELS]
    known = [(share, level) for share, level in zip(shares, LEVELS, strict=True) if not math.isnan(share[0])]
    shown = " / ".join(_percent(*share) if level == USUAL else _percent(share[0]) for share, level in known)
    count = world.count(cell, method)
    undefined = f", undefined in {count.undefined:,}" if count is not None and count.undefined else ""
    return f"{shown} ({world.width(cell, method):.2f}{undefined})"
