"""Cross-fitting: each event is scored by a model that was fitted on the other folds, or on earlier blocks of rows."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol, TypeGuard

import numpy as np

from drstream.errors import DrstreamError, LogError, ModelError, NoEventsError, parameter, phrase
from drstream.findings import LOOK, doubt
from drstream.log import Events, Log
from drstream.log.rows import Blocks, Folds
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.candidates import FoldedPolicy, folded
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy
from drstream.running.execution import Workers
from drstream.types import Floats

FORWARD, FIRST = "forward", 1000  # the first block of crossfit="forward" has FIRST rows, unless the caller says so


class _Fills(Protocol):
    def fill(self, block: Events, out: Floats) -> None: ...


def is_forward(crossfit: Any) -> TypeGuard[str]:
    """Whether models are to be fitted on earlier rows: crossfit="forward", or "forward:500"."""
    return isinstance(crossfit, str) and crossfit.partition(":")[0] == FORWARD


def make_folds(log: Log, crossfit: Any, seed: int, cluster: str | None) -> Folds | Blocks | None:
    if crossfit is None:
        if cluster is not None:
            raise DrstreamError(f"{parameter('cluster', cluster)} is about folds: pass {parameter('crossfit', 5)}, too")
        return None
    if is_forward(crossfit):
        return _make_blocks(log, crossfit, seed, cluster)
    if not isinstance(crossfit, Integral) or isinstance(crossfit, bool) or not 2 <= int(crossfit) <= 1000:
        raise DrstreamError(
            f"{parameter('crossfit', crossfit)}: it must be a whole number of folds, at least 2 and at most 1000, or "
            f"{phrase(repr(FORWARD), FORWARD)}"
        )
    if not isinstance(seed, Integral):
        raise DrstreamError(f"{parameter('fold_seed', seed)}: it must be a whole number")
    return log.folds(int(crossfit), seed, cluster)


def _make_blocks(log: Log, crossfit: str, seed: int, cluster: str | None) -> Blocks:
    first = crossfit.partition(":")[2] if ":" in crossfit else str(FIRST)
    if not (first.isascii() and first.isdigit() and 1 <= int(first) < 2**62):
        raise DrstreamError(
            f"{parameter('crossfit', crossfit)}: after the colon, write the number of rows in the first block, e.g. "
            f"{FORWARD}:{FIRST}"
        )
    for name, given in (("cluster", cluster), ("fold_seed", seed or None)):
        if given is not None:
            raise DrstreamError(
                f"{parameter(name, given)} is about folds, and {parameter('crossfit', crossfit)} has none: it cuts the "
                f"log into blocks of rows. Leave {parameter(name)} out"
            )
    rows = log.source_rows
    if rows is None:  # of a stream that can be read again
        rows = max((part.first_row + part.rows for part in log.parts([log.roles.reward])), default=0)
    return Blocks(int(first), rows)


def to_be_fitted(model: Any) -> bool:
    """Whether it is a model that is not yet fitted: one of drstream's, or a user's with fitted = False."""
    return isinstance(model, Trained | RewardModel) and not getattr(model, "fitted", True)


def fit_folds(model: Any, log: Log, folds: Folds, workers: Workers) -> list[Any]:
    """Return one model for each fold, fitted on all other folds."""
    if isinstance(model, Trained):
        try:
            models = model.fit_folds(log, folds, workers)
        except NoEventsError:
            why = "it is too small" if folds.cluster is None else f"column {folds.cluster!r} has one value only"
            raise LogError(f"all rows of the log fall into one fold, and the others have none: {why}") from None
        _doubt_empty_folds(models, folds)
        return models
    return [copy.deepcopy(model).fit(log.part_of(folds.all_but(fold))) for fold in range(folds.count)]


def fit_forward(model: Any, log: Log, blocks: Blocks, workers: Workers) -> list[Any]:
    """Return a model for each block, fitted on all earlier rows; None for blocks before which there is no event."""
    try:
        models = model.fit_forward(log, blocks, workers) if isinstance(model, Trained) else _own(model, log, blocks)
    except Exception as problem:
        problem.add_note(
            "raised while a model was fitted on earlier rows only: if these were too few, make the first block longer, "
            f"e.g. crossfit='{FORWARD}:{3 * blocks.first}'"
        )
        raise
    if all(model is None for model in models):
        raise LogError(
            "there is no event after the first block, so none has a model of earlier events: the log has "
            f"{blocks.rows:,} rows, and the first block {blocks.first:,}. Make it shorter, e.g. "
            f"{parameter('crossfit', f'{FORWARD}:{max(1, blocks.rows // 10)}')}"
        )
    return models


def _own(model: Any, log: Log, blocks: Blocks) -> list[Any]:
    """Fit a model of the user's own."""
    models: list[Any] = []
    for start in blocks.starts.tolist():
        earlier = log.rows_before(start)
        fits = (models and models[-1] is not None) or not _is_empty(earlier)
        models.append(copy.deepcopy(model).fit(earlier) if fits else None)
    return models


def _is_empty(log: Log) -> bool:
    reader = log.reader(context=True, action=True)
    batches = (batch for part in log.parts(reader.columns) for batch in reader.batches(part, Counter()))
    return next(batches, None) is None


def check_to_be_fitted(*models: Any) -> None:
    if any(to_be_fitted(model) for model in models):
        return
    known = [type(model).__name__ for model in models if model is not None]
    found = f"{' and '.join(known)} can be used as it is" if known else "there is none"
    raise ModelError(
        f"{parameter('crossfit')} fits models that are not yet fitted, and {found}: leave {parameter('crossfit')} out, "
        f"or pass an unfitted model, e.g. {phrase('drs.models.Ridge()', 'ridge')}"
    )


def _doubt_empty_folds(models: list[Trained], folds: Folds) -> None:
    events = sum(model.n_events_ for model in models) // (folds.count - 1)  # each event is in all fits but one
    empty = sum(model.n_events_ == events for model in models)
    if empty:
        what = "rows" if folds.cluster is None else f"values in column {folds.cluster!r}"
        text = (
            f"{empty} of the folds are empty, as there are few {what} for {parameter('crossfit', folds.count)}: "
            "predictions of the others extrapolate. Take fewer folds, or another cluster"
        )
        doubt(LOOK, "folds", None, text)


class CrossFitted(RewardModel):
    """A reward model that is made of one model for each fold, or block of rows. Blocks without a model have r̂ = 0."""

    crossfitted = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        known = [model for model in self.models if model is not None]
        self.first = len(self.models) - len(known)  # the first block with a model; 0 for folds
        self.n_actions, self.uses_context, self.columns = known[0].n_actions, known[0].uses_context, known[0].columns
        if not self.first and all(
            hasattr(model, "reward_range_") for model in known
        ):  # blocks must not know later rewards
            low, high = zip(*(model.reward_range_ for model in known), strict=True)
            self.reward_range_ = min(low), max(high)

    def unpredicted(self, block: Events) -> int:
        """Return how many of the block's events, its first ones, come before the first model."""
        return int(np.searchsorted(block.fold, self.first)) if self.first else 0

    def bind(self, log: Log) -> CrossFitted:
        bound = super().bind(log)
        bound.models = [None if m is None else m.bind(log) for m in self.models]  # type: ignore[attr-defined]
        return bound  # type: ignore[return-value]

    def for_candidates(self, log: Log) -> CandidateModel:
        return folded([None if m is None else m.bind_to(log) for m in self.models], self.first)

    def fill(self, block: Events, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


class CrossFittedPolicy(FixedPolicy):
    """A model of the logging policy that is made of one model for each fold, or block of rows."""

    estimated = crossfitted = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        known = [model for model in self.models if model is not None]
        self.first = len(self.models) - len(known)  # the first block with a model; earlier events are left out
        self.n_actions, self.uses_context, self.columns = known[0].n_actions, known[0].uses_context, known[0].columns
        self.inflation, self.floor = known[0].inflation, known[0].floor

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        bound = [None if m is None else m.bind_to(log, name) for m in self.models]
        return FoldedPolicy(name, bound, self.first, self.inflation, self.floor)

    def bind(self, log: Log, name: str) -> CrossFittedPolicy:
        bound = super().bind(log, name)
        bound.models = [None if m is None else m.bind(log, name) for m in self.models]  # type: ignore[attr-defined]
        return bound  # type: ignore[return-value]

    def fill(self, block: Events, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


def _fill_by_fold(models: Sequence[_Fills | None], block: Events, out: Floats) -> None:
    fold = block.fold
    first, last = int(fold.min()), int(fold.max())
    if first == last:  # so it is in a batch that was put in the order of the folds
        _fill(models[first], block, out)
        return
    for f in range(first, last + 1):
        events = np.flatnonzero(fold == f)
        if len(events):
            part = np.empty((len(out), len(events)))
            _fill(models[f], block.take(events), part)
            out[:, events] = part


def _fill(model: _Fills | None, block: Events, out: Floats) -> None:
    if model is None:
        out[:] = 0
    else:
        model.fill(block, out)
