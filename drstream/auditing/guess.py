"""A guess of the action that is taken more often than its propensities say, learned from the first rows of the log.

For each action, a ridge regression predicts 1{a}/p from the context. The guess is the action with the largest
prediction, among those that are eligible. If propensities are right, then on later rows E[1{a = guess}/p] is at most 1,
whatever was learned. If they are those of other rows, or the same for all, the guess is often right, and the mean is
far above 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.log import Coded, Csr, Events
from drstream.log.kinds.eligible.reading import Sets
from drstream.running.execution import one_blas_thread
from drstream.types import Floats, Ints

FIRST_EVENTS = 16_384  # the guess is learned from half of so many events
FEWEST = 32
FEATURES = 64
SCORES = 4096  # features times actions: more would take longer than all else
RIDGE = 0.01
PIECE = 1 << 20  # predictions at a time


@dataclass(frozen=True)
class Guess:
    """Scores of actions, linear in the first features; and the last row that they were learned from."""

    weights: Floats  # (features, actions)
    intercept: Floats
    after: int

    def of(self, batch: Events) -> Ints:
        """Return the guessed action of each event."""
        X = features(batch, len(self.weights))
        rows = max(1, PIECE // len(self.intercept))
        return np.concatenate([self._best(X[i : i + rows], batch.eligible, i) for i in range(0, len(X), rows)])

    def _best(self, X: NDArray[Any], eligible: Sets | None, first: int) -> Ints:
        scores = X @ self.weights + self.intercept
        if eligible is not None:
            scores = np.where(eligible[first : first + len(X)].mask(), scores, -np.inf)
        return np.argmax(scores, axis=1)


def features(batch: Events, most: int) -> NDArray[Any]:
    """Return the first features (n, d) in float64; none of sparse contexts."""
    context = batch.context
    if isinstance(context, Csr) or not most:
        return np.empty((len(batch), 0))
    if isinstance(context, Coded):
        context = context.matrix()
    if isinstance(context, np.ndarray):
        return np.ascontiguousarray(context[:, :most], np.float64)
    return np.column_stack([column.astype(np.float64) for column in context[:most]] or [np.empty((len(batch), 0))])


def learn(batches: Sequence[Events], actions: int) -> Guess | None:
    """Learn from the first half of at most FIRST_EVENTS events; None if there are too few."""
    columns: list[tuple[NDArray[Any], ...]] = []
    held = 0
    for batch in batches:
        X = features(batch, min(FEATURES, SCORES // actions))
        columns.append((X, batch.action, batch.propensity, batch.numbers))
        held += len(batch)
        if held >= FIRST_EVENTS:
            break
    n = min(held, FIRST_EVENTS) // 2
    if n < FEWEST:
        return None
    X, action, propensity, rows = (np.concatenate(parts)[:n] for parts in zip(*columns, strict=True))
    with np.errstate(all="ignore"), one_blas_thread():
        centre, scale = X.mean(axis=0), X.std(axis=0)
        scale[scale == 0] = 1
        Z = (X - centre) / scale
        inverse = 1 / propensity
        products = np.empty((Z.shape[1], actions))  # Z' Y, where row i of Y is 1/p at its action and 0 elsewhere
        for j in range(Z.shape[1]):
            products[j] = np.bincount(action, Z[:, j] * inverse, actions)
        mean = np.bincount(action, inverse, actions) / n
        if not all(np.isfinite(x).all() for x in (Z, products, mean)):
            return None
        weights = np.linalg.solve(Z.T @ Z + RIDGE * n * np.eye(Z.shape[1]), products) / scale[:, None]
        return Guess(weights, mean - centre @ weights, int(rows[-1]))
