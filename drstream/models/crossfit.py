"""Models by fold: for an event, the one that was fitted on the folds that it is not in."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError, ModelError
from drstream.log import Block, Log
from drstream.log.rows import Folds
from drstream.models.base import RewardModel
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy

Floats = NDArray[np.float64]


class _Fills(Protocol):
    def fill(self, block: Block, out: Floats) -> None: ...


def make_folds(log: Log, crossfit: Any, seed: int, cluster: str | None) -> Folds | None:
    if crossfit is None:
        if cluster is not None:
            raise DrstreamError(f"cluster={cluster!r} is about folds: pass crossfit=5, too")
        return None
    if not isinstance(crossfit, Integral) or isinstance(crossfit, bool) or not 2 <= int(crossfit) <= 1000:
        raise DrstreamError(f"crossfit={crossfit!r}: a number of folds, at least 2")
    if not isinstance(seed, Integral):
        raise DrstreamError(f"fold_seed={seed!r}: a whole number")
    return log.folds(int(crossfit), seed, cluster)


def to_be_fitted(model: Any) -> bool:
    """Whether it is a model that waits for its data: one of ours, or a reward model with a `fit` of its own."""
    if isinstance(model, Trained):
        return not model.fitted
    return isinstance(model, RewardModel) and type(model).fit is not RewardModel.fit and model.fitted_on is None


def fit_folds(model: Any, log: Log, folds: Folds, **how: Any) -> list[Any]:
    """One model for each fold, fitted on all others."""
    if isinstance(model, Trained):
        return model.fit_folds(log, folds, **how)
    return [copy.deepcopy(model).fit(log.part_of(folds.all_but(fold))) for fold in range(folds.count)]


def check_to_be_fitted(*models: Any) -> None:
    if not any(to_be_fitted(model) for model in models):
        raise ModelError(
            "crossfit= fits models that are not yet fitted, and there is none: pass e.g. model=drs.models.Ridge(), or "
            "leave crossfit out"
        )


class CrossFitted(RewardModel):
    """A reward model for each fold."""

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
    """A model of the logging policy for each fold."""

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
