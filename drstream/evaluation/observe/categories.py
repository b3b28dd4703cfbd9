"""What policies and the logging policy do with the category of each logged action, for a block of events."""

from __future__ import annotations

import numpy as np

from drstream.evaluation.embedding import Categories, Embedding
from drstream.kernels import marginal as kernels
from drstream.log import Events
from drstream.models.propensity import Logger
from drstream.types import Floats, Ints


class Marginals:
    """Marginal probabilities of a block. A worker reuses its memory."""

    def begin(self, block: Events, logger: Logger | None, pi: Floats, p: Floats, out: Floats) -> None:
        """Begin a block, given the propensities of its logged actions. out = μ(e|x), e the logged action's category.

        logger  Who replaces the propensities of the log. `pi` then has its probabilities, unless it is direct.
        """
        raise NotImplementedError

    def add(self, pi: Floats, block: Events, logged: Floats, whole: Floats, covered: Floats) -> None:
        """Fill in what a policy does, given its probabilities of all actions, and of the logged ones.

        whole    ν(e|x)
        covered  The part of it that is on actions with μ(a|x) > 0.
        """
        raise NotImplementedError


class OfActions(Marginals):
    """On a log of actions: probabilities are (K, n)."""

    def __init__(self, embedding: Embedding, n_actions: int, rows: int) -> None:
        self.codes, self.actions = embedding.codes, n_actions
        self._mu = np.empty(n_actions * rows)

    def begin(self, block: Events, logger: Logger | None, pi: Floats, p: Floats, out: Floats) -> None:
        n = len(block)
        self.mu = self._mu[: self.actions * n].reshape(-1, n)
        mask = block.eligible_mask
        if logger is not None:
            logger.fill_all(block, pi, self.mu)
        elif len(block.propensities):
            self.mu[:] = block.propensities.T
        else:
            self.mu[:] = 1 / (self.actions if mask is None else mask.sum(axis=1))  # uniform
        if mask is not None:
            self.mu *= mask.T
        kernels.marginal_propensities(self.mu, self.codes, block.action, p, out)

    def add(self, pi: Floats, block: Events, logged: Floats, whole: Floats, covered: Floats) -> None:
        about = self.mu, self.codes, block.action, logged
        kernels.marginal_probabilities(pi, *about, whole, covered)


class OfCandidates(Marginals):
    """On a log of candidates: probabilities are flat."""

    mu: Floats
    codes: Ints

    def __init__(self, categories: Categories) -> None:
        self.categories = categories

    def begin(self, block: Events, logger: Logger | None, pi: Floats, p: Floats, out: Floats) -> None:
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
        kernels.ragged_propensities(offered.starts, self.mu, self.codes, block.action, p, out)

    def add(self, pi: Floats, block: Events, logged: Floats, whole: Floats, covered: Floats) -> None:
        about = self.mu, self.codes, block.action, logged
        kernels.ragged_probabilities(block.candidates.starts, pi, *about, whole, covered)
