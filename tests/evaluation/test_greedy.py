"""The best action of a reward model, as a policy."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import drstream as drs
from drstream.policies.base import rule_of
from tests.helpers.cut import cut_log
from tests.helpers.frames import rewards_by_land, shop, whole, with_numbers
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

ROWS = 300 if PLAIN else 2000


@pytest.fixture(scope="module")
def log():
    return drs.Log(world().table(ROWS, seed=1))


@pytest.fixture(scope="module")
def other():
    return drs.Log(world().table(ROWS, seed=2))


def naive(rhat, epsilon=0.0):
    """One event after the other; the first of the best."""
    pi = np.full(rhat.shape, epsilon / rhat.shape[1])
    for k, row in enumerate(rhat.tolist()):
        pi[k, row.index(max(row))] += 1 - epsilon
    return pi


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("kind", [drs.models.Ridge, drs.models.Logistic])
def test_linear_models_are_linear_policies(log, other, kind, epsilon):
    """Down to the bits, as they share the product of all linear policies."""
    model = kind().fit(other)
    got = drs.policies.Greedy(model, epsilon)
    ref = drs.policies.Epsilon(drs.policies.Linear(model.coef_, model.intercept_), epsilon)
    result = drs.evaluate(log, {"got": got, "ref": ref}, drs.models.Ridge(), crossfit=2)
    assert result["got", "dr"].value == result["ref", "dr"].value
    assert result["got", "ips"].stderr == result["ref", "ips"].stderr
    assert rule_of(got.bind(log, "got")) is not None
    X, _, _, _ = arrays(log.source.table, 3)
    np.testing.assert_allclose(got.probabilities(X), naive(model.predict(X), epsilon), rtol=1e-12)
    assert got.probabilities(X).shape == (ROWS, 4)


class Own:
    def predict(self, X):
        return np.round(np.asarray(X, float) @ np.ones((3, 4)) * [1, 2, 2, -1])  # many ties


class OwnLink(drs.models.Ridge):
    def link(self, scores):
        np.negative(scores, out=scores)  # the order of predictions is not that of scores


@pytest.mark.parametrize("epsilon", [0.0, 0.25])
@pytest.mark.parametrize("model", ["own", "tree", "function", "constant", "link"])
def test_other_models(log, other, model, epsilon):
    models = {
        "own": Own,
        "tree": lambda: drs.models.from_sklearn(DecisionTreeRegressor(max_depth=3, random_state=0)).fit(other),
        "function": lambda: drs.models.from_function(Own().predict),
        "constant": lambda: drs.models.Constant([0.1, 0.5, 0.5, 0.2]),
        "link": lambda: OwnLink().fit(other),
    }
    made = models[model]()
    policy = drs.policies.Greedy(made, epsilon)
    assert rule_of(policy.bind(log, "policy")) is None
    X, _, _, _ = arrays(log.source.table, 3)
    pi = naive(np.asarray(made.predict(X)), epsilon)
    np.testing.assert_allclose(policy.probabilities(X), pi, rtol=1e-12)
    column = log.source.table.append_column("pi", pa.array(list(pi)))
    got, ref = drs.evaluate(log, policy)["ips"], drs.evaluate(column, drs.policies.Column("pi"))["ips"]
    assert got.value == pytest.approx(ref.value, rel=1e-12)


def test_models_of_columns():
    found = shop(ROWS)
    rhat = rewards_by_land(whole(found))
    table = with_numbers(found, rhat=rhat, pi=naive(rhat))
    ref = drs.evaluate(table, drs.policies.Column("pi"))["ips"].value
    by_column, by_function = drs.models.Column("rhat"), drs.models.from_arrow(rewards_by_land, columns=["land"])
    for model in (by_column, by_function):
        assert drs.evaluate(table, drs.policies.Greedy(model))["ips"].value == ref
    run = {"horizon": 20, "bias": 0.05}
    got = drs.replay(table, drs.policies.Greedy(by_function, 0.2), **run)
    again = drs.replay(table, drs.policies.Epsilon(drs.policies.Column("pi"), 0.2), **run)
    assert got.value == pytest.approx(again.value, rel=1e-12)


def test_any_batch_size_and_threads_give_the_same_bits(log, other):
    policy = drs.policies.Greedy(drs.models.from_sklearn(DecisionTreeRegressor(max_depth=2, random_state=0)).fit(other))
    found = {
        drs.evaluate(cut_log(log.source.table, batch_size=size), policy, threads=threads)["ips"].value
        for size, threads in ((None, 1), (None, 2), (31, 2))
    }
    assert len(found) == 1


@pytest.mark.parametrize("epsilon", [0, 0.1])
def test_a_warning_if_the_model_has_seen_the_events(log, epsilon):
    train, test = log.split(0.5)
    policy = drs.policies.Greedy(drs.models.Ridge().fit(train), epsilon)
    with pytest.warns(drs.DrstreamWarning, match="'new' was learned from events that it is now evaluated on"):
        drs.evaluate(train, {"new": policy})
    with pytest.warns(drs.DrstreamWarning, match="was learned from events"):
        drs.replay(train, policy, horizon=20, bias=0.05)
    with pytest.warns(drs.DrstreamWarning, match="was learned from events"):
        drs.evaluate(train, drs.policies.Epsilon(policy, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drs.evaluate(test, policy)


def test_a_model_of_categories_brings_its_encoding():
    """The other log has other categories, and its columns in another order."""
    train, test = shop(ROWS, seed=1), shop(ROWS)
    lands = pa.array(["DE" if x is None else "ES" if x == "FR" else x for x in test["land"].to_pylist()])
    test = test.set_column(2, "land", lands)
    train = train.set_column(2, "land", train["land"].fill_null("DE"))
    model = drs.models.Ridge().fit(drs.Log(train, context=["land", "age"]))
    rows = zip(lands.to_pylist(), test["age"].to_pylist(), strict=True)
    X = [[*(land == known for known in ("AT", "DE", "FR", "IT")), age] for land, age in rows]
    pi = naive(np.asarray(X, float) @ model.coef_.T + model.intercept_)
    ref = drs.evaluate(with_numbers(test, pi=pi), drs.policies.Column("pi"))["ips"].value
    with pytest.warns(drs.DrstreamWarning, match="have a category in 'land' that the reward model does not know"):
        got = drs.evaluate(drs.Log(test, context=["age", "land"]), drs.policies.Greedy(model))["ips"].value
    assert got == pytest.approx(ref, rel=1e-12)


# Files


@pytest.mark.parametrize("kind", ["ridge", "logistic", "sklearn"])
def test_saved_and_loaded(log, other, kind, tmp_path):
    models = {"ridge": drs.models.Ridge(), "logistic": drs.models.Logistic()}
    model = models.get(kind) or drs.models.from_sklearn(LinearRegression())
    policy = drs.policies.Greedy(model.fit(other), 0.125)
    policy.save(tmp_path / "greedy")
    same = drs.optimize.load(tmp_path / "greedy")
    assert isinstance(same, drs.policies.Greedy)
    assert same.epsilon == 0.125
    assert drs.evaluate(log, same)["ips"].value == drs.evaluate(log, policy)["ips"].value
    assert (
        drs.models.load(tmp_path / "greedy").predict(np.ones((1, 3))).tolist()
        == model.predict(np.ones((1, 3))).tolist()
    )
    model.save(tmp_path / "model")
    with pytest.raises(drs.PolicyError, match=f"holds a '{type(model).__name__}', which is not a policy"):
        drs.optimize.load(tmp_path / "model")


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(drs.PolicyError, match="only a model that was fitted to a log can be saved"):
        drs.policies.Greedy(drs.models.Constant(0.5)).save(tmp_path / "greedy")


# Mistakes


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (drs.models.Ridge, "Ridge is a class: pass a fitted model"),
        (drs.models.Ridge(), r"the reward model Ridge\(\) is not fitted: call .fit\(log\) on other events first"),
        (drs.policies.Uniform(), "Uniform is a policy already"),
        (LinearRegression(), r"wrap LinearRegression first, drs.models.from_sklearn\(...\)"),
        (3, "int is not a reward model"),
        ("model.npz", "str is not a reward model"),
    ],
)
def test_what_is_no_fitted_model(model, message):
    with pytest.raises(drs.PolicyError, match=message):
        drs.policies.Greedy(model)


def test_other_mistakes(log, other):
    model = drs.models.Ridge().fit(other)
    for epsilon in (-0.1, 1.5, "a", None):
        with pytest.raises(drs.PolicyError, match="epsilon"):
            drs.policies.Greedy(model, epsilon)
    with pytest.raises(drs.DrstreamError, match="4 actions"):
        drs.evaluate(drs.Log(log.source.table, actions=5), drs.policies.Greedy(model))
    with pytest.raises(drs.ModelError, match="fitted on 3 features; the log has 2"):
        drs.evaluate(drs.Log(log.source.table, context=["x0", "x1"]), drs.policies.Greedy(model))
    broken = drs.models.from_function(lambda X: np.full((len(X), 4), np.nan))
    with pytest.raises(drs.ModelError, match="the reward model predicts nan for action 0 at row 0"):
        drs.evaluate(log, drs.policies.Greedy(broken))
    with pytest.raises(drs.ModelError, match="reward model of policy 'policy' returned an array of shape"):
        drs.evaluate(log, drs.policies.Greedy(Broken()))


class Broken:
    def predict(self, X):
        return np.zeros(len(X))
