"""Models of the logging policy, μ̂(a|x), for logs whose propensities are missing or doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np

from drstream.buffers import answer, invalid_probabilities, store
from drstream.errors import ModelError, phrase
from drstream.frames import Feed, feed_from, named_columns, uses_context
from drstream.kernels import ragged
from drstream.kernels.observe import SOFTMAX, first_improper, logged_probability
from drstream.log import Events, Log, as_log
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.rows import Folds
from drstream.models.base import RewardModel
from drstream.models.choice_fit import Choices, fit_choices, fit_choices_by_fold
from drstream.models.logistic_fit import NEVER, Regression
from drstream.models.meeting import by_name
from drstream.models.sample import draw, tidy
from drstream.models.trained import Trained, check_width
from drstream.parameters import number, unfitted, whole
from drstream.policies.base import FixedPolicy, as_policy
from drstream.policies.candidates import Scored
from drstream.policies.fixed import Softmax
from drstream.running.execution import Workers
from drstream.shared import SharedWeights
from drstream.types import Floats

NONE = np.empty(0)  # no predictions
NEGLIGIBLE = 1e-300  # a probability that softmax gives to an action that was never logged


class PropensityModel(Trained, FixedPolicy):
    """A model of the logging policy. It gives the propensities p = max(floor, inflation * μ̂(a|x)).

    The footnote of the paper's section 3.4 describes inflation and floor. Inflation above 1, or a floor, lowers the
    variance of weights and adds bias.
    """

    role = "propensity model"
    estimated = True
    inflation: float
    floor: float

    def set_limits(self, inflation: Any, floor: Any) -> None:
        who = type(self).__name__
        self.inflation = number("inflation", inflation, 1, who=who, error=ModelError)
        self.floor = number("floor", floor, 0, 1, who=who, error=ModelError)

    def predict(self, X: Any) -> Floats:
        """Return μ̂(a|x) as (n, K), without inflation and floor."""
        return np.asarray(self.probabilities(X))

    @by_name
    def bind(self, log: Log, name: str) -> Self:
        self.check_fits(log)
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.fitted_on = None  # no longer needed, and not always picklable
        return bound


class Propensity(Regression, PropensityModel):
    """μ̂(a|x) by multinomial logistic regression: minimises C Σ log-loss + |w|² / 2, as scikit-learn does.

    C, fit_intercept  Parameters of the regression.
    inflation, floor  Limits of the propensities, p = max(floor, inflation * μ̂(a|x)).
    interactions      On a log of candidates, μ̂ is a conditional logit (McFadden 1974): proportional to exp(w . z), with
                      weights w that all candidates share. True adds a weight for each product of a feature of the
                      context with one of a candidate.

    It is fitted by streaming, as `Logistic` is. An action that was never logged has probability 0. The model is a
    policy, too. If you evaluate it, its value should be about the log's mean reward.

    In a log with eligible sets, the probabilities of the eligible actions sum to 1, in the fit, too: it finds the
    scores with which a softmax over each event's own set explains the logged actions best.
    """

    choice = True
    softmax: FixedPolicy  # set by bind

    def __init__(
        self,
        C: float = 1.0,
        fit_intercept: bool = True,
        *,
        inflation: float = 1.0,
        floor: float = 0.0,
        interactions: bool = False,
    ) -> None:
        super().__init__(C, fit_intercept)
        self.set_limits(inflation, floor)
        self.interactions = bool(interactions)

    def _fit(self, log: Any, workers: Workers) -> None:
        log = as_log(log, propensities=False)
        if log.has_candidates:
            self._finish_choices(log, *fit_choices(log, 1 / self.C, self.interactions, workers))
        else:
            super()._fit(log, workers)

    def fit_folds(self, log: Log, folds: Folds, workers: Workers) -> list[Self]:
        """Return one model for each fold, fitted on all other folds. The fits share their passes over the log."""
        if not log.has_candidates:
            return super().fit_folds(log, folds, workers)
        found, pairs = fit_choices_by_fold(log, 1 / self.C, self.interactions, folds, workers)
        models = [self.fresh() for _ in found]
        for fold, (model, choices) in enumerate(zip(models, found, strict=True)):
            model._finish_choices(log.part_of(folds.all_but(fold)), choices, pairs)
        return models

    def _finish_choices(self, log: Log, found: Choices, pairs: Pairs) -> None:
        self.remember(log.pairs(pairs.interactions), found.events, found.rewards, found.skipped)
        self.coef_, self.intercept_, self.n_passes_ = found.coef[None], np.zeros(1), found.passes

    @by_name
    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        self.check_fits(log)
        assert self.pairs_ is not None
        return FittedChoice(name, self)

    @staticmethod
    def from_sklearn(classifier: Any, **options: Any) -> SklearnPropensity:
        """Wrap a scikit-learn classifier with predict_proba. Options are those of SklearnPropensity."""
        return SklearnPropensity(classifier, **options)

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        self.require_fit()
        if self.pairs_ is not None:
            raise ModelError("Propensity: a model of candidates gives probabilities on a log only: evaluate it")
        check_width(X, self.n_features_)
        out = Softmax(self.coef_, self.intercept_).probabilities(X, eligible)
        self._drop_unlogged(out.T)
        return out

    def _drop_unlogged(self, pi: Floats) -> None:
        """Set probabilities (K, n) of actions that were never logged to 0, unless no other action is eligible.

        Softmax leaves 1e-304, which would give a weight of 1e304.
        """
        for k in np.flatnonzero(self.intercept_ == NEVER):
            pi[k, pi[k] < NEGLIGIBLE] = 0

    @by_name
    def bind(self, log: Log, name: str) -> Self:
        bound = super().bind(log, name)
        bound.softmax = Softmax(self.coef_, self.intercept_).bind(log, name)
        return bound

    def fill(self, block: Events, out: Floats) -> None:
        self.softmax.fill(block, out)
        self._drop_unlogged(out)


class FittedChoice(Scored):
    """A conditional logit, bound to a log of candidates."""

    estimated = True

    def __init__(self, name: str, model: Propensity) -> None:
        assert model.pairs_ is not None
        shared = SharedWeights.of(model.coef_[0], 0.0, model.pairs_)
        super().__init__(name, SOFTMAX, shared if model.interactions else replace(shared, context=np.zeros((1, 0))))
        self.inflation, self.floor = model.inflation, model.floor


class SklearnPropensity(PropensityModel):
    """μ̂(a|x) from a scikit-learn classifier; made by `Propensity.from_sklearn`. A clone is fitted in memory.

    estimator         Classifier with predict_proba.
    sample            Maximum number of events to fit on. From a longer log, a hash of the row number draws a uniform
                      sample of this size.
    seed              Random seed of the sample.
    inflation, floor  Limits of the propensities, p = max(floor, inflation * μ̂(a|x)).
    columns           Names of columns of the log. The classifier is given a pandas frame of these, with the types and
                      nulls that are stored, instead of contexts.
    """

    classifier_: Any
    kept = ("classifier_",)
    estimators = True
    feed: Feed | None = None  # how the classifier is given columns; None if it is given contexts

    def __init__(
        self,
        estimator: Any,
        *,
        sample: int = 1_000_000,
        seed: int = 0,
        inflation: float = 1.0,
        floor: float = 0.0,
        columns: str | Sequence[str] | None = None,
    ) -> None:
        if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
            name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
            raise ModelError(f"Propensity.from_sklearn: {name}: pass an instance of a classifier with predict_proba")
        who = "Propensity.from_sklearn"
        self.sample = whole("sample", sample, who=who, error=ModelError)
        self.seed = whole("seed", seed, -(2**63), who=who, error=ModelError)
        self.estimator = estimator
        self.columns = named_columns(columns, who, ModelError) if columns else ()
        self.set_limits(inflation, floor)

    def _fit(self, log: Any, workers: Workers) -> None:
        log = as_log(log, propensities=False)
        log.refuse_candidates("Propensity.from_sklearn", "Estimate propensities elsewhere, and name their column")
        _refuse_sets(log)
        if self.columns:
            self._feed(log)
        reader = log.reader(context=self.uses_context, action=True, columns=self.columns)
        schema = None if self.feed is None else self.feed.schema
        sample, skipped = draw(log, self.sample, self.seed, None, workers, reader=reader, schema=schema)
        if sample.seen:
            events = sample.events()
            if (events.action == events.action[0]).all():
                label = log.labels[int(events.action[0])]
                raise ModelError(
                    f"Propensity.from_sklearn: {label!r} is the only action that was logged, so its propensity is 1: "
                    f"pass propensity=drs.policies.Constant({label!r})"
                )
            X = tidy(events.X) if self.feed is None else self.feed.frame(events.X)
            self.classifier_ = unfitted(self.estimator).fit(X, events.action)
        rewards = (events.reward.min(), events.reward.max()) if sample.seen else (np.nan, np.nan)
        self.remember(log, len(events) if sample.seen else 0, rewards, skipped)

    def _feed(self, log: Log) -> None:
        """Find the columns in a log."""
        for name in (log.roles.action, log.roles.reward):
            if name in self.columns:
                raise ModelError(f"Propensity.from_sklearn: columns= has {name!r}, which came after the logging policy")
        self.feed = feed_from(log, self.columns, self.estimator, "the propensity model", ModelError)
        self.uses_context = uses_context(log, self.columns)

    def bind(self, log: Log, name: str) -> Self:
        _refuse_sets(log)
        bound = super().bind(log, name)
        if self.columns:
            bound._feed(log)
        return bound

    def probabilities(self, X: Any) -> Floats:
        """Return μ̂(a|x) as (n, K), for contexts (n, d), or with columns= for a pandas frame that has them."""
        self.require_fit()
        out = np.zeros((X.shape[0], len(self.labels_)))
        X = X[list(self.columns)] if self.columns else tidy(X)
        out[:, np.asarray(self.classifier_.classes_, np.int64)] = self.classifier_.predict_proba(X)
        return out

    def fill(self, block: Events, out: Floats) -> None:
        who, X = "the propensity model", block.matrix if self.feed is None else self.feed.of(block)
        store(answer(self.probabilities, X, who, block), who, ModelError, block, out)


def _refuse_sets(log: Log) -> None:
    if log.roles.eligible is not None:
        raise ModelError(
            f"Propensity.from_sklearn: a classifier knows no eligible sets, and the log has some, in column "
            f"{log.roles.eligible!r}: its probabilities among all actions, divided by their sum over a set, are not "
            "those of a policy that chose from that set. Use drs.models.Propensity(), which is fitted over the sets"
        )


class Logger:
    """Gives propensities of logged actions, from a model of the logging policy or from the policy itself. Picklable."""

    def __init__(self, policy: FixedPolicy) -> None:
        self.policy = policy
        self.inflation = getattr(policy, "inflation", 1.0)
        self.floor = getattr(policy, "floor", 0.0)
        self.estimated = getattr(policy, "estimated", False)  # False if the logging policy itself was given

    @property
    def columns(self) -> tuple[str, ...]:
        return self.policy.columns

    @property
    def uses_context(self) -> bool:
        return self.policy.uses_context

    @property
    def uses_candidates(self) -> bool:
        return self.policy.uses_candidates

    def fill(self, block: Events, pi: Floats, out: Floats) -> None:
        """out[i] <- the propensity of event i; `pi` is space for (K, n), unless the policy is direct.

        On a log of candidates, there is no need for space.
        """
        if self.policy.direct:
            out[:] = self.policy.logged(block)
        elif len(block.candidates):
            starts, flat = block.candidates.starts, np.empty(block.candidates.count)
            self.policy.fill_flat(block, flat)
            first_bad = ragged.observe(starts, flat, NONE, block.action, out, NONE)
            if first_bad >= 0:
                one = flat[starts[first_bad] : starts[first_bad + 1]]
                raise invalid_probabilities("the propensity model", one, block.where(first_bad))
        else:
            self.policy.fill(block, pi)
            first_bad = first_improper(pi, block.eligible_bits, np.zeros(len(pi)))
            if first_bad >= 0:
                about = pi[:, first_bad], block.where(first_bad), block.eligible, first_bad
                raise invalid_probabilities("the propensity model", *about)
            logged_probability(pi, block.action, out)
        out *= self.inflation
        np.maximum(out, self.floor, out=out)
        if not out.min() > 0:
            i = int(np.argmin(out))
            floor = phrase("drs.models.Propensity(floor=0.01)", "--propensity-floor 0.01")
            raise ModelError(
                f"the propensity model gives the logged action the probability {out[i]:g} at {block.where(i)}: give it "
                f"a floor, e.g. {floor}, or fit it on events that have this action"
            )

    def fill_all(self, block: Events, pi: Floats, out: Floats) -> None:
        """out <- the propensities of all actions, after `fill`: (K, n), where `fill` left probabilities in `pi`.

        On a log of candidates, they are flat.
        """
        if len(block.candidates):
            self.policy.fill_flat(block, out)
        elif self.policy.direct:
            self.policy.fill(block, out)
        else:
            out[:] = pi
        out *= self.inflation
        np.maximum(out, self.floor, out=out)


def as_logger(propensity: Any) -> FixedPolicy:
    """Check `propensity=` and return it as a policy: a propensity model, or the logging policy."""
    if isinstance(propensity, type | str | Real):
        raise ModelError(
            f"propensity={propensity!r}: pass a model, e.g. drs.models.Propensity().fit(other_events), or the logging "
            "policy, e.g. drs.policies.Uniform(); a column is named where the log is opened"
        )
    if hasattr(propensity, "fit") and hasattr(propensity, "predict_proba"):
        name = type(propensity).__name__
        raise ModelError(f"propensity={name}(...): wrap it, drs.models.Propensity.from_sklearn({name}(...))")
    if isinstance(propensity, RewardModel):
        raise ModelError(f"propensity={type(propensity).__name__}(...) predicts rewards: pass drs.models.Propensity()")
    return as_policy(propensity, "propensity")
