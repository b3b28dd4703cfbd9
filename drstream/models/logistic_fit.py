"""Logistic regressions by streaming: L-BFGS in coordinates in which the problem is round.

A sample of the log that fits into memory is solved first. The passes over the whole log start from its solution. The
second derivatives of the sample's problem give the coordinates. In them, the second derivatives of the whole problem
are nearly the identity, so that about six passes are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from drstream import sampling
from drstream.buffers import Weights
from drstream.errors import ModelError, NoEventsError
from drstream.kernels import logistic, sparse
from drstream.kernels.scores import softmax
from drstream.log import Events, Log, as_log
from drstream.log.rows import Folds, Split
from drstream.models.lbfgs import Preconditioner, lbfgs
from drstream.models.passes import Passes
from drstream.models.together import Asked, Fit, alone, side_by_side
from drstream.models.trained import Trained, for_matrices
from drstream.parameters import number
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.types import Floats, Ints

SAMPLE_ROWS, SAMPLE_BYTES = 1 << 16, 1 << 27  # size of the sample that is solved first
SAMPLE_SEED = 0x5851F42D4C957F2D  # differs from the seeds of splits
BLOCK_BYTES = 1 << 19  # of a block's features and scores, which then stay in cache
MOST_CURVATURE = 1 << 24  # second derivatives; with more, or sparse contexts, only their diagonal is used
MOST_PASSES, PATIENCE = 1000, 50  # most passes in all, and in the same coordinates
TOLERANCE = 1e-5  # of the gradient in round coordinates, where 1 is about one standard error of a parameter
PRECISE_ROWS = 20_000  # with more rows, TOLERANCE grows with their root, as standard errors of predictions fall
ARRAYS = 35  # of K x (d + 1) numbers that a fit holds: the memory of L-BFGS, and gradients of parts under way
NEVER = -1e100  # the intercept of an action that was never logged: its probability is 0


class Form(NamedTuple):
    """The kind of regression: of the reward, for each action (binary), or of the action (choice)."""

    choice: bool
    actions: int
    features: int
    intercept: bool
    penalty: float  # factor of |w|² / 2, which is added to the sum of losses
    unlogged: tuple[int, ...]  # actions without events
    sparse: bool

    def plain(self, theta: Floats) -> Floats:
        """For a choice, subtract the mean over the logged actions, in place. Return theta.

        A number added to all scores changes no probability. Without this step, theta could drift along it.
        """
        if self.choice:
            logged = np.delete(np.arange(self.actions), self.unlogged)
            theta[logged] -= theta[logged].mean(axis=0)
        return theta

    @property
    def block_rows(self) -> int:
        return max(256, BLOCK_BYTES // (8 * ((0 if self.sparse else self.features) + self.actions)))


@dataclass
class Slope:
    """Loss of some events, and its gradient with respect to weights (d, K) and intercepts (K)."""

    losses: list[float]  # by part
    gradient: Floats
    intercepts: Floats
    events: int = 0

    @property
    def loss(self) -> float:
        return math.fsum(self.losses)

    def merge(self, later: Slope) -> None:
        self.losses += later.losses
        self.gradient += later.gradient
        self.intercepts += later.intercepts
        self.events += later.events


class Rewards(NamedTuple):
    low: float
    high: float
    mean: float


@dataclass
class Solution:
    coef: Floats
    intercept: Floats
    events: int
    passes: int  # over the whole log, without those over the sample
    skipped: dict[str, int]
    rewards: Rewards


class Regression(Trained):
    """A model that `solve` fits. `choice` tells a regression of the action from one of the reward."""

    keeps_passes = True
    choice: bool
    coef_: Floats
    intercept_: Floats

    def __init__(self, C: Any, fit_intercept: bool) -> None:
        self.C = number("C", C, above=True, who=type(self).__name__, error=ModelError)
        self.fit_intercept = bool(fit_intercept)

    def _fit(self, log: Any, workers: Workers) -> None:
        log = self.fit_log(as_log(log, propensities=False))
        problem = self._problem(log, None, workers)
        self._finish(log, alone(problem.solve(*_census(log, None, workers)[0])))

    def fit_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        """Return one model for each fold, fitted on all other folds. The fits share their passes over the log."""
        log = self.fit_log(log)
        problem = self._problem(log, folds, workers)
        found = _census(log, folds, workers)
        problem.draw([count for count, _ in found])
        fits = [problem.solve(*census, fold) for fold, census in enumerate(found)]
        solutions = side_by_side(fits, problem.bytes)
        models = [self.fresh() for _ in solutions]
        for fold, (model, solution) in enumerate(zip(models, solutions, strict=True)):
            model._finish(log.part_of(folds.all_but(fold)), solution)
        return models

    def _problem(self, log: Log, folds: Folds | None, workers: Workers) -> Problem:
        return Problem(log, type(self).__name__, self.choice, 1 / self.C, self.fit_intercept, workers, folds)

    def _finish(self, log: Log, found: Solution) -> None:
        self.remember(log, found.events, found.rewards[:2], found.skipped)
        self.coef_, self.intercept_ = found.coef, found.intercept
        self.n_passes_ = found.passes


class Problem:
    """Minimises Σ loss + penalty |w|² / 2 over the events of a log, or of all its folds but one."""

    def __init__(
        self, log: Log, who: str, choice: bool, penalty: float, intercept: bool, workers: Workers, folds: Folds | None
    ) -> None:
        log.contexts.refuse_nan(who, ModelError)
        self.log, self.who, self.choice, self.penalty, self.intercept = log, who, choice, penalty, intercept
        self.folds, self.workers = folds, workers
        reader = log.reader(context=True, action=True, folds=folds)
        self.passes = Passes(log, reader, workers, by_fold=folds is not None)
        self.samples: dict[float, Passes] = {}  # by share, if there are no folds
        self.of_folds: FoldSamples | None = None
        execution.check_memory(self.bytes, **for_matrices(log.n_actions, log.n_features))

    @property
    def bytes(self) -> int:
        """About how much memory a fit takes, without its sample."""
        size = self.log.n_features + 1
        curvature = 0 if self.log.is_sparse else min(self.log.n_actions * size * size, MOST_CURVATURE)
        return 8 * (self.log.n_actions * size * ARRAYS + 2 * curvature)

    def draw(self, counts: Sequence[Ints]) -> None:
        """Draw the samples of all folds in one pass, given the number of events by action for each fit."""
        shares = [share for share in map(self._share, counts) if share < 1]
        if shares and self.folds is not None:
            self.of_folds = FoldSamples(self.log, self.folds, _split(max(shares)), self.workers)

    def solve(self, count: Ints, rewards: Rewards, fold: int = 0) -> Fit[Solution]:
        """Fit to all events, or to those of all folds but one. `count` and `rewards` are about these events."""
        form = self._form(count, rewards)
        share, passes = self._share(count), self.passes
        before = passes.count
        tolerance = TOLERANCE * max(1.0, math.sqrt(count.sum() / PRECISE_ROWS))
        theta = np.zeros((form.actions, form.features + 1))
        # the sample's losses are divided by its share, to stand for those of all rows
        coordinates = yield from _curvature(self._sample(share, fold), form, count, share, theta)
        theta, _ = yield from _descend(self._sample(share, fold), form, theta, 1 / share, coordinates, 100 * tolerance)
        for attempt in range(MOST_PASSES // PATIENCE):  # coordinates that are round at the start may not be so later
            if attempt == 2:  # and those of the sample may not suit the log, if few events matter
                share = 1.0
            coordinates = yield from _curvature(self._sample(share, fold), form, count, share, theta)
            theta, slope = yield from _descend(passes, form, theta, 1.0, coordinates, tolerance)
            if slope is not None:
                break
        if slope is None:
            raise ModelError(
                f"{self.who} did not converge in {MOST_PASSES} passes over {count.sum():,} events: a smaller C makes "
                "the problem easier, as do features of like scale"
            )
        coef, intercepts = theta[:, :-1].copy(), theta[:, -1].copy()
        if form.unlogged:
            mean = min(max(rewards.mean, 1e-12), 1 - 1e-12)
            intercepts[list(form.unlogged)] = NEVER if self.choice else math.log(mean / (1 - mean))
        skipped = dict(passes.skipped or {})
        return Solution(coef, intercepts, slope.events, passes.count - before, skipped, rewards)

    def _form(self, count: Ints, rewards: Rewards) -> Form:
        log, penalty = self.log, self.penalty
        if not count.sum():
            raise NoEventsError(f"there is no event to fit {self.who} on: the log, or the part of it, is empty")
        if not self.choice and not 0 <= rewards.low <= rewards.high <= 1:
            raise ModelError(
                f"{self.who} takes rewards in [0, 1]; the log's run from {rewards.low:g} to {rewards.high:g}: use Ridge"
            )
        if self.choice and np.count_nonzero(count) == 2:
            penalty *= 2  # scikit-learn then fits one w = w_1 - w_0, and |w_0|² + |w_1|² = |w|² / 2 at the minimum
        unlogged = tuple(np.flatnonzero(count == 0).tolist())
        sparse = log.is_sparse
        return Form(self.choice, log.n_actions, log.n_features, self.intercept, penalty, unlogged, sparse)

    def _share(self, count: Ints) -> float:
        """Return the share of events that the sample has; 1 if the log is hardly longer than the sample."""
        size = 1 if self.log.is_sparse else self.log.n_features + 1
        share = float(min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * size)) / max(int(count.sum()), 1))
        return share if share < 0.5 else 1.0

    def _sample(self, share: float, fold: int) -> Passes:
        if share == 1:
            return self.passes
        if self.of_folds is not None:
            return self.of_folds.passes(fold, _split(share))
        if share not in self.samples:
            part = self.log.part_of(_split(share))
            reader = part.reader(context=True, action=True)
            self.samples[share] = Passes(part, reader, self.workers.alone)
        return self.samples[share]


def _split(share: float) -> Split:
    return Split(SAMPLE_SEED, 0.0, share)


class FoldSamples:
    """A sample of a log in memory, from which each fit takes its own: events of other folds, and the share it needs.

    So each fit has the sample that it would draw by itself.
    """

    def __init__(self, log: Log, folds: Folds, split: Split, workers: Workers) -> None:
        part = log.part_of(split)
        self.log, self.workers = log, workers.alone
        self._drawn = Passes(part, part.reader(context=True, action=True, folds=folds), self.workers)

    @cached_property
    def parts(self) -> dict[int, list[Events]]:
        return self._drawn.by_part()

    def passes(self, fold: int, split: Split) -> Passes:
        reader = self.log.part_of(split).reader(context=True, action=True)
        return Passes(self.log, reader, self.workers).hold(partial(self._of, fold, split))

    def _of(self, fold: int, split: Split) -> dict[int, list[Events]]:
        held = {row: [_without(batch, fold, split) for batch in part] for row, part in self.parts.items()}
        return {row: [batch for batch in part if len(batch)] for row, part in held.items()}


def _without(batch: Events, fold: int, split: Split) -> Events:
    """Return the events of other folds that are in the split."""
    rows = batch.numbers.view(np.uint64)
    return batch.take(np.flatnonzero((batch.fold != fold) & split.keep(sampling.at_rows(split.seed, rows))))


# First pass: actions and rewards


def _census(log: Log, folds: Folds | None, workers: Workers) -> list[tuple[Ints, Rewards]]:
    """Return the number of events by action, and their rewards: of all events, or of all folds but each."""
    contexts = log.on_bad_row == "skip"  # without contexts, events that are skipped for a bad context would count
    passes = Passes(log, log.reader(context=contexts, action=True, folds=folds), workers.quietly)
    total = Census.start(folds.count if folds else 1, log.n_actions)
    total = passes.sum_up(partial(_count, folds, log.n_actions), total, Census.merge)
    if folds is None:
        return [total.of(np.array([0]))]
    return [total.of(np.delete(np.arange(folds.count), fold)) for fold in range(folds.count)]


@dataclass
class Census:
    """Events and rewards by fold."""

    count: Ints  # (folds, actions)
    low: Floats
    high: Floats
    rewards: Floats  # their sum

    @classmethod
    def start(cls, folds: int, actions: int) -> Census:
        numbers = np.full(folds, math.inf), np.full(folds, -math.inf), np.zeros(folds)
        return cls(np.zeros((folds, actions), np.int64), *numbers)

    def merge(self, later: Census) -> None:
        self.count += later.count
        np.minimum(self.low, later.low, out=self.low)
        np.maximum(self.high, later.high, out=self.high)
        self.rewards += later.rewards

    def of(self, folds: Ints) -> tuple[Ints, Rewards]:
        count = self.count[folds].sum(axis=0)
        mean = float(self.rewards[folds].sum()) / max(int(count.sum()), 1)
        return count, Rewards(float(self.low[folds].min()), float(self.high[folds].max()), mean)


def _count(folds: Folds | None, actions: int, batches: Iterator[Events]) -> Census:
    found = Census.start(folds.count if folds else 1, actions)
    for batch in batches:
        fold = np.zeros(len(batch), np.int64) if folds is None else batch.fold
        found.count += np.bincount(fold * actions + batch.action, minlength=found.count.size).reshape(-1, actions)
        np.minimum.at(found.low, fold, batch.reward)
        np.maximum.at(found.high, fold, batch.reward)
        found.rewards += np.bincount(fold, batch.reward, len(found.rewards))
    return found


# Loss and gradient


def _weights(theta: Floats) -> Weights:
    weights = Weights(theta[:, :-1])
    weights.by_feature  # noqa: B018  # computed here, else once for each part
    return weights


class SlopeTask(NamedTuple):
    form: Form
    weights: Weights
    intercept: Floats

    def start(self) -> Slope:
        return Slope([0.0], np.zeros((self.form.features, self.form.actions)), np.zeros(self.form.actions))

    def add(self, sums: Slope, block: Events) -> None:
        errors_of = _choice_errors if self.form.choice else _binary_errors
        sums.losses[0] += errors_of(*self, block, sums.gradient, sums.intercepts)
        sums.events += len(block)


def _binary_errors(
    form: Form, weights: Weights, intercept: Floats, block: Events, gradient: Floats, intercepts: Floats
) -> float:
    """Return the loss of r given (x, a), and add to the gradients (d, K) and (K)."""
    rows, action = block.sparse, block.action
    scores = _logged_scores(weights, block)
    scores += intercept[action]
    loss = float(logistic.binary_errors(scores, block.reward))
    if rows is None:
        logistic.add_logged(scores, block.features, action, gradient)
    else:
        sparse.add_logged(scores, action, rows.indptr, rows.indices, rows.values, gradient)
    intercepts += np.bincount(action, scores, form.actions)
    return loss


def _logged_scores(weights: Weights, block: Events) -> Floats:
    rows = block.sparse
    scores = np.zeros(len(block))
    if rows is None:
        logistic.logged_scores(weights.by_feature, block.features, block.action, scores)
    else:
        sparse.logged_products(weights.by_feature, block.action, rows.indptr, rows.indices, rows.values, scores)
    return scores


def _choice_errors(
    form: Form, weights: Weights, intercept: Floats, block: Events, gradient: Floats, intercepts: Floats
) -> float:
    """Return the loss of a given x, and add to the gradients (d, K) and (K)."""
    p = _probabilities(form, weights, intercept, block)
    loss = float(logistic.choice_errors(p, block.action))
    rows = block.sparse
    if rows is None:
        gradient += block.features @ p.T
    else:
        sparse.add_outer(np.ascontiguousarray(p.T), rows.indptr, rows.indices, rows.values, gradient)
    intercepts += p.sum(axis=1)
    return loss


def _probabilities(form: Form, weights: Weights, intercept: Floats, block: Events) -> Floats:
    """Return p(a|x) as (K, n)."""
    intercept = intercept.copy()
    intercept[list(form.unlogged)] = NEVER
    p = np.empty((form.actions, len(block)))
    weights.fill(block, p)
    softmax(p, intercept, block.eligible_bits)
    return p


# Second derivatives, and the coordinates that they give


def _curvature(passes: Passes, form: Form, count: Ints, share: float, theta: Floats) -> Fit[Preconditioner]:
    """Return coordinates from the second derivatives at theta: a matrix for each action, or its diagonal.

    They come from a share of the events, and are scaled up to all events.
    """
    size = form.features + 1
    whole = not form.sparse and form.actions * size * size <= MOST_CURVATURE
    found = yield Asked(passes, CurvatureTask(form, _weights(theta), theta[:, -1], whole), form.block_rows)
    total = found.total / share
    if form.sparse:
        total[:, :-1] = found.squares.T / share
    if share < 1:
        total = _lean(total, form, count, share)
    if not form.intercept:
        total[..., -1] = 0
        if whole:
            total[:, -1] = 0
    on_weights = np.where(np.arange(size) < form.features, form.penalty, 0.0)
    total += np.diag(on_weights) if whole else on_weights
    return Preconditioner(total, whole)


def _lean(total: Floats, form: Form, count: Ints, share: float) -> Floats:
    """Mix the curvature of each action with a typical one. With fewer events, the typical one counts more.

    An action with few events in the sample, or with a single reward there, has almost no curvature of its own. Without
    the mix, a hundred passes would not suffice for an action that has clicks in the log, but none in the sample.
    """
    whole = total.ndim == 3
    bend = total[:, -1, -1] if whole else total[:, -1]  # Σ p (1 - p) of each action
    typical = total.sum(axis=0) / max(bend.sum(), 1e-300)
    expected = count * (1 - count / count.sum()) if form.choice else count * (bend.sum() / count.sum())
    parameters = form.features + 1 if whole else 10
    lean = (parameters / (parameters + share * count)).reshape(-1, *[1] * typical.ndim)
    return (1 - lean) * total + lean * expected.reshape(lean.shape) * typical


@dataclass
class Curvature:
    """Second derivatives (K, d + 1, d + 1), or their diagonal (K, d + 1), which is in `squares` for sparse contexts."""

    total: Floats
    squares: Floats  # (d, K)

    def merge(self, later: Curvature) -> None:
        self.total += later.total
        self.squares += later.squares


class CurvatureTask(NamedTuple):
    form: Form
    weights: Weights
    intercept: Floats
    whole: bool

    def start(self) -> Curvature:
        form, size = self.form, self.form.features + 1
        total = np.zeros((form.actions, size, size) if self.whole else (form.actions, size))
        return Curvature(total, np.zeros((form.features if form.sparse else 0, form.actions)))

    def add(self, sums: Curvature, block: Events) -> None:
        form = self.form
        if form.choice:
            p = _probabilities(form, self.weights, self.intercept, block)
        else:
            p = np.zeros((form.actions, len(block)))
            scores = _logged_scores(self.weights, block) + self.intercept[block.action]
            logistic.logistic(scores)
            p[block.action, np.arange(len(block))] = scores
        bend = p * (1 - p)
        rows = block.sparse
        if rows is None:
            _add_curvature(bend, block, self.whole, sums.total)
        else:
            values = rows.values.astype(np.float64) ** 2
            sparse.add_outer(np.ascontiguousarray(bend.T), rows.indptr, rows.indices, values, sums.squares)
            sums.total[:, -1] += bend.sum(axis=1)


def _add_curvature(bend: Floats, block: Events, whole: bool, total: Floats) -> None:
    """Add Σ bend[k, i] x_i x_i', or its diagonal, to total[k]. x ends with a 1 for the intercept, and is dense."""
    x = np.vstack([block.features, np.ones(len(block))])
    if not whole:
        total += bend @ (x**2).T
        return
    for k in range(len(bend)):
        events = np.flatnonzero(bend[k])
        mine = x[:, events]
        total[k] += (mine * bend[k, events]) @ mine.T


def _descend(
    passes: Passes, form: Form, theta: Floats, times: float, coordinates: Preconditioner, tolerance: float
) -> Fit[tuple[Floats, Slope | None]]:
    """Minimise from theta on, with losses times `times`. Return theta, and its slope or None without convergence."""
    steps = lbfgs(coordinates.into(theta), tolerance, PATIENCE)
    u = next(steps)
    while True:
        theta = form.plain(coordinates.back(u))
        slope = yield Asked(passes, SlopeTask(form, _weights(theta), theta[:, -1]), form.block_rows)
        gradient = times * np.column_stack([slope.gradient.T, slope.intercepts])
        gradient[:, :-1] += form.penalty * theta[:, :-1]
        gradient[:, -1] *= form.intercept
        gradient[list(form.unlogged)] = 0
        gradient = form.plain(gradient)
        loss = times * slope.loss + form.penalty / 2 * float((theta[:, :-1] ** 2).sum())
        try:
            u = steps.send((loss, coordinates.slope(gradient)))
        except StopIteration as end:
            u, converged = end.value
            return form.plain(coordinates.back(u)), slope if converged else None
