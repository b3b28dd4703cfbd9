"""Policies from functions of contexts or columns, and from classifiers of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.buffers import answer, store
from drstream.errors import PolicyError
from drstream.frames import (
    Feed,
    by_label,
    feature_names,
    feed_from,
    named_columns,
    record_batch,
    refuse_reward,
    stored,
    uses_context,
)
from drstream.kernels.scores import one_hot
from drstream.log import Events, Log
from drstream.log.columns import has_nulls, nulls
from drstream.log.labels import describe_labels
from drstream.log.schema import is_label
from drstream.parameters import is_regressor
from drstream.policies.base import FixedPolicy, Function
from drstream.policies.fixed import choices
from drstream.policies.sets import wants_sets, with_sets
from drstream.types import Floats


class from_function(Function):  # noqa: N801  # reads as a function: drs.policies.from_function(f)
    """A policy from a function that takes contexts (n, d) and returns the probabilities (n, K) of all actions.

    On a log of candidates, the function takes contexts (n, d), the features (M, m) of all candidates, and `starts`
    (n + 1): those of event i are rows starts[i] to starts[i + 1] - 1. It returns M probabilities, which sum to 1 over
    the candidates of each event.

    >>> first_two = from_function(lambda X: np.tile([0.5, 0.5, 0.0], (len(X), 1)))
    >>> first_two.probabilities(np.zeros((1, 2)))
    array([[0.5, 0.5, 0. ]])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise PolicyError(f"from_function: {function!r} is not a function")
        super().__init__(function)


class from_arrow(FixedPolicy):  # noqa: N801  # reads as a function: drs.policies.from_arrow(f, columns=["age"])
    """A policy from a function of columns of the log.

    function  Takes a `pyarrow.RecordBatch` and returns the probabilities (n, K) of all actions, in the order of
              `log.labels`: an array, or anything that NumPy can convert. A frame, or a record batch, whose columns
              have the names of the labels may have them in any order. Or it returns the n labels of the actions that
              it takes: integers or strings. If it has a second parameter, `eligible`, it is given the eligible sets:
              booleans (n, K).
    columns   Names of columns of the log. They have the types and the nulls that are stored.

    >>> import pyarrow.compute as pc
    >>> import drstream as drs
    >>> table = pa.table({"action": ["a", "b"], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "land": ["DE", None]})
    >>> policy = from_arrow(lambda batch: pc.if_else(pc.is_null(batch["land"]), "b", "a"), columns=["land"])
    >>> drs.evaluate(drs.Log(table), policy)["ips"].value
    1.0
    """

    uses_context = False
    schema: pa.Schema  # set by bind, as `labels`
    labels: Sequence[Any]

    def __init__(self, function: Callable[[pa.RecordBatch], Any], columns: str | Sequence[str]) -> None:
        if not callable(function):
            raise PolicyError(f"from_arrow: {function!r} is not a function of a record batch")
        self.function = function
        self.columns = named_columns(columns, "from_arrow", PolicyError)

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.schema = stored(log.source.schema, self.columns, f"policy {name!r}", PolicyError)
        refuse_reward(log, self.columns, f"policy {name!r}", PolicyError)
        bound.labels = log.labels
        return bound

    def probabilities(self, X: Any) -> NDArray[Any]:
        raise PolicyError("from_arrow: the policy is a function of columns, not of X: call the function itself")

    def fill(self, block: Events, out: Floats) -> None:
        who = f"policy {self.name!r}"
        self._wants = self._wants or wants_sets(self.function)
        function = with_sets(self.function, self._wants, block, len(out))
        values = answer(function, record_batch(block, self.schema), who, block)
        labels = _labels(values, len(block))
        if labels is None:
            store(by_label(values, self.labels, who, PolicyError), who, PolicyError, block, out)
            return
        if has_nulls(labels):
            i = int(np.argmax(nulls(labels)))
            raise PolicyError(f"{who} takes no action at {block.where(i)}: the label that it returned is null")
        one_hot(choices(labels, self.labels, f"{who} takes action", block), out)


def _labels(values: Any, n: int) -> pa.Array | None:
    """Return what a function returned if it is a label for each of n events, else None."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        try:
            found = np.asarray(values)
            values = pa.array(found, from_pandas=True) if found.shape == (n,) else found
        except (pa.ArrowException, ValueError, TypeError):  # `store` says what is wrong
            return None
        if not isinstance(values, pa.Array):
            return None
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values if len(values) == n and is_label(values.type) else None


class from_sklearn(FixedPolicy):  # noqa: N801  # reads as a function: drs.policies.from_sklearn(classifier)
    """A fitted classifier whose classes are the actions' labels: of scikit-learn, or one with its interface.

    Its `predict_proba` gives the probabilities. A classifier without `predict_proba` always takes the class that it
    predicts.

    A classifier that was fitted on a frame knows the names of its features. It gets a pandas frame of the log's columns
    of these names, in its own order, with their types and nulls; for LightGBM and XGBoost, text becomes a category. If
    some of them are contexts of the log, rows with bad contexts are errors, or skipped, as for other policies. A
    classifier that was fitted on an array gets the contexts in the order of the log.

    renormalise  Whether to divide the probabilities of eligible actions by their sum, in a log with eligible sets. A
                 classifier knows no sets. Without this, it is an error if it gives other actions a probability.
    """

    def __init__(self, classifier: Any, renormalise: bool = False) -> None:
        name = type(classifier).__name__
        if is_regressor(classifier):
            raise PolicyError(
                f"from_sklearn: {name} is a regressor: it predicts rewards, not actions. Make it a reward model, "
                "model = drs.models.from_sklearn(...).fit(other_events), and play its best action with "
                "drs.policies.Greedy(model)"
            )
        if not hasattr(classifier, "classes_"):
            raise PolicyError(f"{name} has no classes_: fit it before you make it a policy")
        self.classifier = classifier
        self.renormalise = bool(renormalise)
        self.places = np.arange(len(classifier.classes_))
        self.feed: Feed | None = None

    @property
    def known_labels(self) -> Sequence[Any]:
        return np.asarray(self.classifier.classes_).tolist()

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.places = self._places(log, name)
        names = feature_names(self.classifier)
        if names is None:
            check_count(self.classifier, log, f"policy {name!r}")
            return bound
        for leak, role in ((log.roles.action, "action"), (log.roles.reward, "reward")):
            if leak in names:
                raise PolicyError(
                    f"policy {name!r}: the classifier was fitted on {leak!r}, the log's {role}, which no policy knows "
                    "when it acts. If it predicts rewards, make it a reward model, drs.models.from_sklearn(classifier, "
                    "prefit=True), and play its best action with drs.policies.Greedy(model)"
                )
        bound.columns = names
        bound.feed = feed_from(log, names, self.classifier, f"the classifier of policy {name!r}", PolicyError)
        bound.uses_context = uses_context(log, names)
        return bound

    def _places(self, log: Log, name: str) -> NDArray[Any]:
        classes = np.asarray(self.classifier.classes_).tolist()
        unknown = [label for label in classes if label not in log.labels]
        if unknown:
            raise PolicyError(
                f"policy {name!r}: class {unknown[0]!r} of the classifier is not among the "
                f"{describe_labels(log.labels)}. Its classes must be labels of actions, and are "
                f"{', '.join(map(repr, classes[:6]))}{', ...' if len(classes) > 6 else ''}"
            )
        return np.array([log.labels.index(label) for label in classes])

    def fill(self, block: Events, out: Floats) -> None:
        given = block.matrix if self.feed is None else self.feed.of(block)
        who = f"policy {self.name!r}"
        store(answer(self.probabilities, given, who, block), who, PolicyError, block, out)
        mask = block.eligible_mask
        if mask is not None and self.renormalise:
            _renormalise(out, block, who)
        elif mask is not None and (outside := np.where(mask.T, 0.0, out).sum(axis=0)).any():
            i = int(np.argmax(outside != 0))
            raise PolicyError(
                f"{who}: the classifier gives actions that are not eligible the probability {outside[i]:.6g} at "
                f"{block.where(i)}, as it knows no sets. If the others' probabilities shall be divided by their sum, "
                "say so: from_sklearn(classifier, renormalise=True)"
            )

    def probabilities(self, X: Any) -> Floats:
        out = np.zeros((len(X) if not hasattr(X, "shape") else X.shape[0], self.n_actions or len(self.places)))
        if hasattr(self.classifier, "predict_proba"):
            out[:, self.places] = self.classifier.predict_proba(X)
        else:
            chosen = np.searchsorted(self.classifier.classes_, self.classifier.predict(X))
            out[np.arange(len(out)), self.places[chosen]] = 1
        return out


def _renormalise(pi: Floats, block: Events, who: str) -> None:
    """Divide the probabilities (K, n) of eligible actions by their sum."""
    block.hide(pi)
    total = pi.sum(axis=0)
    if not (total > 0).all():
        i = int(np.argmin(total > 0))
        raise PolicyError(
            f"{who}: the classifier gives all eligible actions the probability 0 at {block.where(i)}, so their "
            "probabilities cannot be divided by their sum"
        )
    pi /= total


def check_count(estimator: Any, log: Log, who: str) -> None:
    """Raise an error unless the log has as many features as an estimator that was fitted on an array."""
    wanted = getattr(estimator, "n_features_in_", None)
    if wanted is not None and int(wanted) != log.n_features:
        raise PolicyError(
            f"{who}: {type(estimator).__name__} was fitted on an array of {wanted} features, and the log has "
            f"{log.n_features}: open it with the same context=, or fit the classifier on a frame with the names of the "
            "log's columns, which are then found by name"
        )
