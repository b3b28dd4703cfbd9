"""The logging policy of candidates as a conditional logit (McFadden 1974), fitted by Newton's method, by streaming.

μ̂(c|x) is proportional to exp(w . z_c + x' W z_c). The pairs are never stored: the slope and the second derivatives of
an event are Kronecker products of [1, x] with what its candidates say, so sums over events are products of matrices.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from drstream.errors import ModelError, NoEventsError, parameter
from drstream.kernels import ragged
from drstream.log import Events, Log
from drstream.log.kinds.candidates.columns import Numbered
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.kinds.candidates.reading import Dense
from drstream.log.rows import Folds
from drstream.models.passes import Passes
from drstream.models.together import Asked, Fit, alone, side_by_side
from drstream.running.execution import Workers
from drstream.shared import SharedWeights
from drstream.types import Floats

BLOCK_NUMBERS = 1 << 18  # of second derivatives of a block's events
MOST_WEIGHTS = 2_000  # their second derivatives take 32 MB
MOST_STEPS, MOST_HALVINGS = 100, 40
TOLERANCE, PRECISE_ROWS = 1e-5, 20_000  # as in `logistic_fit.py`: in standard errors of a weight
ROUNDING = 1e-13  # of a loss


class Choices(NamedTuple):
    """The solution."""

    coef: Floats  # in the order of a row of pairs
    events: int
    rewards: tuple[float, float]
    skipped: Counter[str]
    passes: int


@dataclass
class Sums:
    """Loss, slope (1 + d, m) and second derivatives ((1 + d)², m²) over some events."""

    loss: float
    slope: Floats
    bend: Floats
    events: int = 0
    rewards: tuple[float, float] = (math.inf, -math.inf)

    def merge(self, later: Sums) -> None:
        self.loss += later.loss
        self.slope += later.slope
        self.bend += later.bend
        self.events += later.events
        self.rewards = min(self.rewards[0], later.rewards[0]), max(self.rewards[1], later.rewards[1])


class SumsTask(NamedTuple):
    """What a pass adds up at some weights (1 + d, m), or (1, m) without interactions."""

    theta: Floats

    def start(self) -> Sums:
        rows, m = self.theta.shape
        return Sums(0.0, np.zeros((rows, m)), np.zeros((rows * rows, m * m)))

    def add(self, sums: Sums, block: Events) -> None:
        offered, theta = block.candidates, self.theta
        assert isinstance(offered.features, Dense)
        rows, m = theta.shape
        context = np.zeros((1, 0 if rows == 1 else rows - 1))
        products = None if rows == 1 else np.ascontiguousarray(theta[None, 1:])
        pi = np.empty(offered.count)
        SharedWeights(context, np.ascontiguousarray(theta[:1]), products, np.zeros(1)).fill(block, pi)
        logged = offered.starts[:-1] + block.action
        if ragged.softmax(offered.starts, pi) >= 0:  # the step was too long
            sums.loss = math.inf
            return
        slopes, spreads = np.empty((len(block), m)), np.empty((len(block), m * m))
        ragged.choice_slopes(offered.starts, offered.features.flat, pi, block.action, slopes, spreads)
        ones = np.ones((1, len(block)))
        x = ones if rows == 1 else np.concatenate([ones, block.features])
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is an error when all is summed up
            sums.slope += x @ slopes
            sums.bend += (x[:, None] * x[None]).reshape(rows * rows, -1) @ spreads
        with np.errstate(divide="ignore"):
            sums.loss += float(-np.log(pi[logged]).sum())
        sums.events += len(block)
        low, high = sums.rewards
        sums.rewards = min(low, float(block.reward.min())), max(high, float(block.reward.max()))


class Problem:
    """Minimises Σ -log μ̂(a|x) + penalty |w|² / 2 over the events of a log, or of all its folds but one."""

    def __init__(self, log: Log, penalty: float, interactions: bool, folds: Folds | None, workers: Workers) -> None:
        names = log.candidate_features
        if not names:
            raise ModelError("Propensity: the candidates of this log have no features, so it cannot tell them apart")
        if log.is_sparse:
            raise ModelError(
                "Propensity: on candidates, it takes dense contexts, and those of this log are sparse: name fewer of "
                f"them with {parameter('context')}"
            )
        if isinstance(names, Numbered):
            raise ModelError(
                "Propensity: on candidates, it takes dense features, and those of this log are sparse: name dense "
                f"columns with {parameter('candidates')}, or the propensities"
            )
        if interactions:
            log.contexts.refuse_nan("Propensity", ModelError)
        self.pairs = Pairs(log.n_features, tuple(names), interactions)
        self.rows = 1 + (log.n_features if interactions else 0)
        if self.rows * len(names) > MOST_WEIGHTS:
            raise ModelError(
                f"Propensity: {self.rows * len(names):,} weights are too many, at most {MOST_WEIGHTS:,}: leave out "
                "interactions, or features"
            )
        self.penalty = penalty
        reader = log.reader(context=interactions, action=True, folds=folds, candidates=True)
        self.passes = Passes(log, reader, workers, by_fold=folds is not None)

    @property
    def bytes(self) -> int:
        """About how much memory a fit takes."""
        return 4 * 8 * (self.rows * len(self.pairs.items)) ** 2

    def solve(self) -> Fit[Choices]:
        """Fit by Newton's method: in a few passes, as the problem is convex. Steps that are too long are halved."""
        m, before = len(self.pairs.items), self.passes.count
        block = max(16, BLOCK_NUMBERS // max(m * m, self.rows * self.rows))
        theta, step, best, sums = np.zeros((self.rows, m)), np.zeros((self.rows, m)), math.inf, None
        halvings = 0
        for _ in range(MOST_STEPS):
            found = yield Asked(self.passes, SumsTask(theta + step), block)
            if not found.events and found.loss < math.inf:
                raise NoEventsError("there is no event to fit Propensity on: the log, or the part of it, is empty")
            loss = found.loss + self.penalty / 2 * float(((theta + step) ** 2).sum())
            if sums is not None and not loss <= best * (1 + ROUNDING) and halvings < MOST_HALVINGS:
                step, halvings = step / 2, halvings + 1
                continue
            theta, best, sums, halvings = theta + step, loss, found, 0
            slope = (sums.slope + self.penalty * theta).reshape(-1)
            step, size = self._newton(sums.bend, slope)
            if size <= TOLERANCE * max(1.0, math.sqrt(sums.events / PRECISE_ROWS)):
                return self._solution(theta, sums, before)
        raise ModelError(
            f"Propensity did not converge in {MOST_STEPS} passes over {0 if sums is None else sums.events:,} events: a "
            "smaller C makes the problem easier, as do features of like scale"
        )

    def _newton(self, bend: Floats, slope: Floats) -> tuple[Floats, float]:
        """Return the step, and how long it is in standard errors of the weights."""
        rows, m = self.rows, len(self.pairs.items)
        whole = bend.reshape(rows, rows, m, m).swapaxes(1, 2).reshape(rows * m, rows * m)
        whole = whole + self.penalty * np.eye(rows * m)
        if not np.isfinite(whole).all():
            raise ModelError("Propensity: products of features of candidates are not finite: give smaller numbers")
        scale = 1 / np.sqrt(np.diag(whole))
        factor = scipy.linalg.cho_factor(whole * np.outer(scale, scale), lower=True)
        step = -scale * scipy.linalg.cho_solve(factor, scale * slope)
        return step.reshape(rows, m), math.sqrt(max(float(-step @ slope), 0.0))

    def _solution(self, theta: Floats, sums: Sums, before: int) -> Choices:
        coef = np.concatenate([np.zeros(self.pairs.context), theta.reshape(-1)])  # contexts alone change no choice
        return Choices(coef, sums.events, sums.rewards, self.passes.skipped or Counter(), self.passes.count - before)


def fit_choices(log: Log, penalty: float, interactions: bool, workers: Workers) -> tuple[Choices, Pairs]:
    problem = Problem(log, penalty, interactions, None, workers)
    return alone(problem.solve()), problem.pairs


def fit_choices_by_fold(
    log: Log, penalty: float, interactions: bool, folds: Folds, workers: Workers
) -> tuple[list[Choices], Pairs]:
    """Fit to all folds but one, for each fold. The fits share their passes over the log."""
    problem = Problem(log, penalty, interactions, folds, workers)
    return side_by_side([problem.solve() for _ in range(folds.count)], problem.bytes), problem.pairs
