"""Reward models on a log of candidates: what the models of drstream become when they are bound to one.

A model fills in the predictions for all candidates of a block, one event's after the other's, in a flat array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drstream.buffers import answer
from drstream.kernels.logistic import logistic
from drstream.kernels.observe import LOGISTIC
from drstream.log import Events
from drstream.log.encoding import Encoding
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.models.base import CandidateModel
from drstream.policies.base import FixedPolicy
from drstream.policies.candidates import CandidatePolicy
from drstream.shared import SharedWeights
from drstream.types import Floats

PIECE = 1 << 16  # numbers of pairs that are made at a time for a user's estimator, at most, or one candidate


class SharedModel(CandidateModel):
    """Scores of shared weights, perhaps with a link function. Folds, if any, have weights of their own."""

    def __init__(self, shared: SharedWeights, link: int) -> None:
        self.shared, self.link = shared, link
        self.uses_context = shared.uses_context

    def fill_flat(self, block: Events, out: Floats) -> None:
        folds = len(self.shared.intercept) > 1
        self.shared.fill(block, out, block.fold if folds else None)
        if self.link == LOGISTIC:
            logistic(out)


class PairsModel(CandidateModel):
    """A function of rows [x, z], one for each candidate."""

    def __init__(self, predict: Callable[[Any], Floats], pairs: Pairs) -> None:
        self.predict_rows, self.pairs = predict, pairs

    def fill_flat(self, block: Events, out: Floats) -> None:
        step = max(1, PIECE // self.pairs.width)
        for first in range(0, len(out), step):
            last = min(first + step, len(out))
            rows = self.pairs.all(block, first, last)
            out[first:last] = answer(self.predict_rows, rows, "the reward model", block)


class SeenCandidates(CandidateModel):
    """A bound model that sees the contexts in its own encoding."""

    def __init__(self, model: CandidateModel, encoding: Encoding, others: dict[str, int]) -> None:
        self.model, self.encoding, self.others = model, encoding, others
        self.columns, self.uses_candidates = (*model.columns, *encoding.names), model.uses_candidates

    def fill_flat(self, block: Events, out: Floats) -> None:
        self.model.fill_flat(block.seen_by(self.encoding), out)


class FoldedModel(CandidateModel):
    """One model for each fold, or block of rows. Blocks without a model have r̂ = 0."""

    crossfitted = True

    def __init__(self, models: Sequence[CandidateModel | None], first: int) -> None:
        self.models, self.first = list(models), first
        known = next(model for model in models if model is not None)
        self.uses_context, self.uses_candidates, self.columns = known.uses_context, known.uses_candidates, known.columns

    def unpredicted(self, block: Events) -> int:
        """Return how many of the block's events, its first ones, come before the first model."""
        return int(np.searchsorted(block.fold, self.first)) if self.first else 0

    def fill_flat(self, block: Events, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


def _fill_by_fold(models: Sequence[Any], block: Events, out: Floats) -> None:
    """Have each event's model, or policy, fill in what it says about the event's candidates; 0 where there is none."""
    fold, starts = block.fold, block.candidates.starts
    for f in np.unique(fold).tolist():
        events = np.flatnonzero(fold == f)
        places = np.repeat(fold == f, np.diff(starts))
        found = np.zeros(int(places.sum()))
        if models[f] is not None:
            models[f].fill_flat(block if len(events) == len(block) else block.take(events), found)
        out[places] = found


class FoldedPolicy(CandidatePolicy):
    """A model of the logging policy that is made of one model for each fold, or block of rows."""

    estimated = crossfitted = True

    def __init__(
        self, name: str, models: Sequence[FixedPolicy | None], first: int, inflation: float, floor: float
    ) -> None:
        super().__init__(name)
        self.models, self.first, self.inflation, self.floor = list(models), first, inflation, floor
        known = next(model for model in models if model is not None)
        self.uses_context, self.columns = known.uses_context, known.columns

    def fill_flat(self, block: Events, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


def folded(models: Sequence[CandidateModel | None], first: int) -> CandidateModel:
    """Return the models of all folds as one. Those with shared weights need no copies of events."""
    if all(isinstance(model, SharedModel) for model in models):
        every = [model for model in models if isinstance(model, SharedModel)]
        found = SharedModel(SharedWeights.folded([model.shared for model in every]), every[0].link)
        found.crossfitted = True
        return found
    return FoldedModel(models, first)
