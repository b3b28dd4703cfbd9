"""What direct loss minimisation needs to know about its data: a first pass, and standardised features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from drstream.errors import NoEventsError
from drstream.log import Events
from drstream.models.logistic_fit import NEVER
from drstream.models.passes import Passes
from drstream.moments import Layout
from drstream.optimize.losses import Completion, Losses
from drstream.running import execution
from drstream.types import Bools, Floats, Ints

BLOCK_BYTES = 1 << 19  # of the scores and features of a block, to stay in cache


class Sums(NamedTuple):
    """Sums over events, for R runs: losses, margins, and moves of weights (d, R K) and of intercepts (R K)."""

    loss: Floats
    margin: Floats
    moves: Floats
    intercepts: Floats

    @classmethod
    def zeros(cls, runs: int, features: int, actions: int) -> Sums:
        moves = np.zeros((features, runs * actions)), np.zeros(runs * actions)
        return cls(np.zeros(runs), np.zeros(runs), *moves)

    def add(self, other: Sums) -> None:
        for mine, its in zip(self, other, strict=True):
            mine += its


@dataclass(frozen=True)
class Data:
    """Facts about the data: number of events, range of losses, and how to standardise: (x - mean) * factor.

    Weights θ (K, d + 1) are for standardised features, with the intercepts last. Several runs have (R K, d + 1).
    """

    events: int
    rewards: tuple[float, float]
    mean: Floats
    factor: Floats
    never: Bools  # actions that the policy must not take
    intercept: bool  # whether the policy has intercepts

    @property
    def features(self) -> int:
        return len(self.mean)

    @property
    def range(self) -> float:
        return (self.rewards[1] - self.rewards[0]) or 1.0

    @property
    def choice(self) -> bool:
        """Whether there are at least two actions to choose from."""
        return int((~self.never).sum()) > 1

    def plain(self, theta: Floats) -> tuple[Floats, Floats]:
        """Turn weights for standardised features into weights and intercepts for the features as they are."""
        coef = theta[:, :-1] * self.factor
        return coef, theta[:, -1] - coef @ self.mean

    def policy(self, theta: Floats) -> tuple[Floats, Floats]:
        """The plain weights and intercepts of policies, which never take some actions."""
        coef, intercept = self.plain(theta)
        never = np.tile(self.never, len(theta) // len(self.never))
        coef[never], intercept[never] = 0.0, NEVER
        return coef, intercept

    def standardised(self, coef: Floats, intercept: Floats) -> Floats:
        """The inverse of `plain`. A feature that never changes becomes a part of the intercept."""
        last = intercept + coef @ self.mean if self.intercept else np.zeros(len(intercept))
        varies = self.factor > 0
        return np.column_stack([np.where(varies, coef, 0.0) / np.where(varies, self.factor, 1.0), last])

    def centred(self, theta: Floats) -> Floats:
        """The same policy, with weights that sum to 0 over the actions that it may take, as all moves do."""
        return np.where(self.never[:, None], 0.0, theta - theta[~self.never].mean(axis=0))

    def moves(self, sums: Sums) -> Floats:
        """The mean move of an event, (R, K, d + 1), for standardised features."""
        by_feature = sums.moves * self.factor[:, None]
        if self.mean.any():
            by_feature -= np.outer(self.mean * self.factor, sums.intercepts)
        last = sums.intercepts if self.intercept else np.zeros(len(sums.intercepts))
        return np.vstack([by_feature, last]).T.reshape(len(sums.loss), -1, self.features + 1) / self.events


def look(passes: Passes, losses: Losses, standardize: bool, intercept: bool) -> Data:
    """Make the first pass. Sparse features are not standardised, because that would blow up rare ones."""
    completion, features = losses.completion, losses.log.n_features
    standardize = standardize and not losses.log.is_sparse and features > 0
    layout = Layout(features if standardize else 0, tuple((j,) for j in range(features if standardize else 0)))
    nothing = _Seen(layout.create(), math.inf, -math.inf, np.zeros(completion.n_actions, np.int64))
    seen = passes.sum_up(partial(_look_at, layout, completion), nothing, partial(_Seen.merge, layout=layout))
    state, count = seen.state, seen.logged
    events = int(count.sum())
    if not events:
        raise NoEventsError("there is no event to learn a policy from: the log, or the part of it, is empty")
    mean, factor = np.zeros(features), np.ones(features)
    if standardize:
        mean = layout.means(state)
        variance = np.array([layout.comoment(state, (j,))[0, 0] for j in range(features)]) / events
        constant = variance <= (1e-12 * mean) ** 2
        factor = np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, variance)))
        mean = mean if intercept else np.zeros(features)
    never = (count == 0) & (completion.estimator != "dm")
    return Data(events, (seen.low, seen.high), mean, factor, never, intercept)


@dataclass
class _Seen:
    state: Any
    low: float  # the smallest reward; of all actions, if all are known
    high: float
    logged: Ints  # events of each action

    def merge(self, later: _Seen, layout: Layout) -> None:
        layout.merge(self.state, later.state)
        self.low, self.high = min(self.low, later.low), max(self.high, later.high)
        self.logged += later.logged


def _look_at(layout: Layout, completion: Completion, batches: Iterator[Events]) -> _Seen:
    state, low, high, count = layout.create(), math.inf, -math.inf, np.zeros(completion.n_actions, np.int64)
    for batch in batches:
        count += np.bincount(batch.action, minlength=completion.n_actions)
        for block in batch.blocks(max(256, BLOCK_BYTES // (8 * (layout.variables + completion.n_actions)))):
            execution.raise_if_stopped()
            rewards = block.reward
            if completion.estimator == "dm":
                rewards = -completion.of(block)
                rewards = rewards if block.eligible is None else rewards[np.isfinite(rewards)]
            low, high = min(low, float(rewards.min())), max(high, float(rewards.max()))
            if layout.variables:
                layout.update(state, block.features.copy())
    return _Seen(state, low, high, count)
