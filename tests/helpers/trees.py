"""What the tests of trees share: a log, base classifiers, and a recorder of their fits."""

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.tree import DecisionTreeClassifier

from drstream.optimize.trees import FilterTree, OffsetTree
from tests.helpers import reference
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


def check_nodes(got, calls, X, n_actions, example, eligible=None):
    """Each node has seen the examples of the definition, and what is chosen is where the way down ends.

    eligible  (n, K), whether events could choose actions.
    """
    sets = [None if eligible is None else np.flatnonzero(row) for row in (X if eligible is None else eligible)]
    tree = reference.balanced_tree(list(range(n_actions)))
    sides = {}  # of each node, for each event
    calls = iter(calls)
    constant = 0
    for number, node in enumerate(reference.tree_nodes(tree)):
        said = [example(k, node, lambda other, k=k: sides[other][k]) for k in range(len(X))]
        kept = [k for k in range(len(X)) if said[k] is not None]
        labels = np.array([said[k][0] for k in kept], int)
        if len(set(labels)) < 2:
            constant += 1
            assert got.classifiers_[number] == (labels[0] if len(labels) else 0)
            sides[node] = [got.classifiers_[number]] * len(X)
            continue
        weights = np.array([said[k][1] for k in kept])
        actions, shown = reference.tree_leaves(node), X
        if eligible is not None and len(actions) > 2:
            shown = np.column_stack([X, eligible[:, actions]])
        seen_X, seen_y, seen_weights = next(calls)
        np.testing.assert_array_equal(seen_X, shown[kept])
        np.testing.assert_array_equal(seen_y, labels)
        np.testing.assert_allclose(seen_weights, weights / weights.mean(), rtol=1e-12)
        sides[node] = clone(STUMP).fit(shown[kept], labels, weights / weights.mean()).predict(shown)
    assert next(calls, None) is None
    chosen = [reference.tree_winner(tree, lambda node, k=k: sides[node][k], sets[k])[0] for k in range(len(X))]
    assert got.choose(X, eligible).tolist() == chosen
    return constant
