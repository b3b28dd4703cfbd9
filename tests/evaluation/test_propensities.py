"""Propensities that are estimated, given by a policy, or missing."""

import math

import numpy as np
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as SklearnRidge

import drstream as drs
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, K, M, agree, evaluate, open_log, values
from tests.helpers.logs import arrays

pytestmark = pytest.mark.covers


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1).append_column("user", pa.array(np.arange(ROWS) // 9))


def test_a_log_without_propensities(table):
    log = open_log(table.drop_columns(["propensity"]), propensity=None)
    assert evaluate(log, POLICY, M.Ridge(), crossfit=2).estimators == ["dm"]
    with_them = evaluate(open_log(table), POLICY, M.Ridge(), "dm", crossfit=2)
    assert evaluate(log, POLICY, M.Ridge(), "dm", crossfit=2)["dm"].value == with_them["dm"].value
    remedy = r"the log has none: name their column.*drs.models.Propensity\(\).*crossfit=5"
    for name in ("ips", "snips", "dr", "sndr"):
        with pytest.raises(drs.DrstreamError, match=f"estimator '{name}' needs propensities, and {remedy}"):
            evaluate(log, POLICY, M.Constant(0.0), name)
    with pytest.raises(drs.DrstreamError, match=remedy):
        evaluate(log, POLICY)
    with pytest.raises(drs.LogError, match=f"replay needs propensities, and {remedy}"):
        drs.replay(log, POLICY, 10)
    assert evaluate(log, POLICY, propensity=M.Propensity(), crossfit=2).estimators == ["ips", "snips"]
    assert drs.replay(log, POLICY, 10, propensity=M.Propensity(), crossfit=2).complete


def test_the_logging_policy_itself(table):
    """Uniform is as a column with 1 / K, and a column of lists as the policy."""
    log = open_log(table.drop_columns(["propensity"]), propensity=None)
    fixed = open_log(table.set_column(2, "propensity", pa.array(np.full(ROWS, 1 / K))))
    models = {"model": M.Ridge(), "crossfit": 2}
    got = evaluate(log, POLICY, propensity=drs.policies.Uniform(), **models)
    wanted = evaluate(fixed, POLICY, **models)
    assert got.rows() == wanted.rows()
    run = drs.replay(log, drs.policies.UCB1(), 10, propensity=drs.policies.Uniform(), q=0.1)
    assert run.value == drs.replay(fixed, drs.policies.UCB1(), 10, q=0.1).value
    mu = WORLD.logging(arrays(table, D)[0])
    lists = open_log(table.drop_columns(["propensity"]).append_column("mu", pa.array(list(mu))), propensity=None)
    listed = evaluate(lists, POLICY, propensity=drs.policies.Column("mu"), estimators="ips")
    assert listed["ips"].value == pytest.approx(evaluate(table, POLICY, estimators="ips")["ips"].value, rel=1e-9)
    assert listed.crossfit is None


@pytest.mark.parametrize(
    ("propensity", "message"),
    [
        ("propensity", "a column is named where the log is opened"),
        (0.5, "pass a model"),
        (M.Propensity, "pass a model"),
        (drs.policies.Column("propensity"), "name that column where you open the log, with propensity="),
        (drs.policies.UCB1(), "learns while it runs"),
        (drs.policies.Uniform(3), "has 3 actions, the log has 4"),
    ],
)
def test_propensities_that_are_none(table, propensity, message):
    with pytest.raises(drs.DrstreamError, match=message):
        evaluate(open_log(table), POLICY, propensity=propensity)


def test_a_logged_action_of_probability_0_is_an_error_with_the_row(table):
    """Action 3 is not in the events that the model was fitted on."""
    a = arrays(table, D)[1]
    rare = table.filter(pa.array(a != 3))
    model = M.Propensity().fit(open_log(rare, actions=K))
    row = int(np.argmax(a == 3))
    message = rf"gives the logged action the probability 0 at row {row}: give it a floor, e.g. .*floor=0.01"
    for use in (
        lambda model: evaluate(open_log(table), POLICY, propensity=model),
        lambda model: drs.replay(open_log(table), POLICY, 10, propensity=model),
        lambda model: drs.replay(open_log(table), POLICY, 10, propensity=model, method="rs"),
    ):
        with pytest.raises(drs.ModelError, match=message):
            use(model)
        with pytest.raises(drs.ModelError, match=message):
            use(M.Propensity.from_sklearn(LogisticRegression()).fit(open_log(rare, actions=K)))
    model.floor = 0.01
    p = [max(0.01, v) for v in model.predict(arrays(table, D)[0])[np.arange(ROWS), a]]
    agree(evaluate(open_log(table), POLICY, propensity=model), values(table, None, p, ["ips", "snips"]))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"inflation": 0.9}, "inflation=0.9 must be a number at least 1"),
        ({"inflation": np.inf}, "inflation=inf"),
        ({"inflation": "2"}, "inflation='2'"),
        ({"floor": -0.1}, "floor=-0.1 must be a number at least 0 and at most 1"),
        ({"floor": 2}, "floor=2"),
        ({"floor": None}, "floor=None"),
    ],
)
def test_limits_that_are_none(limits, message):
    with pytest.raises(drs.ModelError, match=message):
        M.Propensity(**limits)
    with pytest.raises(drs.ModelError, match=message):
        M.Propensity.from_sklearn(LogisticRegression(), **limits)


@pytest.mark.parametrize("classifier", [LogisticRegression, SklearnRidge(), 3])
def test_classifiers_that_are_none(classifier):
    with pytest.raises(drs.ModelError, match="pass an instance of a classifier with predict_proba"):
        M.Propensity.from_sklearn(classifier)


def test_what_is_said_of_propensities(table):
    bare = table.drop_columns(["propensity"])
    given = evaluate(bare, POLICY, propensity=drs.policies.Uniform())
    assert not given.estimated_propensities
    assert given.least_propensity == 1 / K
    assert given.how() == f"propensities of the policy given as propensity=: at least {1 / K:.3g}"
    estimated = evaluate(bare, POLICY, propensity=M.Propensity(floor=0.1), crossfit=2)
    assert estimated.estimated_propensities
    assert estimated.least_propensity >= 0.1
    assert math.isnan(evaluate(table, POLICY, estimators="ips").least_propensity)
