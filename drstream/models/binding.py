"""From the models that a user gave to those that a pass uses: fitted by fold if asked, and bound to the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from drstream.buffers import PIECE
from drstream.errors import ModelError, parameter, phrase
from drstream.findings import LOOK, doubt
from drstream.kernels import ragged
from drstream.kernels.observe import clamp
from drstream.log import Events, Log
from drstream.log.rows import Blocks, Folds, Origin
from drstream.models.base import CandidateModel, RewardModel, as_model
from drstream.models.calibration import Calibration, summarised
from drstream.models.crossfit import (
    FORWARD,
    CrossFitted,
    CrossFittedPolicy,
    check_to_be_fitted,
    fit_folds,
    fit_forward,
    is_forward,
    make_folds,
    to_be_fitted,
)
from drstream.models.meeting import SeenModel, SeenPolicy
from drstream.models.propensity import Logger, as_logger
from drstream.models.trained import Trained
from drstream.policies.base import FixedPolicy
from drstream.results import ModelSummary
from drstream.running.execution import Workers
from drstream.types import Floats

EVALUATED = "evaluated on"  # use of a model, for messages
KNOWS = "fitted here"  # the check whether a model knows the events that it is used on


@dataclass(frozen=True)
class ModelInputs:
    """The models of rewards and propensities as the caller gave them. A model that no estimator needs is None."""

    model: Any = None
    propensity: Any = None
    crossfit: int | str | None = None
    cluster: str | None = None
    seed: int = 0  # random seed of the folds
    clamp: Any = None
    second: Any = None  # another reward model, which tells the error of the first

    def needed(self, *, model: bool, propensity: bool) -> ModelInputs:
        """Return the inputs without unneeded models, and without folds if no model is left to fit by fold."""
        left = replace(
            self,
            model=self.model if model else None,
            propensity=self.propensity if propensity else None,
            second=self.second if propensity else None,
        )
        if self.waits and not left.waits:
            return replace(left, crossfit=None, cluster=None)
        return left

    @property
    def given(self) -> bool:
        """Whether there is any model."""
        return any(user is not None for user in self.users)

    @property
    def waits(self) -> bool:
        """Whether some model is not yet fitted."""
        return any(map(to_be_fitted, self.users))

    @property
    def forward(self) -> bool:
        """Whether the reward model is to be fitted on earlier rows only, so that the first events have none."""
        return is_forward(self.crossfit) and to_be_fitted(self.model)

    @property
    def users(self) -> tuple[Any, ...]:
        """All models, as they were given."""
        return self.model, self.propensity, self.second


@dataclass(frozen=True)
class BoundModels:
    """The models that a pass uses, bound to a log. It can be pickled if the models can."""

    model: RewardModel | None
    logger: Logger | None
    folds: Folds | Blocks | None
    clamp: tuple[float, float] | None
    second: RewardModel | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for user in self._users if user for column in user.columns)

    @property
    def uses_context(self) -> bool:
        return any(user.uses_context for user in self._users if user)

    @property
    def uses_candidates(self) -> bool:
        """Whether some model looks at features of candidates."""
        return any(user.uses_candidates for user in self._users if user)

    @property
    def _users(self) -> tuple[RewardModel | Logger | None, ...]:
        return self.model, self.logger, self.second

    @property
    def estimated(self) -> bool:
        """Whether propensities are estimated."""
        return self.logger is not None and self.logger.estimated

    @property
    def start(self) -> int:
        """The first row that can be used. With blocks of rows, propensities of the first block cannot be estimated."""
        policy: Any = None if self.logger is None else self.logger.policy
        if not getattr(policy, "crossfitted", False) or not isinstance(self.folds, Blocks):
            return 0
        return int(self.folds.starts[policy.first])

    @property
    def blind_second(self) -> bool:
        """Whether some events that are used come before the first fit of the second reward model. There it is 0."""
        if self.second is None or not self.second.crossfitted or not isinstance(self.folds, Blocks):
            return False
        return int(self.folds.starts[self.second.first]) > self.start

    def unpredicted(self, block: Events) -> int:
        """Return how many of the block's events, its first ones, come before the first reward model. There r̂ is 0."""
        return self.model.unpredicted(block) if isinstance(self.model, CrossFitted | CandidateModel) else 0

    def clamp_predictions(self, rhat: Floats, calibration: Calibration) -> None:
        """Clip predictions to the clamp, in place, and count those that change."""
        if self.clamp is not None:
            low, high = self.clamp
            calibration.predictions += rhat.size
            assert rhat.flags.c_contiguous  # else reshape would copy, and nothing would be clipped
            calibration.clamped += int(clamp(rhat.reshape(-1), low, high))

    def predict_flat(
        self, model: RewardModel, block: Events, rhat: Floats, logged: Floats, calibration: Calibration | None = None
    ) -> None:
        """Fill in the predictions for all candidates of a block, within the clamp, and those for the logged ones."""
        assert isinstance(model, CandidateModel)
        model.fill_flat(block, rhat)
        starts = block.candidates.starts
        low, high = (-np.inf, np.inf) if self.clamp is None else self.clamp
        clipped = np.zeros(1, np.int64)
        bad = int(ragged.predict(starts, low, high, block.action, rhat, logged, clipped))
        if bad >= 0:
            event = int(np.searchsorted(starts, bad, side="right")) - 1
            which = block.candidates.shown(event, bad - int(starts[event]))
            raise ModelError(f"the reward model predicts {rhat[bad]} for {which} at {block.where(event)}")
        if self.clamp is not None and calibration is not None:
            calibration.predictions += len(rhat)
            calibration.clamped += int(clipped[0])

    def propensities(self, block: Events, pi: Floats, out: Floats) -> Floats:
        """Return propensities of logged actions: from the log, or computed into `out`. `pi` is space for (K, n)."""
        if self.logger is None:
            return block.propensity
        self.logger.fill(block, pi, out)
        return out

    def propensities_of_many(self, block: Events, n_actions: int) -> Floats:
        """Return propensities of logged actions for a block of any length, computed piece by piece."""
        if self.logger is None:
            return block.propensity
        out = np.empty(len(block))
        for piece in block.blocks(PIECE):
            place = slice(piece.start - block.start, piece.stop - block.start)
            needed = 0 if self.logger.policy.direct else n_actions
            self.logger.fill(piece, np.empty((needed, len(piece))), out[place])
        return out

    @property
    def about(self) -> ModelSummary:
        """What a result reports about these models, as far as it is known before the pass."""
        logger = None if self.logger is None else self.logger.policy
        return ModelSummary(
            crossfit=FORWARD if isinstance(self.folds, Blocks) else None if self.folds is None else self.folds.count,
            blocks=self.folds.count if isinstance(self.folds, Blocks) else 0,
            blind_second=self.blind_second,
            crossfitted=(
                self.model is not None and self.model.crossfitted,
                getattr(logger, "crossfitted", False),
            ),
            estimated_propensities=self.estimated,
        )

    def summary(self, calibration: Calibration) -> ModelSummary:
        """Return what a result reports about these models."""
        return summarised(self.about, calibration, model=self.model is not None, logger=self.logger is not None)


def bind_models(log: Log, inputs: ModelInputs, workers: Workers, use: str = EVALUATED) -> BoundModels:
    """Fit models by fold if asked, and bind all models to the log."""
    model = None if inputs.model is None else as_model(inputs.model)
    second = None if inputs.second is None else as_model(inputs.second)
    policy = None if inputs.propensity is None else as_logger(inputs.propensity)
    folds = make_folds(log, inputs.crossfit, inputs.seed, inputs.cluster)
    if folds is not None:
        check_to_be_fitted(model, policy, second)
        fit = fit_forward if isinstance(folds, Blocks) else fit_folds
        if to_be_fitted(policy):
            policy = CrossFittedPolicy(fit(policy, log, folds, workers))  # type: ignore[arg-type]
        if to_be_fitted(model):
            model = CrossFitted(fit(model, log, folds, workers))  # type: ignore[arg-type]
        if to_be_fitted(second):
            second = CrossFitted(fit(second, log, folds, workers))  # type: ignore[arg-type]
    for role, user in (("reward model", model), ("propensity model", policy), ("second reward model", second)):
        _doubt_if_it_knows(getattr(user, "fitted_on", None), log, role, use)
    for user in (model, second):
        if isinstance(user, Trained):
            user.require_fit()
    clamp = _clamp(inputs.clamp, model)
    bound = None if policy is None else _bind_logger(policy, log)
    of_rewards = [None if user is None else user.bind_to(log) for user in (model, second)]
    return BoundModels(of_rewards[0], bound, folds, clamp, of_rewards[1])


def others_of(policies: Sequence[FixedPolicy], models: BoundModels) -> dict[str, dict[str, int]]:
    """Return the events whose categories bound policies and models do not know, by who does not, and by column."""
    named: dict[str, Any] = {f"policy {policy.name!r}": _inner(policy) for policy in policies}
    named |= {"the reward model": models.model, "the second reward model": models.second}
    named["the propensity model"] = None if models.logger is None else models.logger.policy
    seen = {who: user.others for who, user in named.items() if isinstance(user, SeenModel | SeenPolicy)}
    return {who: others for who, others in seen.items() if others}


def _inner(user: Any) -> Any:
    """Return what a policy of another policy or of a model rests on, as far as it has an encoding of its own."""
    while user is not None and not isinstance(user, SeenModel | SeenPolicy):
        user = getattr(user, "base", None) or getattr(user, "model", None)
    return user


def _bind_logger(policy: FixedPolicy, log: Log) -> Logger:
    bound = policy.bind_to(log, "propensity")
    if bound.only_logged:
        raise ModelError(
            "propensity=Column(...) of one number a row: name that column where you open the log, with propensity="
        )
    return Logger(bound)


_WHY = {
    "reward model": "flatters DM and DR",
    "second reward model": "makes the error of the first one seem larger or smaller than it is",
    "propensity model": "breaks the independence that IPS and DR rest on",
}


def _doubt_if_it_knows(origin: Origin | None, log: Log, role: str, use: str) -> None:
    if origin is None or not origin.shares_rows_with(log.origin):
        return
    why = _WHY[role]
    by_fold = f"with {parameter('crossfit', 5)}" if use == EVALUATED else "to have it cross-fitted"
    split = phrase("train, test = log.split(0.5)", "drstream fit --share 0.5")
    text = (
        f"the {role} was fitted on events that it is now {use}, which {why}: pass an unfitted one {by_fold}, or fit "
        f"it on other events, e.g. {split}"
    )
    doubt(LOOK, KNOWS, None, text)


def no_propensities() -> str:
    """Return the advice for a log without propensities, when none were given."""
    return phrase(
        "and the log has none: name their column with propensity= where you open it; or pass propensity=, here a "
        "model, e.g. drs.models.Propensity() with crossfit=5, or the logging policy, e.g. drs.policies.Uniform()",
        "and the log has none: name their column with --propensity, or give --propensity-model: logistic with "
        "--crossfit 5, say, or uniform",
    )


def _clamp(clamp: Any, model: RewardModel | None) -> tuple[float, float] | None:
    if clamp is None or clamp is False:
        return None
    if model is None:
        raise ModelError(f"{parameter('clamp', clamp)} is about a reward model's predictions, and nothing uses one")
    if clamp is True:
        found: tuple[float, float] | None = getattr(model, "reward_range_", None)
        if found is None:
            raise ModelError(
                f"{phrase('clamp=True', '--clamp range')} is the range of rewards that the model was fitted on, and it "
                f"knows none: give {phrase('(low, high)', 'LOW,HIGH')}"
            )
        return found
    pair = tuple(clamp) if isinstance(clamp, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(x, Real) for x in pair) or not pair[0] <= pair[1]:
        raise ModelError(f"{parameter('clamp', clamp)}: it must be True, or the range of rewards as (low, high)")
    return float(pair[0]), float(pair[1])
