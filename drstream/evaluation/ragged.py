"""What policies and models say about a block of events that have candidates of their own.

Probabilities and predictions are flat, one event's candidates after the other's. All that comes after them, from
weights to intervals, is that of other logs.
"""

from __future__ import annotations

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.errors import ModelError
from drstream.evaluation.terms import Tally, Workspace
from drstream.kernels import ragged
from drstream.log import Block
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.calibration import Calibration
from drstream.types import Floats

NONE = np.empty(0)


class RaggedSpace(Workspace):
    """Buffers that a worker reuses for each block. Those of candidates grow if events have very many."""

    _pi, _rhat = NONE, NONE

    def see(self, block: Block, tally: Tally) -> None:
        job, models = self.job, self.job.models
        rhat = NONE
        if models.model is not None:
            rhat = self._rhat = _of_size(self._rhat, block.candidates.count)
            self._predict(models.model, block, rhat, self.logged_rhat, tally.calibration)
            tally.calibration.add(self.logged_rhat, block.reward, models.unpredicted(block))
            if job.bounds.predictions and job.bounds.reward_range is not None:
                starts = block.candidates.starts
                tally.note_outside("prediction", None, rhat, *job.bounds.reward_range, block, starts)
        if models.second is not None:
            self._pi = _of_size(self._pi, block.candidates.count)
            self._predict(models.second, block, self._pi, self.logged_second)
        for j, policy in enumerate(job.policies):
            if job.direct[j]:
                self.logged[j] = policy.logged(block)
                continue
            starts, pi = block.candidates.starts, _of_size(self._pi, block.candidates.count)
            self._pi = pi
            policy.fill_flat(block, pi)
            places = self.logged[j], self.all_terms[job.predicted[j]]
            bad = int(ragged.observe(starts, pi, rhat, block.action, *places))
            if bad >= 0:
                of_event = pi[starts[bad] : starts[bad + 1]]
                raise invalid_probabilities(f"policy {policy.name!r}", of_event, block.where(bad))

    def _predict(
        self, model: RewardModel, block: Block, rhat: Floats, logged: Floats, calibration: Calibration | None = None
    ) -> None:
        """Fill in the predictions for all candidates, and those for the logged ones."""
        assert isinstance(model, CandidateModel)
        model.fill_flat(block, rhat)
        starts, clamp = block.candidates.starts, self.job.models.clamp
        low, high = (-np.inf, np.inf) if clamp is None else clamp
        clipped = np.zeros(1, np.int64)
        bad = int(ragged.predict(starts, low, high, block.action, rhat, logged, clipped))
        if bad >= 0:
            event = int(np.searchsorted(starts, bad, side="right")) - 1
            which = block.candidates.shown(event, bad - int(starts[event]))
            raise ModelError(f"the reward model predicts {rhat[bad]} for {which} at {block.where(event)}")
        if clamp is not None and calibration is not None:
            calibration.predictions += len(rhat)
            calibration.clamped += int(clipped[0])


def _of_size(space: Floats, size: int) -> Floats:
    """Return space for so many numbers: the same, or more."""
    base = space if space.base is None else space.base
    assert isinstance(base, np.ndarray)
    return (base if len(base) >= size else np.empty(size))[:size]
