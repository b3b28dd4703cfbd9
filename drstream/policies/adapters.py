"""Policies from other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drstream.errors import PolicyError
from drstream.log import Log
from drstream.log.reader import describe_labels
from drstream.policies.base import FixedPolicy
from drstream.types import Floats


class from_sklearn(FixedPolicy):  # noqa: N801  # reads as a function: drs.policies.from_sklearn(classifier)
    """A fitted scikit-learn classifier whose classes are the actions' labels.

    Its `predict_proba` gives the probabilities. A classifier without `predict_proba` always takes the class that it
    predicts.
    """

    def __init__(self, classifier: Any) -> None:
        if not hasattr(classifier, "classes_"):
            raise PolicyError(f"{type(classifier).__name__} has no classes_: fit it before you make it a policy")
        self.classifier = classifier
        self.places = np.arange(len(classifier.classes_))

    @property
    def known_labels(self) -> Sequence[Any]:
        return np.asarray(self.classifier.classes_).tolist()

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        for label in self.classifier.classes_.tolist():
            if label not in log.labels:
                raise PolicyError(
                    f"policy {name!r}: class {label!r} of the classifier is not among the {describe_labels(log.labels)}"
                )
        bound.places = np.array([log.labels.index(label) for label in self.classifier.classes_.tolist()])
        return bound

    def probabilities(self, X: NDArray[Any]) -> Floats:
        out = np.zeros((X.shape[0], self.n_actions or len(self.places)))
        if hasattr(self.classifier, "predict_proba"):
            out[:, self.places] = self.classifier.predict_proba(X)
        else:
            chosen = np.searchsorted(self.classifier.classes_, self.classifier.predict(X))
            out[np.arange(X.shape[0]), self.places[chosen]] = 1
        return out
