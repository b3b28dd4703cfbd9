"""Policies from other libraries."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drstream.errors import PolicyError
from drstream.log import Log
from drstream.policies.base import FixedPolicy, Floats


class from_sklearn(FixedPolicy):  # noqa: N801  # reads as a function: drs.policies.from_sklearn(classifier)
    """A fitted scikit-learn classifier whose classes are the actions' labels (or indices).

    Its `predict_proba` gives the probabilities; a classifier without one takes the class that it predicts.
    """

    def __init__(self, classifier: Any) -> None:
        if not hasattr(classifier, "classes_"):
            raise PolicyError(f"{type(classifier).__name__} has no classes_: fit it before you make it a policy")
        self.classifier = classifier
        self.places = np.arange(len(classifier.classes_))

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        labels = list(log.labels)
        places = []
        for label in self.classifier.classes_.tolist():
            if label not in labels and not (isinstance(label, int) and 0 <= label < len(labels)):
                raise PolicyError(f"policy {name!r}: class {label!r} of the classifier is not an action of the log")
            places.append(labels.index(label) if label in labels else label)
        bound.places = np.array(places)
        return bound

    def probabilities(self, X: NDArray[Any]) -> Floats:
        out = np.zeros((len(X), self.n_actions or len(self.places)))
        if hasattr(self.classifier, "predict_proba"):
            out[:, self.places] = self.classifier.predict_proba(X)
        else:
            chosen = np.searchsorted(self.classifier.classes_, self.classifier.predict(X))
            out[np.arange(len(X)), self.places[chosen]] = 1
        return out
