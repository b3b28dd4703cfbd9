"""Direct loss minimisation: a linear policy that reduces its own loss, not a surrogate of it (appendix D)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from drstream.buffers import Rule, Weights
from drstream.errors import PolicyError
from drstream.kernels import dlm
from drstream.log import Csr, Events, Log
from drstream.models.meeting import by_name
from drstream.models.passes import Passes
from drstream.optimize.base import Learned
from drstream.optimize.data import BLOCK_BYTES, Data, Sums, look
from drstream.optimize.descent import Backtracking, Decaying, Found, Run, descend
from drstream.optimize.losses import Completion, as_losses
from drstream.optimize.starts import warm_start
from drstream.parameters import number, one_of, whole
from drstream.policies.base import FixedPolicy
from drstream.policies.fixed import Linear
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.types import Floats

TOGETHER = 1 << 21  # maximum number of weights in runs that go side by side
STARTS = ("warm", "random")
STEPS = ("backtracking", "decaying")
SPREAD = 0.3  # of warm starts about the first one, as a share of its weights


class DirectLossMinimizer(Learned):
    """A linear policy, argmax_a θ_a·x, learned by direct loss minimisation (McAllester, Hazan, Keshet).

    It uses the toward-better form. In each epoch, θ_a moves along the mean over events of x [a = a₁] - x [a = a₂]. Here
    a₂ is the action that the policy takes, and a₁ is the action with the largest θ_a·x - ε l_a: its score is nearly as
    good, and its loss is better. The loss is not convex, so there are several runs, side by side. Of all weights that
    any run reached, those with the smallest loss on the data are kept. The policy never takes an action that was never
    logged, unless a model alone says what actions cost ("dm"). In a log with eligible sets, it takes an action of the
    set.

    start          "warm": half of the runs start at a policy that is good already, the other half at random weights.
                   This policy takes the action with the largest reward that the reward model predicts, if the model
                   is linear. A cross-fitted model has the mean weights of its folds. For other models, and without a
                   model, ridge regressions of the completed rewards of each action take its place. The first run
                   starts exactly there, the others nearby. So the loss on the data is at most the loss of that policy.
                   "random": all runs start at random weights, as in appendix D.
    step           "backtracking": a step is taken only if it reduces the loss on the data. Otherwise it is undone, and
                   the next step and ε are half as large. Runs from random weights spend half of the epochs on decaying
                   steps before that. "decaying": all steps are taken, and the learning rate decays, as in appendix D.
    restarts       Number of runs.
    epochs         Maximum number of epochs. Each is a pass over the data.
    tolerance      Ends a run when a step changes its weights by this share of them or less.
    epsilon        ε of decaying steps, for losses with a range of 1. Losses are divided by the range of the logged
                   ones. Backtracking finds its own ε.
    learning_rate, decay
                   Set the learning rate of decaying steps: η = learning_rate * t**-decay in epoch t.
    perturbation   Standard deviation of random weights.
    fit_intercept  Adds an intercept: θ_a·x + b_a.
    standardize    Gives the features of dense contexts variance 1 and, with an intercept, mean 0 before learning.
                   coef_ and intercept_ are for the features as they are.
    seed           Random seed of the weights at the start.

    start="random", step="decaying", fit_intercept=False, standardize=False is appendix D to the letter.

    Contexts that fit into memory are decoded once, others in each epoch. The result does not depend on the number of
    threads. After `fit`: coef_ (K, d), intercept_ (K), loss_ (the policy's mean completed cost on the data),
    start_loss_ (the same for the policy of the warm start; NaN without one), run_losses_ (the same for each run),
    n_epochs_ (of the longest run), converged_ (whether the run that is kept converged).

    >>> from drstream.optimize import Losses
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> policy = DirectLossMinimizer(restarts=3).fit(Losses.known(X, costs=[[0, 1], [0, 1], [1, 0], [1, 0]]))
    >>> policy.probabilities(np.array([[-3.0], [3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """

    word = "dlm"  # on the command line
    keeps_passes = True
    start, step = "random", "decaying"  # of files from before there was a choice
    coef_: Floats
    intercept_: Floats
    loss_: float
    start_loss_: float
    run_losses_: Floats
    n_epochs_: int
    converged_: bool
    linear: FixedPolicy  # after `bind`

    def __init__(
        self,
        *,
        start: str = "warm",
        step: str = "backtracking",
        restarts: int = 20,
        epochs: int = 200,
        tolerance: float = 1e-4,
        epsilon: float = 0.1,
        learning_rate: float = 0.5,
        decay: float = 0.3,
        perturbation: float = 0.01,
        fit_intercept: bool = True,
        standardize: bool = True,
        seed: int = 0,
    ) -> None:
        who = type(self).__name__
        self.start = one_of("start", start, STARTS, who=who)
        self.step = one_of("step", step, STEPS, who=who)
        self.restarts = whole("restarts", restarts, who=who)
        self.epochs = whole("epochs", epochs, who=who)
        self.tolerance = number("tolerance", tolerance, who=who)
        self.epsilon = number("epsilon", epsilon, above=True, who=who)
        self.learning_rate = number("learning_rate", learning_rate, above=True, who=who)
        self.decay = number("decay", decay, who=who)
        self.perturbation = number("perturbation", perturbation, above=True, who=who)
        self.fit_intercept, self.standardize = bool(fit_intercept), bool(standardize)
        self.seed = whole("seed", seed, 0, who=who)

    def _learn(self, log: Any, model: Any, workers: Workers) -> None:
        losses = as_losses(log, model, workers)
        log, completion = losses.log, losses.completion
        log.contexts.refuse_nan(type(self).__name__, PolicyError)
        passes = Passes(log, losses.reader, workers)
        data = look(passes, losses, self.standardize, self.fit_intercept)
        warm = warm_start(passes, completion, data) if self.start == "warm" and data.choice else None
        starts = self._starts(warm, (log.n_actions, log.n_features + 1), data)
        together = max(1, TOGETHER // (log.n_actions * (log.n_features + 1)))
        runs: list[Run] = []
        for group in (starts[first : first + together] for first in range(0, self.restarts, together)):
            runs += self._descend(group, passes, completion, data)
        best = min(runs, key=lambda run: run.loss)  # the first in a tie
        self.coef_, self.intercept_ = data.policy(best.best)
        self.loss_, self.start_loss_ = best.loss, np.nan if warm is None else runs[0].first_loss
        self.run_losses_ = np.array([run.loss for run in runs])
        self.n_epochs_, self.converged_ = max(run.epochs for run in runs), best.converged
        self.remember(log, data.events, data.rewards, passes.skipped, losses.models_of)

    def _starts(self, warm: Floats | None, shape: tuple[int, int], data: Data) -> list[_Start]:
        """The weights of all runs: the warm start and others near it, then random ones."""
        rng = np.random.default_rng(self.seed)
        near = [] if warm is None else [warm] * ((self.restarts + 1) // 2)
        starts = []
        for run in range(self.restarts):
            if run < len(near):
                spread = SPREAD * float(np.sqrt((near[run] ** 2).mean())) if run else 0.0
                starts.append(_Start(data.centred(near[run] + self._random(rng, spread, shape)), warm=True))
            else:
                starts.append(_Start(self._random(rng, self.perturbation, shape), warm=False))
        return starts

    def _random(self, rng: np.random.Generator, scale: float, shape: tuple[int, int]) -> Floats:
        theta = rng.normal(scale=scale, size=shape)
        theta[:, -1] *= self.fit_intercept
        return theta

    def _descend(self, starts: Sequence[_Start], passes: Passes, completion: Completion, data: Data) -> list[Run]:
        """Make runs side by side. With backtracking, runs from random weights take decaying steps first."""
        pass_over = partial(_pass_over, passes, completion, data)
        if self.step == "decaying":
            return descend([self._decaying(start.theta, self.epochs) for start in starts], pass_over)
        settled = descend(
            [self._decaying(start.theta, self.epochs // 2) for start in starts if not start.warm], pass_over
        )
        again = iter(settled)
        runs: list[Run] = []
        for start in starts:
            before = None if start.warm else next(again)
            theta, spent = (start.theta, 0) if before is None else (data.centred(before.best), before.epochs)
            runs.append(Backtracking(theta, self.epochs, self.tolerance, spent))
        return descend(runs, pass_over)

    def _decaying(self, theta: Floats, epochs: int) -> Run:
        return Decaying(theta, epochs, self.epsilon, self.learning_rate, self.decay, self.tolerance)

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        self.require_width(X)
        return Linear(self.coef_, self.intercept_).probabilities(X, eligible)

    @by_name
    def bind(self, log: Log, name: str) -> Self:
        bound = super().bind(log, name)
        bound.linear = Linear(self.coef_, self.intercept_).bind(log, name)
        return bound

    @property
    def rule(self) -> Rule | None:
        return self.linear.rule

    def fill(self, block: Events, out: Floats) -> None:
        self.linear.fill(block, out)


class _Start(NamedTuple):
    theta: Floats
    warm: bool


def _pass_over(passes: Passes, completion: Completion, data: Data, runs: Sequence[Run]) -> list[Found]:
    """One pass over the data, for all runs: the mean loss, move and margin of each."""
    coef, intercept = data.policy(np.concatenate([run.theta for run in runs]))
    epsilon = np.array([run.epsilon for run in runs]) / data.range
    margins = data.choice and any(run.needs_margin for run in runs)
    total = Sums.zeros(len(runs), data.features, completion.n_actions)
    task = partial(_epoch, completion, Weights(coef), intercept, epsilon, margins)
    total = passes.sum_up(task, total, Sums.add)
    losses, margin = ((sums / data.events).tolist() for sums in (total.loss, total.margin))
    return list(zip(losses, data.moves(total), margin, strict=True))


def _epoch(
    completion: Completion,
    weights: Weights,
    intercept: Floats,
    epsilon: Floats,
    margins: bool,
    batches: Iterator[Events],
) -> Sums:
    actions, (columns, features), runs = completion.n_actions, weights.matrix.shape, len(epsilon)
    sums = Sums.zeros(runs, features, actions)
    by_action = None  # moves of dense contexts, (R K, d)
    for batch in batches:
        sparse = isinstance(batch.context, Csr)
        rows = max(256, BLOCK_BYTES // (8 * (columns + actions + (0 if sparse else features))))
        for block in batch.blocks(rows):
            execution.raise_if_stopped()
            n = len(block)
            losses, scores = np.empty((actions, n)), np.empty((columns, n))
            completion.fill(block, losses)
            weights.fill(block, scores)
            completion.exclude(block, scores, -np.inf)
            taken, better = np.empty((runs, n), np.int32), np.empty((runs, n), np.int32)
            dlm.choose(scores, intercept, losses, epsilon, taken, better, sums.loss)
            if margins:
                dlm.add_margins(scores, intercept, sums.margin)
            csr = block.sparse
            if csr is None:
                by_action = np.zeros((columns, features)) if by_action is None else by_action
                dlm.add_moves(taken, better, np.ascontiguousarray(block.features.T), by_action, sums.intercepts)
            else:
                form = csr.indptr, csr.indices, csr.values
                dlm.add_sparse_moves(taken, better, *form, sums.moves, sums.intercepts)
    return sums if by_action is None else sums._replace(moves=by_action.T)
