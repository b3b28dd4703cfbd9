"""Linear reward models, fitted in one streaming pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from drstream import execution
from drstream.errors import LogError, ModelError
from drstream.kernels.scores import add_column
from drstream.log import Block, Log, Reader
from drstream.log.batch import describe_labels
from drstream.log.source import Part
from drstream.models.base import Floats, RewardModel
from drstream.moments import Layout, State
from drstream.products import Weights

BLOCK = 16_384  # rows sorted by action at a time: some thousand for each action keep the kernel's rows long
COLLINEAR = 1e-12  # pivots and eigenvalues of the scaled system below this are rounding


class Ridge(RewardModel):
    """r̂(x, a) = w_a . x + b_a, one ridge regression for each action: minimises |r - w x - b|² + alpha |w|².

    The objective and the names are scikit-learn's. One pass gathers the means and co-moments of (x, r) for each action;
    LAPACK solves them. An action that was never logged is predicted at the mean reward of all events.
    """

    def __init__(self, alpha: float = 1.0, fit_intercept: bool = True) -> None:
        if not 0 <= alpha < np.inf:
            raise ModelError(f"Ridge: alpha={alpha} must be finite and not negative")
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, log: Any, *, threads: int | None = None, executor: Any = None, progress: Any = False) -> Self:
        log = log if isinstance(log, Log) else Log(log)
        actions = log.n_actions
        reader = log.reader(context=True, action=True)
        layout = Layout(log.n_features + 1, (tuple(range(log.n_features + 1)),))
        total = [layout.create() for _ in range(actions)]
        task = partial(_gather, reader, layout, actions)
        skipped: Counter[str] = Counter()
        for states, left_out in execution.run(task, log, reader.columns, threads, executor, progress):
            skipped.update(left_out)
            for state, other in zip(total, states, strict=True):
                layout.merge(state, other)
        if not sum(layout.count(state) for state in total):
            raise LogError("there is no event to fit the reward model on: the log, or the part of it, is empty")
        self._solve(layout, total)
        self.n_actions = actions
        self.fitted_on = log.origin
        self.skipped_ = dict(skipped)  # bad rows that were left out, by reason
        self.labels_, self.features_ = log.labels, None if log.roles.listed else log.roles.context
        return self

    def _solve(self, layout: Layout, states: list[State]) -> None:
        d = layout.variables - 1
        self.coef_: Floats = np.zeros((len(states), d))
        self.intercept_: Floats = np.zeros(len(states))
        everything = layout.create()
        for state in states:
            layout.merge(everything, state)
        for a, state in enumerate(states):
            n = layout.count(state)
            if n == 0:
                self.intercept_[a] = layout.means(everything)[d]
                continue
            mean = layout.means(state)
            products = layout.comoment(state, range(d + 1))
            if not self.fit_intercept:  # about zero, not about the mean
                products = products + n * np.outer(mean, mean)
            self.coef_[a] = solve_ridge(products[:d, :d], products[:d, d], self.alpha)
            if self.fit_intercept:
                self.intercept_[a] = mean[d] - self.coef_[a] @ mean[:d]

    def predict(self, X: NDArray[Any]) -> Floats:
        self._require_fit()
        return np.asarray(X, dtype=np.float64) @ self.coef_.T + self.intercept_

    def bind(self, log: Log) -> RewardModel:
        self._require_fit()
        if log.n_features != self.coef_.shape[1]:
            raise ModelError(
                f"the reward model was fitted on {self.coef_.shape[1]} features; the log has {log.n_features}"
            )
        if self.features_ is not None and not log.roles.listed and self.features_ != log.roles.context:
            raise ModelError(
                f"the reward model was fitted on the context {', '.join(self.features_)}; the log's is "
                f"{', '.join(log.roles.context)}: open it with context= in that order"
            )
        if len(self.labels_) == log.n_actions and list(self.labels_) != list(log.labels):
            raise ModelError(
                f"the reward model was fitted on {describe_labels(self.labels_)}; the log has "
                f"{describe_labels(log.labels)}: open both with the same actions="
            )
        return super().bind(log)

    def fill(self, block: Block, out: Floats) -> None:
        Weights(self.coef_).fill(block, out)
        add_column(out, self.intercept_)

    def fill_rows(self, block: Block, out: Floats) -> None:
        Weights(self.coef_).fill_rows(block, self.intercept_, out)

    def _require_fit(self) -> None:
        if not hasattr(self, "coef_"):
            raise ModelError(
                f"the reward model {type(self).__name__}() is not fitted: call .fit(log) on other events first"
            )


def solve_ridge(products: Floats, target: Floats, alpha: float) -> Floats:
    """w of (products + alpha I) w = target: by Cholesky, or the shortest solution where columns are collinear."""
    if not len(products):
        return np.zeros(0)
    system = products + alpha * np.eye(len(products))
    scale = 1 / np.sqrt(np.where(np.diag(system) > 0, np.diag(system), 1.0))  # else seconds would outweigh clicks
    system, target = system * np.outer(scale, scale), target * scale
    try:
        factor = scipy.linalg.cho_factor(system, lower=True)
        if (np.diag(factor[0]) ** 2).min() > COLLINEAR:
            return scale * scipy.linalg.cho_solve(factor, target)
    except np.linalg.LinAlgError:
        pass
    values, vectors = scipy.linalg.eigh(system)
    keep = values > COLLINEAR * values[-1]
    return scale * (vectors[:, keep] @ ((vectors[:, keep].T @ target) / values[keep]))


def _gather(reader: Reader, layout: Layout, actions: int, part: Part) -> tuple[list[State], Counter[str]]:
    """Means and co-moments of (x, r) of one part, for each action, and the bad rows left out."""
    skipped: Counter[str] = Counter()
    states = [layout.create() for _ in range(actions)]
    for batch in reader.batches(part, skipped):
        for block in batch.blocks(BLOCK):
            execution.go_on()
            for a, terms in _by_action(block, actions):
                layout.update(states[a], terms)
    return states, skipped


def _by_action(block: Block, actions: int) -> Iterable[tuple[int, Floats]]:
    """The events (x, r) of each action as columns, in the log's order."""
    order = np.argsort(block.action, kind="stable")
    bounds = np.searchsorted(block.action[order], np.arange(actions + 1))
    features, reward = block.features, block.reward
    for a in range(actions):
        rows = order[bounds[a] : bounds[a + 1]]
        if len(rows):
            terms = np.empty((len(features) + 1, len(rows)))
            np.take(features, rows, axis=1, out=terms[:-1])
            np.take(reward, rows, out=terms[-1])
            yield a, terms
