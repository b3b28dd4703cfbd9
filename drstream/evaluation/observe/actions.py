"""Observations of policies and models that are asked in Python, on a log whose events share their actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from drstream.buffers import invalid_prediction
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.observe.base import Observer, refuse
from drstream.evaluation.observe.categories import Marginals, OfActions
from drstream.evaluation.plan import Plan
from drstream.evaluation.sums import Sums
from drstream.kernels import observe as kernels
from drstream.log import Block
from drstream.models.base import RewardModel
from drstream.models.calibration import Calibration
from drstream.types import Floats

NO_LIMITS = np.array([-np.inf, np.inf])


class Actions(Observer):
    """Asks policies and models for numbers of all actions (K, n)."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        job, size = self.job, plan.form.actions * plan.block_rows
        self._pi = np.empty(size)
        self._rhat = np.empty(size if job.models.model is not None or job.models.second is not None else 0)
        self.marginals: Marginals | None = None
        if isinstance(job.embedding, Embedding):
            self.marginals = OfActions(job.embedding, plan.form.actions, plan.block_rows)

    def see(self, block: Block, sums: Sums) -> None:
        job, models, n = self.job, self.job.models, len(block)
        pi = self._pi[: plan_size(self, n)].reshape(-1, n)
        p = self.row("p", block)
        if models.logger is not None:
            models.logger.fill(block, pi, p)
        if self.marginals is not None:
            self.marginals.begin(block, models.logger, pi, p, self.row("p.category", block))
        rhat = None
        if models.second is not None:
            self._predict(models.second, block, self.row("second", block), None)
        if models.model is not None:
            rhat = self._predict(models.model, block, self.row("rhat", block), sums.calibration)
        for j, policy in enumerate(job.policies):
            logged = self.row(f"{j}.pi", block)
            if job.direct[j]:
                logged[:] = policy.logged(block, sums.mass[j])
                continue
            policy.fill(block, pi)
            bad = int(kernels.first_improper(pi, block.eligible_bits, sums.mass[j]))
            if bad >= 0:
                refuse(f"policy {policy.name!r}", pi, block, bad)
            kernels.logged_probability(pi, block.action, logged)
            if rhat is not None:
                kernels.expect(pi, rhat, self.row(f"{j}.b", block))
            if self.marginals is not None:
                self._add_categories(self.marginals, j, block, pi)
        for j in range(len(job.policies)):
            self.weigh_own(j, block, p)

    def see_rest(self, block: Block) -> None:
        """Fill in what a second model predicts, and what policies do with categories, if the rest is known."""
        models, n = self.job.models, len(block)
        if models.second is not None:
            self._predict(models.second, block, self.row("second", block), None)
        if self.marginals is not None:
            pi = self._pi[: plan_size(self, n)].reshape(-1, n)
            self.marginals.begin(block, models.logger, pi, self.row("p", block), self.row("p.category", block))
            for j, policy in enumerate(self.job.policies):
                policy.fill(block, pi)
                self._add_categories(self.marginals, j, block, pi)

    def _add_categories(self, marginals: Marginals, j: int, block: Block, pi: Floats) -> None:
        whole, covered = self.row(f"{j}.pi.category", block), self.row(f"{j}.pi.covered", block)
        marginals.add(pi, block, self.row(f"{j}.pi", block), whole, covered)

    def _predict(self, model: RewardModel, block: Block, logged: Floats, calibration: Calibration | None) -> Any:
        """Return r̂(x, a) (K, n), and fill in r̂ of the logged actions."""
        models, n = self.job.models, len(block)
        rhat, clipped = self._rhat[: plan_size(self, n)].reshape(-1, n), np.zeros(1, np.int64)
        model.fill(block, rhat)
        limits = NO_LIMITS if models.clamp is None else np.array(models.clamp)
        bad = int(kernels.predict(rhat, limits, block.eligible_bits, block.action, logged, clipped))
        if bad >= 0:
            raise invalid_prediction(bad, rhat, block)
        if models.clamp is not None and calibration is not None:
            calibration.predictions += n_predictions(block, len(rhat))
            calibration.clamped += int(clipped[0])
        return rhat


def plan_size(observer: Observer, n: int) -> int:
    """Numbers of all actions, for n events."""
    return observer.plan.form.actions * n


def n_predictions(block: Block, actions: int) -> int:
    """How many predictions there are for a block: those for eligible actions."""
    sets = block.eligible
    return len(block) * actions if sets is None else int(sets.lists.starts[-1] - sets.lists.starts[0])
