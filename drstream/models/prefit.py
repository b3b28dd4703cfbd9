"""Reward models that were fitted outside of drstream, and what they share with those that are fitted to a log."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import answer, store
from drstream.errors import ModelError
from drstream.frames import Feed, feature_names, feed_from, uses_context
from drstream.log import Events, Log
from drstream.log.kinds.candidates.pairs import Pairs
from drstream.log.labels import describe_labels
from drstream.models.base import CandidateModel, RewardModel
from drstream.models.candidates import PairsModel
from drstream.models.sample import tidy
from drstream.parameters import check_estimator, scikit_learn
from drstream.types import Floats

WHO = "the reward model"


class Prefitted(RewardModel):
    """r̂(x, a) from one estimator of x and the action, or from one of x for each action. See `from_sklearn(prefit=)`.

    An estimator is given a frame of the log's columns if it knows names, else an array of contexts.
    """

    action_column: str  # set by bind

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.separate = isinstance(estimator, Mapping)
        self.estimators: list[Any] = list(estimator.values()) if self.separate else [estimator]
        self.classifiers: list[bool] = [_rewards_of(one) for one in self.estimators]
        self.feeds: list[Feed | None] = []
        self.labels: Sequence[Any] = ()

    def bind(self, log: Log) -> Self:
        bound: Self = super().bind(log)  # type: ignore[assignment]
        bound.labels, bound.action_column = log.labels, log.roles.action or ""
        if self.separate:
            _check_keys(self.estimator, log.labels)
            bound.estimators = [self.estimator[label] for label in log.labels]
            bound.classifiers = [_rewards_of(one) for one in bound.estimators]
        bound.feeds = [self._feed(one, log) for one in bound.estimators]
        names = [name for feed in bound.feeds if feed is not None for name in feed.schema.names]
        bound.columns = tuple(dict.fromkeys(names))
        bound.uses_context = None in bound.feeds or uses_context(log, bound.columns)
        return bound

    def _feed(self, estimator: Any, log: Log) -> Feed | None:
        """Say how an estimator is fed, and check that its features are in the log."""
        names, action = feature_names(estimator), log.roles.action
        kind, width = type(estimator).__name__, getattr(estimator, "n_features_in_", None)
        if names is None:
            wanted = log.n_features + (0 if self.separate else log.n_actions)
            if width is not None and int(width) != wanted:
                and_actions = "" if self.separate else f" and {log.n_actions} actions, one-hot encoded after them"
                raise ModelError(
                    f"{WHO}: {kind} was fitted on an array of {width} features, and the log has {log.n_features}"
                    f"{and_actions}: fit it on a frame with the names of the log's columns, or open the log with the "
                    "same context="
                )
            return None
        if log.roles.reward in names:
            raise ModelError(f"{WHO}: {kind} was fitted on {log.roles.reward!r}, the log's reward, as a feature")
        if (action in names) == self.separate:
            raise ModelError(
                f"{WHO}: {kind} was fitted on {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}. "
                + (
                    f"One of several estimators cannot have the action {action!r} among its features"
                    if self.separate
                    else f"The log's action column {action!r} is not among them, so it cannot tell actions apart: fit "
                    "it on that column, too, or pass a mapping of labels to estimators, one for each action"
                )
            )
        return feed_from(log, names, estimator, f"{WHO} {kind}", ModelError)

    def predict(self, X: Any) -> NDArray[Any]:
        raise ModelError("from_sklearn: with prefit=True, call predict of the estimator itself")

    def fill(self, block: Events, out: Floats) -> None:
        store(answer(self._predict, block, WHO, block), WHO, ModelError, block, out)

    def _predict(self, block: Events) -> Floats:
        out = np.empty((len(block), len(self.labels)))
        X = None
        for a, label in enumerate(self.labels):
            place = a if self.separate else 0
            feed = self.feeds[place]
            if X is None or self.separate:
                X = tidy(block.matrix) if feed is None else feed.of(block)
            Z = X
            if not self.separate and feed is None:
                Z = with_action(X, np.full(len(block), a), len(self.labels))
            elif not self.separate and feed is not None:
                Z = X.assign(**{self.action_column: feed.constant(self.action_column, label, len(block))})
            out[:, a] = expected_reward(self.estimators[place], Z, self.classifiers[place])
        return out


def prefitted_pairs(estimator: Any, log: Log) -> CandidateModel:
    """Return a model of candidates from an estimator that was fitted on an array of rows [x, z]."""
    if isinstance(estimator, Mapping) or feature_names(estimator) is not None:
        what = "a mapping of estimators" if isinstance(estimator, Mapping) else "an estimator that knows names"
        raise ModelError(
            f"{WHO}: on a log of candidates, prefit=True takes one estimator that was fitted on an array of rows "
            f"[x, z], of a context and of a candidate: got {what}"
        )
    pairs, width = Pairs(log.n_features, log.candidate_features), getattr(estimator, "n_features_in_", None)
    if width is not None and int(width) != pairs.width:
        raise ModelError(
            f"{WHO}: {type(estimator).__name__} was fitted on an array of {width} features, and the log has "
            f"{pairs.context} of the context and {len(pairs.items)} of a candidate"
        )
    return PairsModel(partial(_expected, estimator, _rewards_of(estimator)), pairs)


def _expected(estimator: Any, classifier: bool, rows: NDArray[Any]) -> Floats:
    return expected_reward(estimator, rows, classifier)


def check_prefit(prefit: Any, estimator: Any, columns: Any) -> bool:
    """Check the parameter prefit= together with the estimator, and return it."""
    if prefit not in (True, False):
        raise ModelError(f"from_sklearn: prefit={prefit!r}: it is True or False")
    if isinstance(estimator, Mapping) and not prefit:
        raise ModelError("from_sklearn: a mapping has a fitted estimator for each action: pass prefit=True")
    if not prefit:
        return False
    if columns is not None:
        raise ModelError("from_sklearn: columns= is for a fit; an estimator with prefit=True knows its columns")
    estimators = list(estimator.values()) if isinstance(estimator, Mapping) else [estimator]
    for one in estimators:
        kinds = check_estimator(one, "from_sklearn", "regressor or classifier", ModelError)
        name = type(one).__name__
        if not any(kinds):
            raise ModelError(f"from_sklearn: {name} is neither a regressor nor a classifier")
        if not is_fitted(one):
            raise ModelError(f"from_sklearn: prefit=True, but {name} is not fitted: fit it, or leave out prefit=True")
        _rewards_of(one)
    if not estimators:
        raise ModelError("from_sklearn: the mapping of labels to estimators is empty")
    return True


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator was fitted."""
    check = scikit_learn("sklearn.utils.validation", "from_sklearn", ModelError).check_is_fitted
    try:
        check(estimator)
    except Exception:  # NotFittedError, of scikit-learn or of another library
        return False
    return True


def _rewards_of(estimator: Any) -> bool:
    """Return whether an estimator is a classifier, and check that its classes are rewards."""
    classifier = bool(importlib.import_module("sklearn.base").is_classifier(estimator))
    if not classifier:
        return False
    name, classes = type(estimator).__name__, np.asarray(estimator.classes_)
    if classes.dtype.kind not in "biuf":
        raise ModelError(
            f"from_sklearn: the classes of {name} are {', '.join(map(repr, classes.tolist()[:6]))}, not rewards. If "
            "they are actions, it is a policy: drs.policies.from_sklearn(classifier)"
        )
    if not hasattr(estimator, "predict_proba"):
        raise ModelError(f"from_sklearn: {name} has no predict_proba, hence no expected reward")
    return True


def _check_keys(estimators: Mapping[Any, Any], labels: Sequence[Any]) -> None:
    unknown = [key for key in estimators if key not in labels]
    missing = [label for label in labels if label not in estimators]
    if unknown or missing:
        wrong = f"{unknown[0]!r} is no action" if unknown else f"there is none for {missing[0]!r}"
        raise ModelError(
            f"from_sklearn: the estimators are for {', '.join(map(repr, estimators))}, and the log has "
            f"{describe_labels(labels)}: {wrong}"
        )


def expected_reward(model: Any, X: Any, classifier: bool) -> Floats:
    """Return the prediction of a regressor, or the mean of a classifier's classes, which are rewards."""
    found = model.predict_proba(X) @ np.asarray(model.classes_, np.float64) if classifier else model.predict(X)
    return np.asarray(found, np.float64).reshape(-1)


def as_category(action: NDArray[Any], labels: Sequence[Any]) -> Any:
    """Return actions, given by index, as a pandas category of their labels."""
    pandas = importlib.import_module("pandas")
    return pandas.Categorical.from_codes(action, list(labels)).remove_unused_categories()


def with_action(X: Any, action: NDArray[Any], actions: int) -> Any:
    """Return (n, d + K): the contexts, then the actions one-hot encoded."""
    n, d = X.shape
    if hasattr(X, "tocsr"):
        from scipy import sparse

        parts = np.ones(n, X.dtype), action.astype(np.int32), np.arange(n + 1, dtype=np.int32)
        return sparse.hstack([X, sparse.csr_array(parts, shape=(n, actions))], format="csr")
    out = np.zeros((n, d + actions), X.dtype)
    out[:, :d] = X
    out[np.arange(n), d + action] = 1
    return out
