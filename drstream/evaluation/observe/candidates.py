"""Observations on a log whose events have candidates of their own: flat arrays, one event's after the other's."""

from __future__ import annotations

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.evaluation.embedding import Categories
from drstream.evaluation.observe.base import Observer
from drstream.evaluation.observe.categories import OfCandidates
from drstream.evaluation.plan import Plan
from drstream.evaluation.sums import Sums
from drstream.kernels import ragged
from drstream.log import Events
from drstream.types import Floats

NONE = np.empty(0)


class CandidateObserver(Observer):
    """Asks policies and models for numbers of all candidates."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        categories = self.job.embedding
        self.marginals = OfCandidates(categories) if isinstance(categories, Categories) else None
        self._pi, self._rhat = NONE, NONE  # they grow if events have very many candidates

    def see(self, block: Events, sums: Sums) -> None:
        job, models = self.job, self.job.models
        starts, count = block.candidates.starts, block.candidates.count  # 0 if policies find all in columns
        self._pi = _of_size(self._pi, count)
        pi, rhat, p = self._pi, NONE, self.row("p", block)
        if models.logger is not None:
            models.logger.fill(block, pi, p)
        if self.marginals is not None:
            self.marginals.begin(block, models.logger, pi, p, self.row("p.category", block))
        if models.model is not None:
            rhat = self._rhat = _of_size(self._rhat, count)
            models.predict_flat(models.model, block, rhat, self.row("rhat", block), sums.calibration)
        if models.second is not None:
            models.predict_flat(models.second, block, pi, self.row("second", block))
        unused = np.empty(len(block))
        for j, policy in enumerate(job.policies):
            logged = self.row(f"{j}.pi", block)
            if job.direct[j]:
                logged[:] = policy.logged(block)
                continue
            policy.fill_flat(block, pi)
            b = unused if models.model is None else self.row(f"{j}.b", block)
            bad = int(ragged.observe(starts, pi, rhat, block.action, logged, b))
            if bad >= 0:
                of_event = pi[starts[bad] : starts[bad + 1]]
                raise invalid_probabilities(f"policy {policy.name!r}", of_event, block.where(bad))
            if self.marginals is not None:
                whole, covered = self.row(f"{j}.pi.category", block), self.row(f"{j}.pi.covered", block)
                self.marginals.add(pi, block, logged, whole, covered)
        for j in range(len(job.policies)):
            self.weigh_own(j, block, p)


def _of_size(space: Floats, size: int) -> Floats:
    """Return space for so many numbers: the same, or more."""
    base = space if space.base is None else space.base
    assert isinstance(base, np.ndarray)
    return (base if len(base) >= size else np.empty(size))[:size]
