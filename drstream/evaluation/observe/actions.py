"""Observations on a log whose events share their actions.

What is linear is observed in compiled code, for a batch at a time. Other policies and models are asked in Python, a
block at a time, for numbers of all actions (K, n).
"""

from __future__ import annotations

import numpy as np

from drstream.buffers import invalid_prediction
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.observe.base import Observer, refuse
from drstream.evaluation.observe.categories import OfActions
from drstream.evaluation.observe.linear import LinearObserver, n_predictions
from drstream.evaluation.plan import Plan
from drstream.evaluation.sums import Sums
from drstream.kernels import observe as kernels
from drstream.log import Events
from drstream.log.encoding import Coded
from drstream.models.base import RewardModel
from drstream.models.calibration import Calibration
from drstream.running.execution import raise_if_stopped
from drstream.types import Floats

NO_LIMITS = np.array([-np.inf, np.inf])


class ActionObserver(Observer):
    """Fills in what policies and models say about events."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        job, size = self.job, plan.form.actions * plan.block_rows if self.job.asks else 0
        self._linear = None if job.stack is None else LinearObserver(plan, job.stack)
        self._pi, self._rhat = np.empty(size), np.empty(size)
        self.marginals: OfActions | None = None
        if isinstance(job.embedding, Embedding):
            self.marginals = OfActions(job.embedding, plan.form.actions, plan.block_rows)

    def in_order(self, batch: Events) -> Events:
        """Blocks have one model each; compiled code gathers events of a fold itself, if contexts are numbers."""
        by_fold = self.job.asks or isinstance(batch.context, Coded)
        return super().in_order(batch) if by_fold else batch

    def observe(self, batch: Events, sums: Sums) -> Floats:
        self.begin(batch)
        job = self.job
        if job.models.logger is not None and job.models.logger.policy.direct:
            job.models.logger.fill(batch, np.empty((0, len(batch))), self.row("p", batch))
        for j, policy in enumerate(job.policies):
            if job.direct[j]:
                self.row(f"{j}.pi", batch)[:] = policy.logged(batch, sums.mass[j])
        if self._linear is not None:
            bad = self._linear.observe(batch, self.values, sums)
            if bad is not None:
                self._explain(self._linear, bad)
        if job.asks:
            for block in batch.blocks(self.plan.block_rows):
                raise_if_stopped()
                self.see(block, sums)
        for j in range(len(job.policies)):
            self.weigh_own(j, batch, self.row("p", batch))
        return self.values

    def see(self, block: Events, sums: Sums) -> None:
        """Ask in Python for what compiled code did not fill in."""
        job, models, n = self.job, self.job.models, len(block)
        pi = self._pi[: self.plan.form.actions * n].reshape(-1, n)
        p, rhat = self.row("p", block), None
        if models.logger is not None and not models.logger.policy.direct:
            models.logger.fill(block, pi, p)
        if self.marginals is not None:
            self.marginals.begin(block, models.logger, pi, p, self.row("p.category", block))
        if models.second is not None:
            self._predict(models.second, block, self.row("second", block), None)
        if models.model is not None and (job.asks_model or not job.all_stacked):
            logged, of_all = (self.row("rhat", block), sums.calibration) if job.asks_model else (np.empty(n), None)
            rhat = self._predict(models.model, block, logged, of_all)
        for j, policy in enumerate(job.policies):
            known = job.direct[j] or (job.stacked[j] and not job.asks_model)
            if job.direct[j] or (known and self.marginals is None):
                continue
            policy.fill(block, pi)
            logged = self.row(f"{j}.pi", block)
            if not job.stacked[j]:
                bad = int(kernels.first_improper(pi, block.eligible_bits, sums.mass[j]))
                if bad >= 0:
                    refuse(f"policy {policy.name!r}", pi, block, bad)
                kernels.logged_probability(pi, block.action, logged)
            if rhat is not None and not known:
                kernels.expect(pi, rhat, self.row(f"{j}.b", block))
            if self.marginals is not None:
                whole, covered = self.row(f"{j}.pi.category", block), self.row(f"{j}.pi.covered", block)
                self.marginals.add(pi, block, logged, whole, covered)

    def _predict(self, model: RewardModel, block: Events, logged: Floats, calibration: Calibration | None) -> Floats:
        """Return r̂(x, a) (K, n), and fill in r̂ of the logged actions."""
        models, n = self.job.models, len(block)
        rhat, clipped = self._rhat[: self.plan.form.actions * n].reshape(-1, n), np.zeros(1, np.int64)
        model.fill(block, rhat)
        limits = NO_LIMITS if models.clamp is None else np.array(models.clamp)
        bad = int(kernels.predict(rhat, limits, block.eligible_bits, block.action, logged, clipped))
        if bad >= 0:
            raise invalid_prediction(bad, rhat, block)
        if models.clamp is not None and calibration is not None:
            calibration.predictions += n_predictions(block, len(rhat))
            calibration.clamped += int(clipped[0])
        return rhat

    def _explain(self, linear: LinearObserver, bad: Events) -> None:
        """Raise the error about events of which one has an invalid number: asking in Python names it."""
        self.plan.reader.check_finite(bad)
        alone = self.plan.in_python()
        ActionObserver(alone).observe(bad, alone.create())
        linear.explain(bad)  # in float32, a score may be infinite that is not so in float64
        raise AssertionError(f"the events from {bad.where(0)} on have an invalid number, and then have none")
