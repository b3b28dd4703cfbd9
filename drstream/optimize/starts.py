"""Where direct loss minimisation starts: at the reward model, if it is linear, else at a fit of the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from drstream.buffers import Weights
from drstream.kernels import sparse
from drstream.kernels.scores import add_column
from drstream.log import Events
from drstream.models.base import RewardModel
from drstream.models.crossfit import CrossFitted
from drstream.models.linear import LinearModel
from drstream.models.passes import Passes
from drstream.optimize.data import BLOCK_BYTES, Data, Sums
from drstream.optimize.losses import Completion
from drstream.running import execution
from drstream.types import Floats

Fill = Callable[[Events, Floats], None]
ALPHA = 1.0  # of the ridge regression, as Ridge has it
STEPS = 20  # of conjugate gradients, one pass each: enough for a start
ENOUGH = 1e-6  # the share of a residual at which it counts as 0


def warm_start(passes: Passes, completion: Completion, data: Data) -> Floats | None:
    """Weights (K, d + 1) of a policy that takes the action with the largest predicted reward. None: all would tie."""
    theta = of_model(completion.models.model, data)
    if theta is None:
        theta = of_losses(passes, completion, data)
    theta = data.centred(theta / data.range)
    return theta if np.isfinite(theta).all() and theta.any() else None


def of_model(model: RewardModel | None, data: Data) -> Floats | None:
    """The weights of a linear model, or the mean weights of models by fold. None if no linear policy is like it."""
    models = model.models if isinstance(model, CrossFitted) else [model]
    linear = [one for one in models if isinstance(one, LinearModel)]
    if len(linear) < len(models):
        return None
    coef, intercept = (np.mean(each, axis=0) for each in zip(*((m.coef_, m.intercept_) for m in linear), strict=True))
    if not data.intercept and np.ptp(intercept):
        return None
    return data.standardised(coef, intercept)


def of_losses(passes: Passes, completion: Completion, data: Data) -> Floats:
    """Ridge regressions of the completed rewards of each action, by conjugate gradients, all actions in one pass."""
    actions = completion.n_actions
    theta = np.zeros((actions, data.features + 1))
    residual = _mean_products(passes, partial(_fill_rewards, completion), data, actions)
    along, size = residual.copy(), (residual**2).sum(axis=1)
    enough = ENOUGH**2 * size
    for _ in range(STEPS):
        if not (size > enough).any():
            break
        coef, intercept = data.plain(along)
        scores = partial(_fill_scores, Weights(coef), intercept, completion)
        product = _mean_products(passes, scores, data, actions) + ALPHA / data.events * along
        bend = (along * product).sum(axis=1)
        step = np.where(bend > 0, size, 0.0) / np.where(bend > 0, bend, 1.0)
        theta += step[:, None] * along
        residual -= step[:, None] * product
        before, size = size, (residual**2).sum(axis=1)
        along = residual + (size / np.where(before > 0, before, 1.0))[:, None] * along
    return theta


def _mean_products(passes: Passes, fill: Fill, data: Data, actions: int) -> Floats:
    """The mean over events of y_a z (K, d + 1), where z has the standardised features and perhaps a 1."""
    total = Sums.zeros(1, data.features, actions)
    total = passes.sum_up(partial(_products, fill, actions, data.features), total, Sums.add)
    return np.asarray(data.moves(total)[0])


def _products(fill: Fill, actions: int, features: int, batches: Iterator[Events]) -> Sums:
    """Σ x y_a (d, K) and Σ y_a (K), for the y (K, n) that `fill` gives to a block."""
    sums = Sums.zeros(1, features, actions)
    for batch in batches:
        for block in batch.blocks(max(256, BLOCK_BYTES // (8 * (actions + features)))):
            execution.raise_if_stopped()
            y = np.empty((actions, len(block)))
            fill(block, y)
            rows = block.sparse
            if rows is None:
                np.add(sums.moves, block.features @ y.T, out=sums.moves)
            else:
                sparse.add_outer(np.ascontiguousarray(y.T), rows.indptr, rows.indices, rows.values, sums.moves)
            np.add(sums.intercepts, y.sum(axis=1), out=sums.intercepts)
    return sums


def _fill_rewards(completion: Completion, block: Events, out: Floats) -> None:
    completion.fill(block, out)
    np.negative(out, out=out)


def _fill_scores(weights: Weights, intercept: Floats, completion: Completion, block: Events, out: Floats) -> None:
    """Scores, and 0 for actions that are not eligible: such an event says nothing about the action."""
    weights.fill(block, out)
    add_column(out, intercept)
    completion.exclude(block, out, 0.0)
