"""What policies and the logging policy do with the category of each logged action, for a block of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from drstream.evaluation.embedding import Categories, Embedding
from drstream.evaluation.scoring import Group
from drstream.kernels import marginal as kernels
from drstream.kernels.policies import ARGMAX
from drstream.log import Block
from drstream.models.propensity import Logger
from drstream.types import Floats, Ints

DIRECT, RESIDUAL = "direct", "direct_residual"  # terms that tell whether actions matter beside their category


class Marginals:
    """Marginal probabilities of a block, in buffers that a worker reuses.

    propensity  (n,) μ(e|x), e the category of the logged action.
    whole       (policies, n) ν(e|x)
    covered     (policies, n) the part of ν(e|x) that is on actions with μ(a|x) > 0.
    """

    def __init__(self, policies: int, rows: int) -> None:
        self.policies = policies
        self._rows = np.empty((2 * policies + 1) * rows)
        self._none = np.zeros(rows)

    def begin(self, block: Block, logger: Logger | None, pi: Floats, p: Floats) -> None:
        """Begin a block, given the propensities of its logged actions.

        logger  Who replaces the propensities of the log. `pi` then has its probabilities, unless it is direct.
        """
        n = len(block)
        rows = self._rows[: (2 * self.policies + 1) * n].reshape(-1, n)
        self.propensity, self.whole, self.covered = rows[-1], rows[: self.policies], rows[self.policies : -1]
        self.none = self._none[:n]
        self._begin(block, logger, pi, p)

    def _begin(self, block: Block, logger: Logger | None, pi: Floats, p: Floats) -> None:
        raise NotImplementedError

    def add(self, j: int, pi: Floats, block: Block, logged: Floats) -> None:
        """Take down what policy j does, given its probabilities of all actions, and of the logged ones."""
        raise NotImplementedError

    def fill_direct(
        self, j: int, terms: Sequence[str], pi: Floats, p: Floats, r: Floats, rhat: Floats, centre: float, out: Floats
    ) -> None:
        """Fill in the terms of policy j that tell whether actions matter beside their category.

        out  The terms with marginal weights. The weight is the first of them.
        """
        marginal = self.whole[j], self.covered[j]
        if DIRECT in terms:
            kernels.direct_effect(out[0], pi, p, *marginal, r, self.none, centre, out[terms.index(DIRECT)])
        if RESIDUAL in terms:
            kernels.direct_effect(out[0], pi, p, *marginal, r, rhat, 0.0, out[terms.index(RESIDUAL)])


class OfActions(Marginals):
    """On a log of actions: probabilities are (K, n)."""

    def __init__(self, embedding: Embedding, n_actions: int, policies: int, rows: int) -> None:
        super().__init__(policies, rows)
        self.codes, self.actions = embedding.codes, n_actions
        self._mu, self._pi = np.empty((2, n_actions * rows))

    def _begin(self, block: Block, logger: Logger | None, pi: Floats, p: Floats) -> None:
        n = len(block)
        self.mu = self._mu[: self.actions * n].reshape(-1, n)
        mask = block.eligible_mask
        self.sizes = np.full(n, self.actions) if mask is None else mask.sum(axis=1)
        if logger is not None:
            logger.fill_all(block, pi, self.mu)
        elif block.batch.propensities is not None:
            self.mu[:] = block.propensities.T
        else:
            self.mu[:] = 1 / self.sizes  # uniform
        if mask is not None:
            self.mu *= mask.T
        kernels.marginal_propensities(self.mu, self.codes, block.action, p, self.propensity)

    def add(self, j: int, pi: Floats, block: Block, logged: Floats) -> None:
        about = self.mu, self.codes, block.action, logged
        kernels.marginal_probabilities(pi, *about, self.whole[j], self.covered[j])

    def add_stacked(self, group: Group, scores: Any, block: Block, logged: Floats) -> None:
        """The same for policies in the stack, whose scores have become probabilities, or have their intercepts."""
        n, actions, mask = len(block), self.actions, block.eligible_mask
        pi = self._pi[: actions * n].reshape(-1, n)
        for k, (j, kind, epsilon) in enumerate(zip(group.slots, group.kinds, group.epsilons, strict=True)):
            rows = scores[k * actions : (k + 1) * actions]
            if kind == ARGMAX:
                pi[:] = 0
                best = (rows if mask is None else np.where(mask.T, rows, -np.inf)).argmax(axis=0)
                pi[best, np.arange(n)] = 1
            else:
                pi[:] = rows
            if epsilon:
                pi *= 1 - epsilon
                pi += epsilon / self.sizes if mask is None else mask.T * (epsilon / self.sizes)
            self.add(j, pi, block, logged[j])


class OfCandidates(Marginals):
    """On a log of candidates: probabilities are flat."""

    mu: Floats
    codes: Ints

    def __init__(self, categories: Categories, policies: int, rows: int) -> None:
        super().__init__(policies, rows)
        self.categories = categories

    def _begin(self, block: Block, logger: Logger | None, pi: Floats, p: Floats) -> None:
        offered = block.candidates
        if logger is not None:
            self.mu = np.empty(offered.count)
            logger.fill_all(block, pi, self.mu)
        elif offered.propensities is not None:
            self.mu = offered.propensities
        else:
            sizes = np.diff(offered.starts)
            self.mu = np.repeat(1 / sizes, sizes)  # uniform
        self.codes = self.categories.codes(block)
        kernels.ragged_propensities(offered.starts, self.mu, self.codes, block.action, p, self.propensity)

    def add(self, j: int, pi: Floats, block: Block, logged: Floats) -> None:
        about = self.mu, self.codes, block.action, logged
        kernels.ragged_probabilities(block.candidates.starts, pi, *about, self.whole[j], self.covered[j])
