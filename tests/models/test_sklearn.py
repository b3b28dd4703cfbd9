"""Reward models of scikit-learn: against the same fitted by hand."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import drstream as drs
from drstream.models import from_sklearn
from tests.helpers.crossed import meeting
from tests.helpers.logs import world
from tests.helpers.sklearn_models import (
    ROWS,
    SGD,
    SGD_CLASSES,
    D,
    K,
    coefficients,
    contexts,
    expected,
    one_hot,
    roles,
    sparse_contexts,
    sparse_log,
    sparse_table,
)


@pytest.fixture(scope="module")
def table():
    return world(kinds=None).table(ROWS, seed=1)


def by_hand(estimator, action, X, a, r, at):
    """(n, K), in plain scikit-learn, of models fitted on (X, a, r)."""
    if action == "feature":
        model = clone(estimator).fit(one_hot(X, a), r)
        return np.column_stack([expected(model, one_hot(at, np.full(at.shape[0], k))) for k in range(K)])
    return np.column_stack([expected(clone(estimator).fit(X[a == k], r[a == k]), at) for k in range(K)])


ESTIMATORS = [
    Ridge(alpha=2.0),
    LogisticRegression(C=0.5),
    DecisionTreeRegressor(max_depth=3, random_state=0),
    DecisionTreeClassifier(max_depth=3, random_state=0),
    make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
]


@meeting(2, estimator=ESTIMATORS, action=["separate", "feature"], sparse=[False, True])
def test_equals_scikit_learn_by_hand(table, estimator, action, sparse):
    log = sparse_log(table) if sparse else drs.Log(table)
    X = sparse_contexts(table) if sparse else contexts(table)
    got = from_sklearn(estimator, action=action).fit(log)
    ref = by_hand(estimator, action, X, *roles(table), X[:50])
    found = got.predict(X[:50])
    assert found.shape == (50, K)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, ref, rtol=1e-5, atol=1e-6)
    assert (got.n_actions, got.n_events_, got.n_features_) == (K, ROWS, D)
    assert got.features_ == (None if sparse else ("x0", "x1", "x2"))
    assert list(got.labels_) == [0, 1, 2, 3]
    assert got.fitted_rows_ == f"all {ROWS:,} events"
    assert got.skipped_ == {}
    assert got.reward_range_ == (0, 1)
    assert not hasattr(estimator, "n_features_in_")  # it was cloned


def test_classes_are_rewards_of_any_whole_numbers(table):
    a, r = roles(table)
    r = 3 * r - (contexts(table)[:, 0] > 0)  # -1, 0, 2, 3
    log = drs.Log(table.set_column(1, "reward", pa.array(r)))
    got = from_sklearn(LogisticRegression()).fit(log)
    ref = by_hand(LogisticRegression(), "separate", contexts(table), a, r, contexts(table)[:20])
    np.testing.assert_allclose(got.predict(contexts(table)[:20]), ref, rtol=1e-6)
    assert got.predict(contexts(table)[:20]).min() < 0
    assert got.models_[0].classes_.tolist() == sorted(set(r[a == 0])) != [0, 1]


def test_lists_as_contexts():
    rows = world(kinds=None).table(200, seed=1, layout="list")
    got = from_sklearn(Ridge()).fit(rows)
    wide = from_sklearn(Ridge()).fit(world(kinds=None).table(200, seed=1))
    assert got.features_ is None
    np.testing.assert_array_equal(coefficients(got), coefficients(wide))


# Actions that there is little to fit on

LITTLE = pa.table(
    {
        "x0": [1.0, 2.0, 3.0, 4.0, 5.0],
        "action": [0, 0, 2, 2, 0],
        "reward": [0.0, 1.0, 3.0, 3.0, 1.0],
        "propensity": [0.5] * 5,
    }
)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("estimator", [SGD, SGD_CLASSES], ids=["regressor", "classifier"])
def test_an_action_never_logged_and_one_with_one_reward(estimator, partial):
    log = drs.Log(LITTLE, actions=4)
    got = from_sklearn(estimator, partial=partial).fit(log)
    found = got.predict(np.array([[1.0], [10.0]]))
    np.testing.assert_allclose(found[:, [1, 3]], 8 / 5)
    assert got.models_[1] == got.models_[3] == pytest.approx(8 / 5)
    assert np.isfinite(found).all()
    if estimator is SGD_CLASSES:
        assert got.models_[2] == 3
        assert (found[:, 2] == 3).all()
        assert got.models_[0].classes_.tolist() == [0, 1]
    else:
        assert isinstance(got.models_[2], SGDRegressor)
    one = from_sklearn(estimator, action="feature", partial=partial).fit(log)
    np.testing.assert_allclose(one.predict(np.array([[1.0], [10.0]]))[:, [1, 3]], 8 / 5)
    assert one.models_[0] is one.models_[2]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("action", ["separate", "feature"])
def test_a_classifier_where_all_rewards_are_the_same(action, partial):
    log = drs.Log(LITTLE.set_column(2, "reward", pa.array([2.0] * 5)), actions=3)
    got = from_sklearn(SGD_CLASSES, action=action, partial=partial).fit(log)
    assert got.predict(np.zeros((3, 1))).tolist() == [[2.0] * 3] * 3
    assert got.models_ == [2.0] * 3


def test_no_event_at_a_time():
    got = from_sklearn(Ridge()).fit(drs.Log(LITTLE, actions=3))
    assert got.predict(np.zeros((0, 1))).shape == (0, 3)


def test_without_context():
    log = drs.Log(LITTLE, context=[], actions=3)
    got = from_sklearn(LinearRegression(), action="feature").fit(log)
    np.testing.assert_allclose(got.predict(np.zeros((1, 0))), [[2 / 3, 8 / 5, 3]])
    with pytest.raises(drs.ModelError, match=r'no context.*action="feature"'):
        from_sklearn(LinearRegression()).fit(log)


# Bad rows


@pytest.mark.parametrize("settings", [{}, {"partial": True}, {"sample": 100}], ids=str)
def test_bad_rows_are_skipped_and_counted(table, settings):
    """A reward of 7 stands only where the context is bad: it is no class."""
    r, X = roles(table)[1].copy(), contexts(table).copy()
    r[0], r[1], X[1, 0] = np.nan, 7.0, np.inf
    broken = table.set_column(1, "reward", pa.array(r)).set_column(3, "x0", pa.array(X[:, 0]))
    model = from_sklearn(SGD_CLASSES, **settings)
    with pytest.raises(drs.LogError, match="reward is not finite: got nan at row 0"):
        model.fit(drs.Log(broken))
    assert not model.fitted
    got = model.fit(drs.Log(broken, on_bad_row="skip"))
    assert got.skipped_ == {"reward is not finite": 1, "context is not finite": 1}
    assert got.models_[0].classes_.tolist() == [0, 1]
    assert got.n_events_ == (ROWS - 2)
    if settings != {"sample": 100}:
        good = from_sklearn(SGD_CLASSES, **settings).fit(table.slice(2))
        np.testing.assert_allclose(coefficients(got), coefficients(good), rtol=1e-9)


# In use


@pytest.mark.parametrize("action", ["separate", "feature"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("estimator", [Ridge(), LogisticRegression()], ids=lambda e: type(e).__name__)
def test_evaluate_and_replay(table, estimator, action, sparse):
    """The same as with the predictions in a column of the log."""
    log = sparse_log(table) if sparse else drs.Log(table, context="x?")
    X = sparse_contexts(table) if sparse else contexts(table)
    train, test = log.split(0.5)
    model = from_sklearn(estimator, action=action).fit(train)
    columns = (sparse_table(table) if sparse else table).append_column("rhat", pa.array(list(model.predict(X))))
    other = drs.Log(columns, context=drs.Sparse("i", "v", dim=D) if sparse else "x?").split(0.5)[1]
    policy = drs.policies.Softmax(world().taste)
    results = []
    for threads in (1, 2):
        result = drs.evaluate(test, policy, model, ["dm", "dr"], threads=threads)
        ref = drs.evaluate(other, policy, drs.models.Column("rhat"), ["dm", "dr"])
        for name in ("dm", "dr"):
            assert result[name].value == pytest.approx(ref[name].value, rel=1e-5)
        results.append(result["dr"].value)
    assert results[0] == results[1]
    learner = drs.policies.UCB1()
    got = drs.replay(test, learner, horizon=10, model=model, q=0.1)
    wanted = drs.replay(other, drs.policies.UCB1(), horizon=10, model=drs.models.Column("rhat"), q=0.1)
    assert got.value == pytest.approx(wanted.value, rel=1e-5)


def test_fitting_on_evaluated_rows_is_warned_about(table):
    log = drs.Log(table)
    train, test = log.split(0.5)
    model = from_sklearn(Ridge()).fit(train)
    with pytest.warns(UserWarning, match="fitted on events that it is now evaluated on"):
        drs.evaluate(log, drs.policies.Uniform(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drs.evaluate(test, drs.policies.Uniform(), model)


def test_a_model_does_not_serve_other_labels_or_features(table):
    names = np.array(["w", "x", "y", "z"])
    text = table.set_column(0, "action", pa.array(names[table["action"].to_numpy()]))
    model = from_sklearn(Ridge()).fit(drs.Log(text, actions=["z", "y", "x", "w"]).split(0.5)[0])
    with pytest.raises(drs.ModelError, match="fitted on 4 actions 'z', 'y', 'x', 'w'; the log has 4 actions 'w'"):
        drs.evaluate(drs.Log(text).split(0.5)[1], drs.policies.Uniform(), model)
    model = from_sklearn(Ridge()).fit(drs.Log(table, context=["x2", "x1", "x0"]).split(0.5)[0])
    other = drs.Log(table.append_column("y", table["x0"]), context=["y", "x1", "x2"])
    with pytest.raises(drs.ModelError, match="fitted on the context x2, x1, x0; the log's is y, x1, x2"):
        drs.evaluate(other.split(0.5)[1], drs.policies.Uniform(), model)
    with pytest.raises(drs.ModelError, match="fitted on 3 features; the log has 1"):
        model.bind(drs.Log(table, context=["x0"]))
    with pytest.raises(drs.ModelError, match="knows 4 actions, the log and the policies have 6"):
        model.bind(drs.Log(table, context=["x2", "x1", "x0"], actions=6))
    with pytest.raises(drs.ModelError, match=r"contexts of shape \(2, 5\): the model was fitted on 3 features"):
        model.predict(np.zeros((2, 5)))


def test_progress(table):
    calls = []
    from_sklearn(Ridge()).fit(table, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (ROWS, ROWS)
    calls.clear()
    from_sklearn(SGD, partial=True).fit(table, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(ROWS, ROWS)]


# Errors


class Own(BaseEstimator):
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


class Foreign:
    def fit(self, X, y):
        return self


@pytest.mark.parametrize(
    ("estimator", "settings", "message"),
    [
        (Ridge, {}, r"Ridge is a class: pass an instance, Ridge\(\)"),
        (3, {}, "a int has no fit"),
        (None, {}, "a NoneType has no fit"),
        (Own(), {}, "Own is neither a regressor nor a classifier"),
        (Foreign(), {}, "Foreign is neither a regressor nor a classifier"),
        (KMeans(), {}, "KMeans is neither a regressor nor a classifier"),
        (LinearSVC(), {}, "LinearSVC, with these parameters, has no predict_proba"),
        (SGDClassifier(), {}, "SGDClassifier, with these parameters, has no predict_proba"),
        (Ridge(), {"action": "both"}, "action='both'"),
        (Ridge(), {"sample": 0}, "sample=0"),
        (Ridge(), {"sample": 1.5}, r"sample=1\.5"),
        (Ridge(), {"sample": True}, "sample=True"),
        (Ridge(), {"seed": 0.5}, r"seed=0\.5"),
        (SGD, {"partial": "yes"}, "partial='yes'"),
        (Ridge(), {"partial": True}, "Ridge has no partial_fit"),
    ],
)
def test_bad_parameters(estimator, settings, message):
    with pytest.raises(drs.ModelError, match=message):
        from_sklearn(estimator, **settings)


@pytest.mark.parametrize("settings", [{}, {"partial": True}, {"sample": 2}], ids=str)
def test_a_classifier_refuses_rewards_that_are_no_whole_numbers(settings):
    broken = LITTLE.set_column(2, "reward", pa.array([0.0, 1.0, 1.0, 0.25, 1.0]))
    message = r"SGDClassifier is a classifier.*the reward at row 3 is 0\.25, which is no whole number: pass a regressor"
    with pytest.raises(drs.ModelError, match=message):
        from_sklearn(SGD_CLASSES, **settings).fit(broken)


def test_not_fitted(table, tmp_path):
    model = from_sklearn(Ridge())
    assert repr(model) == "from_sklearn(Ridge(), action='separate')"
    message = r"from_sklearn\(Ridge\(\), action='separate'\) is not fitted: call .fit\(log\)"
    for use in (
        lambda: model.predict(np.zeros((1, 3))),
        lambda: model.bind(drs.Log(table)),
        lambda: model.save(tmp_path / "m"),
        lambda: drs.evaluate(table, drs.policies.Uniform(), model),
    ):
        with pytest.raises(drs.ModelError, match=message):
            use()


@pytest.mark.parametrize("partial", [False, True])
def test_an_empty_log(table, partial):
    with pytest.raises(drs.LogError, match="there is no event to fit the reward model on"):
        from_sklearn(SGD, partial=partial).fit(drs.Log(table, filter=pc.field("x0") > 1e9))


def test_what_an_estimator_raises_says_where(table):
    names = np.array(["w", "x", "y", "z"])
    text = table.set_column(0, "action", pa.array(names[table["action"].to_numpy()]))
    with pytest.raises(ValueError, match="alpha") as caught:
        from_sklearn(Ridge(alpha=-1)).fit(text)
    assert "raised by Ridge, fitted on " in caught.value.__notes__[0]
    assert "of action 'w'" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="eta0") as caught:
        from_sklearn(SGDRegressor(eta0=-1), partial=True, action="feature").fit(text)
    assert f"fitted on {ROWS} events of the batch from row 0 on" in caught.value.__notes__[0]
    train, test = drs.Log(text).split(0.5)
    model = from_sklearn(KNeighborsRegressor(n_neighbors=9), sample=4, action="feature").fit(train)
    with pytest.raises(ValueError, match="n_neighbors") as caught:
        drs.evaluate(test, drs.policies.Uniform(), model, "dm")
    assert "raised by the reward model" in caught.value.__notes__[0]
