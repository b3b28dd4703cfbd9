"""What the tests of trees share: a log, base classifiers, and a recorder of their fits."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.tree import DecisionTreeClassifier

from drstream.optimize.trees import FilterTree, OffsetTree
from tests.helpers.passes import PLAIN

K, D = 4, 3
ROWS = 400 if PLAIN else 2_000
LEARNERS = [FilterTree, OffsetTree]
STUMP = DecisionTreeClassifier(max_depth=2, random_state=0)


def same(one, other, X):
    """Not only what is chosen, but each classifier."""
    np.testing.assert_array_equal(one.choose(X), other.choose(X))
    np.testing.assert_array_equal(one.children_, other.children_)
    for a, b in zip(one.classifiers_, other.classifiers_, strict=True):
        assert type(a) is type(b)
        if isinstance(a, int):
            assert a == b
        else:
            assert a.tree_.threshold.tolist() == b.tree_.threshold.tolist()
            np.testing.assert_allclose(a.tree_.value, b.tree_.value, rtol=1e-12)


class Recorder(ClassifierMixin, BaseEstimator):
    """A small decision tree that writes down what it was fitted on."""

    calls: list = []  # noqa: RUF012  # of all clones

    def fit(self, X, y, sample_weight=None):
        self.calls.append((X, y, sample_weight))
        self.classes_ = np.unique(y)
        self.tree_ = clone(STUMP).fit(X, y, sample_weight)
        return self

    def predict(self, X):
        return self.tree_.predict(X)
