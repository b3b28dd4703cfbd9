"""Filter Tree and Offset Tree: what they refuse, and how errors name the node."""

import subprocess
import sys

import numpy as np
import pyarrow.compute as pc
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import drstream as drs
from drstream.optimize.losses import Losses, impute
from drstream.optimize.trees import FilterTree, OffsetTree
from tests.helpers.crossed import meeting
from tests.helpers.logs import arrays, world
from tests.helpers.trees import LEARNERS, ROWS, D, Recorder


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


@pytest.fixture(scope="module", name="X")
def contexts(table):
    return arrays(table, D)[0]


class Own(BaseEstimator):
    def fit(self, X, y):
        return self


class Foreign:
    def fit(self, X, y):
        return self


BAD = [  # the classifier, settings, and what the error says
    (LogisticRegression, {}, r"LogisticRegression is a class: pass an instance, LogisticRegression\(\)"),
    (3, {}, "a int has no fit: pass a classifier"),
    (Ridge(), {}, "Ridge is no classifier of scikit-learn: pass one"),
    (make_pipeline(StandardScaler(), Ridge()), {}, "Pipeline is no classifier"),
    (KMeans(), {}, "KMeans is no classifier"),
    (Own(), {}, "Own is no classifier"),
    (Foreign(), {}, "Foreign is no classifier"),
    (None, {"sample": 0}, "sample=0 must be a whole number of at least 1"),
    (None, {"sample": 1.5}, r"sample=1\.5"),
    (None, {"sample": True}, "sample=True"),
    (None, {"sample": None}, "sample=None"),
    (None, {"seed": 0.5}, r"seed=0\.5"),
]


@meeting(1, case=BAD, learner=LEARNERS)
def test_bad_parameters(case, learner):
    base, settings, message = case
    with pytest.raises(drs.PolicyError, match=rf"{learner.__name__}: .*{message}"):
        learner(base, **settings)


@pytest.mark.parametrize("offset", ["middle", np.nan, np.inf])
def test_bad_offset(offset):
    with pytest.raises(drs.PolicyError, match=f"OffsetTree: offset={offset!r}: a number, or None"):
        OffsetTree(offset=offset)


def test_what_an_offset_tree_does_not_take(table):
    with pytest.raises(drs.PolicyError, match=r"uses no reward model, and got Ridge\(.*FilterTree\(\)\.fit"):
        OffsetTree().fit(table, drs.models.Ridge())
    with pytest.raises(drs.PolicyError, match="learns from logged rewards: pass the log itself"):
        OffsetTree().fit(impute(table))
    with pytest.raises(drs.DrstreamError, match="completed already"):
        FilterTree().fit(impute(table), drs.models.Ridge())


def test_propensities_are_needed(table):
    log = drs.Log(table, propensity=None)
    with pytest.raises(drs.LogError, match="OffsetTree needs propensities, and the log has none: name their column"):
        OffsetTree().fit(log)
    with pytest.raises(drs.LogError, match=r"need propensities, and the log has none.*impute\(log, model, propensity="):
        FilterTree().fit(log)


@pytest.mark.parametrize("learner", LEARNERS)
def test_not_fitted(table, tmp_path, learner):
    tree = learner()
    message = rf"the policy {learner.__name__}\(\) is not fitted: call .fit\(log\)"
    for use in (
        lambda: tree.choose(np.zeros((1, D))),
        lambda: tree.probabilities(np.zeros((1, D))),
        lambda: tree.save(tmp_path / "tree"),
        lambda: drs.evaluate(table, tree),
    ):
        with pytest.raises(drs.PolicyError, match=message):
            use()


@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_to_learn_from(table, learner):
    with pytest.raises(drs.LogError, match="there is no event to fit the policy on"):
        learner().fit(drs.Log(table, filter=pc.field("x0") > 1e9))
    with pytest.raises(drs.PolicyError, match=rf"{learner.__name__}: the log has no context to learn from"):
        learner().fit(drs.Log(table, context=[]))


class Fails(Recorder):
    def predict(self, X):
        raise RuntimeError("no answer")


def test_what_a_classifier_raises_says_at_which_node(table, X):
    got = FilterTree(LogisticRegression(C=-1))
    with pytest.raises(ValueError, match="C") as caught:
        got.fit(Losses.known(X, np.random.default_rng(0).uniform(size=(ROWS, 5))))
    note = f"raised by LogisticRegression at node 0 of 4 (from the leaves up), fitted on {ROWS} examples"
    assert caught.value.__notes__ == [note]
    assert not got.fitted
    with pytest.raises(RuntimeError, match="no answer") as caught:
        OffsetTree(Fails()).fit(table)
    assert "raised by Fails at node 0 of 3" in caught.value.__notes__[0]


def test_scikit_learn_is_an_extra(table, monkeypatch):
    code = "import sys; import drstream.optimize.trees as t; t.FilterTree(); print('sklearn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
    for module in ("sklearn.tree", "sklearn.base"):
        monkeypatch.setitem(sys.modules, module, None)
    for use in (lambda: FilterTree().fit(table), lambda: FilterTree(LogisticRegression())):
        with pytest.raises(drs.PolicyError, match=r"FilterTree needs scikit-learn.*pip install drstream\[sklearn\]"):
            use()
