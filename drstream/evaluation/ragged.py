"""What policies and models say about a block of events that have candidates of their own.

Probabilities and predictions are flat, one event's candidates after the other's. All that comes after them, from
weights to intervals, is that of other logs.
"""

from __future__ import annotations

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.evaluation.tally import Tally
from drstream.evaluation.terms import Job, Workspace
from drstream.kernels import ragged
from drstream.log import Block
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
            models.predict_flat(models.model, block, rhat, self.logged_rhat, tally.calibration)
            tally.calibration.add(self.logged_rhat, block.reward, models.unpredicted(block))
            if job.bounds.predictions and job.bounds.reward_range is not None:
                starts = block.candidates.starts
                tally.note_outside("prediction", None, rhat, *job.bounds.reward_range, block, starts)
        if models.second is not None:
            self._pi = _of_size(self._pi, block.candidates.count)
            models.predict_flat(models.second, block, self._pi, self.logged_second)
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
            if self.marginals is not None:
                self.marginals.add(j, pi, block, self.logged[j])


def space_for(job: Job, rows: int) -> Workspace:
    """Return buffers for blocks of at most so many rows, of a log of either kind."""
    return (RaggedSpace if job.candidates else Workspace)(job, rows)


def _of_size(space: Floats, size: int) -> Floats:
    """Return space for so many numbers: the same, or more."""
    base = space if space.base is None else space.base
    assert isinstance(base, np.ndarray)
    return (base if len(base) >= size else np.empty(size))[:size]
