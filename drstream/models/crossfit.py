"""Cross-fitting: each event is scored by the model that was fitted on the other folds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from drstream.errors import DrstreamError, LogError, ModelError, NoEventsError, parameter, phrase, warn_user
from drstream.execution import Workers
from drstream.log import Block, Log
from drstream.log.rows import Folds
from drstream.models.base import RewardModel
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy
from drstream.types import Floats


class _Fills(Protocol):
    def fill(self, block: Block, out: Floats) -> None: ...


def make_folds(log: Log, crossfit: Any, seed: int, cluster: str | None) -> Folds | None:
    if crossfit is None:
        if cluster is not None:
            raise DrstreamError(f"{parameter('cluster', cluster)} is about folds: pass {parameter('crossfit', 5)}, too")
        return None
    if not isinstance(crossfit, Integral) or isinstance(crossfit, bool) or not 2 <= int(crossfit) <= 1000:
        raise DrstreamError(
            f"{parameter('crossfit', crossfit)}: it must be a whole number of folds, at least 2 and at most 1000"
        )
    if not isinstance(seed, Integral):
        raise DrstreamError(f"{parameter('fold_seed', seed)}: it must be a whole number")
    return log.folds(int(crossfit), seed, cluster)


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
        _warn_of_empty_folds(models, folds)
        return models
    return [copy.deepcopy(model).fit(log.part_of(folds.all_but(fold))) for fold in range(folds.count)]


def check_to_be_fitted(*models: Any) -> None:
    if any(to_be_fitted(model) for model in models):
        return
    known = [type(model).__name__ for model in models if model is not None]
    found = f"{' and '.join(known)} can be used as it is" if known else "there is none"
    raise ModelError(
        f"{parameter('crossfit')} fits models that are not yet fitted, and {found}: leave {parameter('crossfit')} out, "
        f"or pass an unfitted model, e.g. {phrase('drs.models.Ridge()', 'ridge')}"
    )


def _warn_of_empty_folds(models: list[Trained], folds: Folds) -> None:
    events = sum(model.n_events_ for model in models) // (folds.count - 1)  # each event is in all fits but one
    empty = sum(model.n_events_ == events for model in models)
    if empty:
        what = "rows" if folds.cluster is None else f"values in column {folds.cluster!r}"
        warn_user(
            f"{parameter('crossfit', folds.count)}: {empty} of the folds are empty, as there are few {what}: "
            "predictions of the others extrapolate. Take fewer folds, or another cluster"
        )


class CrossFitted(RewardModel):
    """A reward model that is made of one model for each fold."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        self.n_actions = self.models[0].n_actions
        self.uses_context = self.models[0].uses_context
        self.columns = self.models[0].columns
        if all(hasattr(model, "reward_range_") for model in self.models):
            low, high = zip(*(model.reward_range_ for model in self.models), strict=True)
            self.reward_range_ = min(low), max(high)

    def bind(self, log: Log) -> CrossFitted:
        bound = super().bind(log)
        bound.models = [model.bind(log) for model in self.models]  # type: ignore[attr-defined]
        return bound  # type: ignore[return-value]

    def fill(self, block: Block, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


class CrossFittedPolicy(FixedPolicy):
    """A model of the logging policy that is made of one model for each fold."""

    estimated = True

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)
        self.n_actions = self.models[0].n_actions
        self.uses_context = self.models[0].uses_context
        self.inflation, self.floor = self.models[0].inflation, self.models[0].floor

    def bind(self, log: Log, name: str) -> CrossFittedPolicy:
        bound = super().bind(log, name)
        bound.models = [model.bind(log, name) for model in self.models]  # type: ignore[attr-defined]
        return bound  # type: ignore[return-value]

    def fill(self, block: Block, out: Floats) -> None:
        _fill_by_fold(self.models, block, out)


def _fill_by_fold(models: Sequence[_Fills], block: Block, out: Floats) -> None:
    fold = block.fold
    for f, model in enumerate(models):
        events = np.flatnonzero(fold == f)
        if len(events) == len(block):
            model.fill(block, out)
        elif len(events):
            part = np.empty((len(out), len(events)))
            model.fill(block.take(events), part)
            out[:, events] = part
