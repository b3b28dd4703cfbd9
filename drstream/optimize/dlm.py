"""Direct loss minimisation: a linear policy that reduces its own loss, not a surrogate of it (appendix D)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from drstream import execution
from drstream.buffers import Weights
from drstream.errors import NoEventsError
from drstream.execution import Workers
from drstream.kernels import dlm
from drstream.log import Batch, Block, Log
from drstream.models.logistic_fit import NEVER
from drstream.models.passes import Passes
from drstream.moments import Layout
from drstream.optimize.base import Learned
from drstream.optimize.losses import Completion, Losses, as_losses
from drstream.parameters import number, whole
from drstream.policies.base import FixedPolicy
from drstream.policies.fixed import Linear
from drstream.types import Bools, Floats, Ints

BLOCK_BYTES = 1 << 19  # of the scores and features of a block, to stay in cache
TOGETHER = 1 << 21  # maximum number of weights in runs that go side by side


class DirectLossMinimizer(Learned):
    """A linear policy, argmax_a θ_a·x, learned by direct loss minimisation (McAllester, Hazan, Keshet).

    It uses the toward-better form. In each epoch, θ_a gains η times the mean over events of x [a = a₁] - x [a = a₂].
    Here a₂ is the action that the policy takes, and a₁ is the action with the largest θ_a·x - ε l_a: its score is
    nearly as good, and its loss is better. The loss is not convex, so several runs start from random weights, side by
    side. Of all weights that any run reached, those with the smallest loss on the data are kept. The policy never takes
    an action that was never logged, unless a model alone says what actions cost ("dm").

    epsilon        ε, for losses with a range of 1. Losses are divided by the range of the logged ones.
    restarts       Number of runs.
    learning_rate, decay
                   Set the learning rate: η = learning_rate * t**-decay in epoch t.
    epochs         Maximum number of epochs. Each is a pass over the data.
    tolerance      Ends a run when an epoch changes its weights by this share of them or less.
    perturbation   Standard deviation of the weights at the start.
    fit_intercept  Adds an intercept: θ_a·x + b_a.
    standardize    Gives the features of dense contexts variance 1 and, with an intercept, mean 0 before learning.
                   coef_ and intercept_ are for the features as they are.
    seed           Random seed of the weights at the start.

    Contexts that fit into memory are decoded once, others in each epoch. The result does not depend on the number of
    threads. After `fit`: coef_ (K, d), intercept_ (K), loss_ (the policy's mean completed cost on the data),
    run_losses_ (the same for each run), n_epochs_ (of the longest run), converged_ (whether the run that is kept
    converged).

    >>> from drstream.optimize import Losses
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> policy = DirectLossMinimizer(restarts=3).fit(Losses.known(X, costs=[[0, 1], [0, 1], [1, 0], [1, 0]]))
    >>> policy.probabilities(np.array([[-3.0], [3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """

    word = "dlm"  # on the command line
    coef_: Floats
    intercept_: Floats
    loss_: float
    run_losses_: Floats
    n_epochs_: int
    converged_: bool
    linear: FixedPolicy  # after `bind`

    def __init__(
        self,
        *,
        epsilon: float = 0.1,
        restarts: int = 20,
        learning_rate: float = 0.5,
        decay: float = 0.3,
        epochs: int = 200,
        tolerance: float = 1e-4,
        perturbation: float = 0.01,
        fit_intercept: bool = True,
        standardize: bool = True,
        seed: int = 0,
    ) -> None:
        who = type(self).__name__
        self.epsilon = number("epsilon", epsilon, above=True, who=who)
        self.restarts = whole("restarts", restarts, who=who)
        self.learning_rate = number("learning_rate", learning_rate, above=True, who=who)
        self.decay = number("decay", decay, who=who)
        self.epochs = whole("epochs", epochs, who=who)
        self.tolerance = number("tolerance", tolerance, who=who)
        self.perturbation = number("perturbation", perturbation, above=True, who=who)
        self.fit_intercept, self.standardize = bool(fit_intercept), bool(standardize)
        self.seed = whole("seed", seed, 0, who=who)

    def _learn(self, log: Any, model: Any, workers: Workers) -> None:
        losses = as_losses(log, model, workers)
        log = losses.log
        passes = Passes(log, losses.reader, workers)
        data = _look(passes, losses, self.standardize, self.fit_intercept)
        rng = np.random.default_rng(self.seed)
        shape = log.n_actions, log.n_features + 1
        together = max(1, TOGETHER // (shape[0] * shape[1]))
        best, run_losses, epochs = None, [], 0
        for first in range(0, self.restarts, together):
            runs = [self._start(rng, shape) for _ in range(first, min(first + together, self.restarts))]
            self._descend(runs, passes, losses.completion, data)
            run_losses += [run.loss for run in runs]
            epochs = max(epochs, *(run.epochs for run in runs))
            best = min([*([best] if best else []), *runs], key=lambda run: run.loss)  # the first in a tie
        assert best is not None
        self.coef_, self.intercept_ = data.plain(best.best)
        self.loss_, self.run_losses_, self.n_epochs_ = best.loss, np.array(run_losses), epochs
        self.converged_ = best.change <= self.tolerance
        self.remember(log, data.events, data.rewards, passes.skipped, losses.models_of)

    def _start(self, rng: np.random.Generator, shape: tuple[int, int]) -> _Run:
        theta = rng.normal(scale=self.perturbation, size=shape)
        theta[:, -1] *= self.fit_intercept
        return _Run(theta)

    def _descend(self, runs: list[_Run], passes: Passes, completion: Completion, data: _Data) -> None:
        """Improve the weights epoch by epoch, until all runs have converged. The last weights are scored, too."""
        for epoch in range(1, self.epochs + 2):
            rate = self.learning_rate * epoch**-self.decay if epoch <= self.epochs else 0.0
            task = partial(_epoch, completion, *data.stacked(runs), self.epsilon / data.range)
            total = _Sums.zeros(len(runs), data.features, completion.n_actions)
            for found in passes.run(task):
                total.add(found)
            moves = data.moves(total, self.fit_intercept)
            for run, loss, move in zip(runs, total.loss / data.events, moves, strict=True):
                run.score(float(loss))
                if rate:
                    run.step(rate * move)
            runs = [run for run in runs if run.change > self.tolerance]
            if not runs:
                return

    def probabilities(self, X: Any) -> Floats:
        self.require_width(X)
        return Linear(self.coef_, self.intercept_).probabilities(X)

    def bind(self, log: Log, name: str) -> Self:
        bound = super().bind(log, name)
        bound.linear = Linear(self.coef_, self.intercept_).bind(log, name)
        return bound

    def fill(self, block: Block, out: Floats) -> None:
        self.linear.fill(block, out)


class _Run:
    """One run: its weights (K, d + 1), with the intercepts last, and the best weights so far."""

    def __init__(self, theta: Floats) -> None:
        self.theta = self.best = theta
        self.loss = math.inf
        self.change = math.inf  # of the weights in the last epoch, as a share of them
        self.epochs = 0

    def score(self, loss: float) -> None:
        """Keep the present weights as the best ones if their loss is the smallest so far."""
        if loss < self.loss:
            self.loss, self.best = loss, self.theta

    def step(self, move: Floats) -> None:
        size = float(np.linalg.norm(self.theta))
        self.change = float(np.linalg.norm(move)) / size if size else math.inf
        self.theta = self.theta + move
        self.epochs += 1


class _Sums(NamedTuple):
    """Sums over events: the loss of each run, and the moves of its weights (d, R K) and intercepts (R K)."""

    loss: Floats
    moves: Floats
    intercepts: Floats

    @classmethod
    def zeros(cls, runs: int, features: int, actions: int) -> _Sums:
        return cls(np.zeros(runs), np.zeros((features, runs * actions)), np.zeros(runs * actions))

    def add(self, other: _Sums) -> None:
        for mine, its in zip(self, other, strict=True):
            mine += its


def _epoch(
    completion: Completion, weights: Weights, intercept: Floats, epsilon: float, batches: Iterator[Batch]
) -> _Sums:
    actions, (columns, features) = completion.n_actions, weights.matrix.shape
    runs = columns // actions
    sums = _Sums.zeros(runs, features, actions)
    by_action = None  # moves of dense contexts, (R K, d)
    for batch in batches:
        sparse = not isinstance(batch.context, np.ndarray | list)
        rows = max(256, BLOCK_BYTES // (8 * (columns + actions + (0 if sparse else features))))
        for block in batch.blocks(rows):
            execution.raise_if_stopped()
            n = len(block)
            losses, scores = np.empty((actions, n)), np.empty((columns, n))
            completion.fill(block, losses)
            weights.fill(block, scores)
            taken, better = np.empty((runs, n), np.int32), np.empty((runs, n), np.int32)
            dlm.choose(scores, intercept, losses, epsilon, taken, better, sums.loss)
            csr = block.sparse
            if csr is None:
                by_action = np.zeros((columns, features)) if by_action is None else by_action
                dlm.add_moves(taken, better, np.ascontiguousarray(block.features.T), by_action, sums.intercepts)
            else:
                form = csr.indptr, csr.indices, csr.values
                dlm.add_sparse_moves(taken, better, *form, sums.moves, sums.intercepts)
    return sums if by_action is None else sums._replace(moves=by_action.T)


# The first pass: facts about the data that learning needs


@dataclass(frozen=True)
class _Data:
    """Facts about the data: number of events, range of losses, and how to standardise: (x - mean) * factor."""

    events: int
    rewards: tuple[float, float]
    mean: Floats
    factor: Floats
    never: Bools  # actions that the policy must not take

    @property
    def features(self) -> int:
        return len(self.mean)

    @property
    def range(self) -> float:
        return (self.rewards[1] - self.rewards[0]) or 1.0

    def plain(self, theta: Floats) -> tuple[Floats, Floats]:
        """Turn weights for standardised features into weights and intercepts for the features as they are."""
        coef = theta[:, :-1] * self.factor
        intercept = theta[:, -1] - coef @ self.mean
        never = np.tile(self.never, len(theta) // len(self.never))
        coef[never], intercept[never] = 0.0, NEVER
        return coef, intercept

    def stacked(self, runs: Sequence[_Run]) -> tuple[Weights, Floats]:
        """The plain weights and intercepts of all runs, one below the other."""
        coef, intercept = self.plain(np.concatenate([run.theta for run in runs]))
        return Weights(coef), intercept

    def moves(self, sums: _Sums, intercept: bool) -> Floats:
        """The mean move of an event, (R, K, d + 1), for standardised features."""
        by_feature = sums.moves * self.factor[:, None]
        if self.mean.any():
            by_feature -= np.outer(self.mean * self.factor, sums.intercepts)
        last = sums.intercepts if intercept else np.zeros(len(sums.intercepts))
        return np.vstack([by_feature, last]).T.reshape(len(sums.loss), -1, self.features + 1) / self.events


def _look(passes: Passes, losses: Losses, standardize: bool, intercept: bool) -> _Data:
    """Make the first pass. Sparse features are not standardised, because that would blow up rare ones."""
    completion, features = losses.completion, losses.log.n_features
    standardize = standardize and losses.log.roles.sparse is None and features > 0
    layout = Layout(features if standardize else 0, tuple((j,) for j in range(features if standardize else 0)))
    state, low, high, count = layout.create(), math.inf, -math.inf, np.zeros(completion.n_actions, np.int64)
    for found in passes.run(partial(_look_at, layout, completion)):
        layout.merge(state, found.state)
        low, high = min(low, found.low), max(high, found.high)
        count += found.logged
    events = int(count.sum())
    if not events:
        raise NoEventsError("there is no event to learn a policy from: the log, or the part of it, is empty")
    mean, factor = np.zeros(features), np.ones(features)
    if standardize:
        mean = layout.means(state)
        variance = state["comoments"][0] / events
        constant = variance <= (1e-12 * mean) ** 2
        factor = np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, variance)))
        mean = mean if intercept else np.zeros(features)
    return _Data(events, (low, high), mean, factor, (count == 0) & (completion.estimator != "dm"))


class _Seen(NamedTuple):
    state: Any
    low: float  # the smallest reward; of all actions, if all are known
    high: float
    logged: Ints  # events of each action


def _look_at(layout: Layout, completion: Completion, batches: Iterator[Batch]) -> _Seen:
    state, low, high, count = layout.create(), math.inf, -math.inf, np.zeros(completion.n_actions, np.int64)
    for batch in batches:
        count += np.bincount(batch.action, minlength=completion.n_actions)
        for block in batch.blocks(max(256, BLOCK_BYTES // (8 * (layout.variables + completion.n_actions)))):
            execution.raise_if_stopped()
            rewards = block.reward
            if completion.estimator == "dm":
                rewards = -completion.of(block)
            low, high = min(low, float(rewards.min())), max(high, float(rewards.max()))
            if layout.variables:
                layout.update(state, block.features.copy())
    return _Seen(state, low, high, count)
