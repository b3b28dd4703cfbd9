"""Logistic regressions by streaming: L-BFGS in coordinates in which the problem is round.

A sample of the log that fits into memory is solved first. The passes over the whole log start from its solution. The
second derivatives of the sample's problem give the coordinates. In them, the second derivatives of the whole problem
are nearly the identity, so that about six passes are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from drstream import execution
from drstream.buffers import Weights
from drstream.errors import ModelError, NoEventsError
from drstream.execution import Workers
from drstream.kernels import logistic, sparse
from drstream.kernels.scores import softmax
from drstream.log import Batch, Block, Log, as_log
from drstream.log.rows import Split
from drstream.models.lbfgs import Preconditioner, lbfgs
from drstream.models.passes import Passes
from drstream.models.trained import Trained
from drstream.parameters import number
from drstream.types import Floats, Ints

SAMPLE_ROWS, SAMPLE_BYTES = 1 << 16, 1 << 27  # size of the sample that is solved first
SAMPLE_SEED = 0x5851F42D4C957F2D  # differs from the seeds of splits
BLOCK_BYTES = 1 << 19  # of a block's features and scores, which then stay in cache
MOST_CURVATURE = 1 << 24  # second derivatives; with more, or sparse contexts, only their diagonal is used
MOST_PASSES, PATIENCE = 1000, 50  # most passes in all, and in the same coordinates
TOLERANCE = 1e-5  # of the gradient in round coordinates, where 1 is about one standard error of a parameter
PRECISE_ROWS = 20_000  # with more rows, TOLERANCE grows with their root, as standard errors of predictions fall
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


class Slope(NamedTuple):
    """Loss of some events, and its gradient with respect to weights (d, K) and intercepts (K)."""

    loss: float
    gradient: Floats
    intercepts: Floats
    events: int


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

    choice: bool
    coef_: Floats
    intercept_: Floats

    def __init__(self, C: Any, fit_intercept: bool) -> None:
        self.C = number("C", C, above=True, who=type(self).__name__, error=ModelError)
        self.fit_intercept = bool(fit_intercept)

    def _fit(self, log: Any, workers: Workers) -> None:
        log = as_log(log, propensities=False)
        found = solve(log, type(self).__name__, self.choice, 1 / self.C, self.fit_intercept, workers)
        self.remember(log, found.events, found.rewards[:2], found.skipped)
        self.coef_, self.intercept_ = found.coef, found.intercept
        self.n_passes_ = found.passes


def solve(log: Log, who: str, choice: bool, penalty: float, intercept: bool, workers: Workers) -> Solution:
    """Minimise Σ loss + penalty |w|² / 2 over the log's events, and return the solution."""
    count, rewards = _census(log, workers)
    if not count.sum():
        raise NoEventsError(f"there is no event to fit {who} on: the log, or the part of it, is empty")
    if not choice and not 0 <= rewards.low <= rewards.high <= 1:
        raise ModelError(
            f"{who} takes rewards in [0, 1]; the log's run from {rewards.low:g} to {rewards.high:g}: use Ridge"
        )
    unlogged = tuple(np.flatnonzero(count == 0).tolist())
    if choice and np.count_nonzero(count) == 2:
        penalty *= 2  # scikit-learn then fits one w = w_1 - w_0, and |w_0|² + |w_1|² = |w|² / 2 at the minimum
    form = Form(choice, log.n_actions, log.n_features, intercept, penalty, unlogged, log.roles.sparse is not None)
    theta = np.zeros((form.actions, form.features + 1))
    rows = min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * (1 if log.roles.sparse else form.features + 1)))
    share = rows / count.sum()
    passes = sample = Passes(log, log.reader(context=True, action=True), workers)
    if share < 0.5:
        part = log.part_of(Split(SAMPLE_SEED, 0.0, share))
        sample = Passes(part, part.reader(context=True, action=True), Workers(workers.threads))
    else:
        share = 1.0
    # the sample's losses are divided by its share, to stand for those of all rows
    around = partial(_curvature, sample, form, count, share)
    tolerance = TOLERANCE * max(1.0, math.sqrt(count.sum() / PRECISE_ROWS))
    theta, _ = _descend(sample, form, theta, 1 / share, around(theta), 100 * tolerance)
    for attempt in range(MOST_PASSES // PATIENCE):  # coordinates that are round at the start may not be so farther on
        if attempt == 2:  # and those of the sample may not suit the log, if few events matter
            around = partial(_curvature, passes, form, count, 1.0)
        theta, slope = _descend(passes, form, theta, 1.0, around(theta), tolerance)
        if slope is not None:
            break
    if slope is None:
        raise ModelError(
            f"{who} did not converge in {MOST_PASSES} passes over {count.sum():,} events: a smaller C makes the "
            "problem easier, as do features of like scale"
        )
    coef, intercepts = theta[:, :-1].copy(), theta[:, -1].copy()
    if unlogged:
        mean = min(max(rewards.mean, 1e-12), 1 - 1e-12)
        intercepts[list(unlogged)] = NEVER if choice else math.log(mean / (1 - mean))
    skipped = dict(passes.skipped or {})
    return Solution(coef, intercepts, slope.events, passes.count, skipped, rewards)


# First pass: actions and rewards


def _census(log: Log, workers: Workers) -> tuple[Ints, Rewards]:
    contexts = log.on_bad_row == "skip"  # without contexts, events that are skipped for a bad context would count
    passes = Passes(log, log.reader(context=contexts, action=True), workers.quietly)
    total, low, high, rewards = np.zeros(log.n_actions, np.int64), math.inf, -math.inf, 0.0
    for count, found in passes.run(partial(_count, log.n_actions)):
        total += count
        low, high = min(low, found.low), max(high, found.high)
        rewards += found.mean * count.sum()
    return total, Rewards(low, high, rewards / max(total.sum(), 1))


def _count(actions: int, batches: Iterator[Batch]) -> tuple[Ints, Rewards]:
    total, low, high, rewards = np.zeros(actions, np.int64), math.inf, -math.inf, 0.0
    for batch in batches:
        total += np.bincount(batch.action, minlength=actions)
        low, high = min(low, float(batch.reward.min())), max(high, float(batch.reward.max()))
        rewards += float(batch.reward.sum())
    return total, Rewards(low, high, rewards / max(total.sum(), 1))


# Loss and gradient


def _slope(form: Form, weights: Weights, intercept: Floats, batches: Iterator[Batch]) -> Slope:
    gradient = np.zeros((form.features, form.actions))
    intercepts = np.zeros(form.actions)
    loss, events = 0.0, 0
    errors_of = _choice_errors if form.choice else _binary_errors
    for batch in batches:
        for block in batch.blocks(form.block_rows):
            execution.raise_if_stopped()
            loss += errors_of(form, weights, intercept, block, gradient, intercepts)
            events += len(block)
    return Slope(loss, gradient, intercepts, events)


def _binary_errors(
    form: Form, weights: Weights, intercept: Floats, block: Block, gradient: Floats, intercepts: Floats
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


def _logged_scores(weights: Weights, block: Block) -> Floats:
    rows = block.sparse
    scores = np.zeros(len(block))
    if rows is None:
        logistic.logged_scores(weights.by_feature, block.features, block.action, scores)
    else:
        sparse.logged_products(weights.by_feature, block.action, rows.indptr, rows.indices, rows.values, scores)
    return scores


def _choice_errors(
    form: Form, weights: Weights, intercept: Floats, block: Block, gradient: Floats, intercepts: Floats
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


def _probabilities(form: Form, weights: Weights, intercept: Floats, block: Block) -> Floats:
    """Return p(a|x) as (K, n)."""
    intercept = intercept.copy()
    intercept[list(form.unlogged)] = NEVER
    p = np.empty((form.actions, len(block)))
    weights.fill(block, p)
    softmax(p, intercept)
    return p


# Second derivatives, and the coordinates that they give


def _curvature(sample: Passes, form: Form, count: Ints, share: float, theta: Floats) -> Preconditioner:
    """Return coordinates from the second derivatives at theta: a matrix for each action, or its diagonal.

    They come from a share of the events, and are scaled up to all events.
    """
    size = form.features + 1
    whole = not form.sparse and form.actions * size * size <= MOST_CURVATURE
    total = np.zeros((form.actions, size, size) if whole else (form.actions, size))
    for part in sample.run(partial(_part_curvature, form, theta, whole)):
        total += part
    total /= share
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


def _part_curvature(form: Form, theta: Floats, whole: bool, batches: Iterator[Batch]) -> Floats:
    size = form.features + 1
    total = np.zeros((form.actions, size, size) if whole else (form.actions, size))
    weights = Weights(theta[:, :-1])
    squares = np.zeros((form.features if form.sparse else 0, form.actions))
    for batch in batches:
        for block in batch.blocks(form.block_rows):
            execution.raise_if_stopped()
            if form.choice:
                p = _probabilities(form, weights, theta[:, -1], block)
            else:
                p = np.zeros((form.actions, len(block)))
                scores = _logged_scores(weights, block) + theta[block.action, -1]
                logistic.logistic(scores)
                p[block.action, np.arange(len(block))] = scores
            bend = p * (1 - p)
            rows = block.sparse
            if rows is None:
                _add_curvature(bend, block, whole, total)
            else:
                values = rows.values.astype(np.float64) ** 2
                sparse.add_outer(np.ascontiguousarray(bend.T), rows.indptr, rows.indices, values, squares)
                total[:, -1] += bend.sum(axis=1)
    if form.sparse:
        total[:, :-1] = squares.T
    return total


def _add_curvature(bend: Floats, block: Block, whole: bool, total: Floats) -> None:
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
) -> tuple[Floats, Slope | None]:
    """Minimise from theta on, with losses times `times`. Return theta, and its slope or None without convergence."""
    last: list[Slope] = []

    def at(u: Floats) -> tuple[float, Floats]:
        theta = form.plain(coordinates.back(u))
        weights = Weights(theta[:, :-1])
        weights.by_feature  # noqa: B018  # computed here, else once for each part
        slope = _total(form, passes.run(partial(_slope, form, weights, theta[:, -1])))
        last[:] = [slope]
        gradient = times * np.column_stack([slope.gradient.T, slope.intercepts])
        gradient[:, :-1] += form.penalty * theta[:, :-1]
        gradient[:, -1] *= form.intercept
        gradient[list(form.unlogged)] = 0
        gradient = form.plain(gradient)
        loss = times * slope.loss + form.penalty / 2 * float((theta[:, :-1] ** 2).sum())
        return loss, coordinates.slope(gradient)

    u, converged = lbfgs(at, coordinates.into(theta), tolerance, PATIENCE)
    return form.plain(coordinates.back(u)), last[0] if converged else None


def _total(form: Form, parts: Iterator[Slope]) -> Slope:
    total = Slope(0.0, np.zeros((form.features, form.actions)), np.zeros(form.actions), 0)
    losses = []
    for part in parts:
        losses.append(part.loss)
        total.gradient[:] += part.gradient
        total.intercepts[:] += part.intercepts
        total = total._replace(events=total.events + part.events)
    return total._replace(loss=math.fsum(losses))
