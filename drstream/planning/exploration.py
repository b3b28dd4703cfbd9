"""How the variance of an estimate depends on the logging policy: one pass over a sample.

An estimate's influence function is ψ = A + w B. A depends on the context alone, and w B is importance-weighted. If the
logging policy had mixed in a share e of uniform exploration, μ' = (1 - e) μ + e / K, the variance would be (with
eligible sets, K is the size of the set)

    E_μ'[(A + (π/μ') B)²] = E_μ[A² + 2 A w B] + E_μ[(w B)² μ/μ']

because E_μ'[A²] = E_μ[A²] and E_μ'[A w' B] = E_μ[A w B]. All of it can be measured on the log as it is. K is the number
of actions or, in a log of candidates, that of an event's candidates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from drstream.evaluation.estimators import ALL, PREDICTED, Estimator
from drstream.evaluation.observe import observer_of
from drstream.evaluation.plan import Plan
from drstream.evaluation.statistics import Statistics
from drstream.log import Log
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.types import Floats

SHARES = np.concatenate([[0.0], np.logspace(-4, 0, 97)])  # of exploration
PIECE = 4096  # events at a time
HALF = 0.25  # of the variance: half of the width


@dataclass(frozen=True)
class Influence:
    """The influence function of an estimate, as coefficients of the terms (variables,) that a pass computes."""

    policy: str
    estimator: str
    plain: bool  # the weights are ν/p, or there are none
    weighted: Floats  # of w B
    context: Floats  # of A
    constant: float  # of A


@dataclass
class ExplorationSums:
    """Statistics over events, for each influence function."""

    count: int
    squares: Floats  # (I,) Σ ψ²
    fourth: Floats  # (I,) Σ ψ⁴
    unmoved: Floats  # (I,) Σ A² + 2 A w B
    moved: Floats  # (I, E) Σ (w B)² μ/μ' for each share of exploration

    @classmethod
    def create(cls, size: int) -> ExplorationSums:
        squares, fourth, unmoved = np.zeros((3, size))
        return cls(0, squares, fourth, unmoved, np.zeros((size, len(SHARES))))

    def add(self, a: Floats, weighted: Floats, ratio: Floats) -> None:
        """Add events, given A and w B (I, n), and μ/μ' (n, E)."""
        squares = (a + weighted) ** 2
        self.count += a.shape[1]
        self.squares += squares.sum(axis=1)
        self.fourth += (squares**2).sum(axis=1)
        self.unmoved += (a * a + 2 * a * weighted).sum(axis=1)
        self.moved += weighted**2 @ ratio

    def merge(self, other: ExplorationSums) -> None:
        self.count += other.count
        for name in ("squares", "fourth", "unmoved", "moved"):
            getattr(self, name)[...] += getattr(other, name)


@dataclass(frozen=True)
class Explored:
    """What a sample says about the variance of one estimate."""

    error: float  # relative standard error of the width that is forecast
    share: float  # smallest share of exploration that halves the width; NaN if none does
    best: float  # smallest width with any share, as a part of the width without exploration
    best_share: float


UNKNOWN = Explored(math.nan, math.nan, math.nan, math.nan)


def influences(plan: Plan, sums: Statistics, estimators: Sequence[Estimator]) -> list[Influence]:
    """The influence functions of all estimates."""
    found = []
    columns, first = plan.job.terms.columns, plan.job.first
    for j, policy in enumerate(plan.job.policies):
        start = first + j * len(columns)
        for estimator in estimators:
            statistic = sums.value(j, estimator)
            terms = next(terms for terms in sums.groups if set(estimator.columns) <= set(terms))
            gradient = dict(zip(terms, statistic.gradient[sums.start(j, terms) :], strict=False))
            weighted, context = np.zeros((2, plan.job.variables))
            for term in estimator.terms:
                slope, place = gradient[estimator.column(term)], start + columns.index(estimator.column(term))
                if term == PREDICTED:
                    context[place] += slope
                else:
                    weighted[place] += slope
                if term == "robust":  # r̂(x, ν) + w (r - r̂(x, a))
                    predicted = start + columns.index(PREDICTED)
                    weighted[predicted] -= slope
                    context[predicted] += slope
            constant = -float(statistic.gradient @ statistic.means)
            plain = estimator.weight is None or estimator.weight.plain
            found.append(Influence(policy.name, estimator.name, plain, weighted, context, constant))
    return found


def for_pass(chosen: Sequence[Estimator]) -> list[Estimator]:
    """What a pass must compute for these estimators: perhaps r̂(x, ν), too."""
    return list(dict.fromkeys([*chosen, ALL["dm"]] if any(e.needs_model for e in chosen) else chosen))


def explore(log: Log, plan: Plan, found: Sequence[Influence], workers: Workers) -> dict[tuple[str, str], Explored]:
    """Measure the variance with each share of exploration, by policy and estimator."""
    total = ExplorationSums.create(len(found))
    task = partial(_consume, plan, list(found), 0 if log.has_candidates else log.n_actions)
    for spread in execution.run(task, log, plan.reader.columns, workers):
        total.merge(spread)
    known = log.roles.eligible is None or plan.reader.with_sets  # how many actions an event could choose from
    return {(one.policy, one.estimator): explored(total, i, one.plain and known) for i, one in enumerate(found)}


def _consume(plan: Plan, found: list[Influence], actions: int, part: Part) -> ExplorationSums:
    spread, observer = ExplorationSums.create(len(found)), observer_of(plan)
    weighted, context = (np.array([getattr(one, name) for one in found]) for name in ("weighted", "context"))
    constants = np.array([[one.constant] for one in found])
    for batch in plan.reader.batches(part, Counter()):
        events = observer.in_order(batch)
        variables = observer.variables(events)
        p = observer.row("p", events)[:, None]
        for block in events.blocks(PIECE):
            execution.raise_if_stopped()
            place = slice(block.start, block.stop)
            choices = actions if block.eligible is None else block.eligible.sizes[:, None]
            if len(events.candidates):
                choices = np.diff(block.candidates.starts)[:, None]
            ratio = p[place] / ((1 - SHARES) * p[place] + SHARES / choices)
            terms = variables[:, place]
            spread.add(context @ terms + constants, weighted @ terms, ratio)
    return spread


def explored(spread: ExplorationSums, i: int, plain: bool) -> Explored:
    """What the sums say about one influence function. With changed weights, only the error of the width is known."""
    n, squares = spread.count, float(spread.squares[i])
    if not squares > 0 or not math.isfinite(squares):
        return UNKNOWN
    error = math.sqrt(max(float(spread.fourth[i]) * n / squares**2 - 1, 0.0) / n) / 2
    if not plain:
        return Explored(error, math.nan, math.nan, math.nan)
    variance = (spread.unmoved[i] + spread.moved[i]) / squares  # 1 for a share of 0
    best = int(np.argmin(variance))
    share = math.nan
    if variance[best] <= HALF:
        after = int(np.argmax(variance <= HALF))
        before = after - 1
        part = (variance[before] - HALF) / (variance[before] - variance[after])
        share = float(SHARES[before] + part * (SHARES[after] - SHARES[before]))
    return Explored(error, share, math.sqrt(max(float(variance[best]), 0.0)), float(SHARES[best]))
