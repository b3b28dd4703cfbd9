"""From the models that were given to those that a pass uses: fitted by fold where asked, and bound to the log."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from drstream.buffers import PIECE
from drstream.errors import ModelError
from drstream.log import Block, Log
from drstream.log.rows import Folds, Origin
from drstream.models.base import RewardModel, as_model
from drstream.models.calibration import Calibration
from drstream.models.crossfit import (
    CrossFitted,
    CrossFittedPolicy,
    check_to_be_fitted,
    fit_folds,
    make_folds,
    to_be_fitted,
)
from drstream.models.propensity import Logger, as_logger
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy
from drstream.types import Floats

EVALUATED = "evaluated on"  # what a model is used for


@dataclass(frozen=True)
class Given:
    """What the caller said of rewards and propensities; what no estimator needs is None."""

    model: Any = None
    propensity: Any = None
    crossfit: int | None = None
    cluster: str | None = None
    seed: int = 0  # of the folds
    clamp: Any = None

    def needed(self, *, model: bool, propensity: bool) -> Given:
        """Only what estimators need; without folds, if all that was to be fitted by them is not."""
        left = replace(self, model=self.model if model else None, propensity=self.propensity if propensity else None)
        if self.waits and not left.waits:
            return replace(left, crossfit=None, cluster=None)
        return left

    @property
    def waits(self) -> bool:
        """Whether some model is yet to be fitted."""
        return to_be_fitted(self.model) or to_be_fitted(self.propensity)


@dataclass(frozen=True)
class Used:
    """The same, bound to a log. It can be pickled if the models can."""

    model: RewardModel | None
    logger: Logger | None
    folds: Folds | None
    clamp: tuple[float, float] | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for user in (self.model, self.logger) if user for column in user.columns)

    @property
    def uses_context(self) -> bool:
        return any(user.uses_context for user in (self.model, self.logger) if user)

    def hold(self, rhat: Floats, calibration: Calibration) -> None:
        """Hold predictions within the clamp, in place."""
        if self.clamp is not None:
            low, high = self.clamp
            calibration.predictions += rhat.size
            calibration.clamped += int(np.count_nonzero((rhat < low) | (rhat > high)))
            np.clip(rhat, low, high, out=rhat)

    def propensities(self, block: Block, pi: Floats, out: Floats) -> Floats:
        """Of the logged actions: from the log, or estimated into `out`, with `pi` as room for (K, n)."""
        if self.logger is None:
            return block.propensity
        self.logger.fill(block, pi, out)
        return out

    def propensities_of_many(self, block: Block, n_actions: int) -> Floats:
        """The same for a block of any length, piece by piece."""
        if self.logger is None:
            return block.propensity
        out = np.empty(len(block))
        for piece in block.pieces(PIECE):
            place = slice(piece.start - block.start, piece.stop - block.start)
            self.logger.fill(piece, np.empty((n_actions, len(piece))), out[place])
        return out

    @property
    def crossfitted(self) -> tuple[bool, bool]:
        """Whether the reward model was fitted by fold, and whether the propensity model was."""
        logger = None if self.logger is None else self.logger.policy
        return isinstance(self.model, CrossFitted), isinstance(logger, CrossFittedPolicy)


def most_actions(given: Given) -> int:
    """K, where a model knows it."""
    return max(getattr(user, "n_actions", None) or 0 for user in (given.model, given.propensity, 0))


def prepare(log: Log, given: Given, how: dict[str, Any], stacklevel: int, use: str = EVALUATED) -> Used:
    """Fit by fold what is to be, and bind all of it to the log; `how` is threads, executor and progress of fits."""
    model = None if given.model is None else as_model(given.model)
    policy = None if given.propensity is None else as_logger(given.propensity)
    folds = make_folds(log, given.crossfit, given.seed, given.cluster)
    if folds is not None:
        check_to_be_fitted(model, policy)
        if to_be_fitted(policy):
            policy = CrossFittedPolicy(fit_folds(policy, log, folds, **how))
        if to_be_fitted(model):
            model = CrossFitted(fit_folds(model, log, folds, **how))
    for role, user in (("reward model", model), ("propensity model", policy)):
        _warn_if_it_knows(getattr(user, "fitted_on", None), log, role, use, stacklevel + 1)
    if isinstance(model, Trained):
        model.require_fit()
    clamp = _clamp(given.clamp, model)
    bound = None if policy is None else _bind_logger(policy, log)
    return Used(None if model is None else model.bind(log), bound, folds, clamp)


def _bind_logger(policy: FixedPolicy, log: Log) -> Logger:
    bound = policy.bind(log, "propensity")
    if bound.only_logged:
        raise ModelError(
            "propensity=Column(...) of one number a row: name that column where the log is opened, with propensity="
        )
    return Logger(bound)


def _warn_if_it_knows(origin: Origin | None, log: Log, role: str, use: str, stacklevel: int) -> None:
    if origin is None or not origin.shares_rows_with(log.origin):
        return
    why = "flatters DM and DR" if role == "reward model" else "breaks the independence that IPS and DR rest on"
    by_fold = "with crossfit=5" if use == EVALUATED else "to have it cross-fitted"
    warnings.warn(
        f"the {role} was fitted on events that it is now {use}, which {why}: pass an unfitted one {by_fold}, or fit "
        "it on other events, e.g. train, test = log.split(0.5)",
        stacklevel=stacklevel + 1,
    )


def _clamp(clamp: Any, model: RewardModel | None) -> tuple[float, float] | None:
    if clamp is None or clamp is False:
        return None
    if model is None:
        raise ModelError(f"clamp={clamp!r} is about a reward model's predictions, and no estimator uses one")
    if clamp is True:
        found: tuple[float, float] | None = getattr(model, "reward_range_", None)
        if found is None:
            raise ModelError("clamp=True is the range of rewards of the model's fit, and it has none: give (low, high)")
        return found
    pair = tuple(clamp) if isinstance(clamp, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(x, Real) for x in pair) or not pair[0] <= pair[1]:
        raise ModelError(f"clamp={clamp!r}: True, or the range of rewards as (low, high)")
    return float(pair[0]), float(pair[1])
