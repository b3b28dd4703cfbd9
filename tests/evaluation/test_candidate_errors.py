"""What does not fit a log of candidates, or is wrong on one: refused before the pass, or named with its place."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from tests.helpers.candidate_logs import DZ, D, events, log_of, table_of
from tests.helpers.evaluations import BY_TIME
from tests.helpers.logs import world

pytestmark = pytest.mark.covers

P, M = drs.policies, drs.models
FOUND = events(rows=60)
LOG = log_of(FOUND)
FIRST = FOUND["ids"][FOUND["sets"][0][0]]


class Own(P.FixedPolicy):
    def probabilities(self, X):
        return np.full((len(X), 3), 1 / 3)


class Bent(P.Softmax):
    def probabilities(self, X):
        return super().probabilities(X)


# Policies and models for other logs


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (P.Constant(1), "policy 'policy' takes 1, and ids of candidates are string"),
        (P.Constant("item-1"), "takes 'item-1', which is not among the candidates at row 1: say what it does there"),
        (P.Constant("item-1", P.Column("x0")), "must know the probabilities of all candidates"),
        (
            P.Uniform(4),
            r"Uniform\(n_actions=4\) is for one set of actions for all events, and this log has candidates=",
        ),
        (Own(), "a Own, chooses among actions that all events share"),
        (Bent(np.zeros(D + DZ)), "a Bent, chooses among actions that all events share"),
        (P.Softmax(np.zeros((3, D))), "a Softmax, has a row of weights for each action, and this log has candidates="),
        (P.Softmax(np.zeros(DZ)), r"has 3 weights; on this log, they are 5: 2 of the context, then 3 of a candidate"),
        (P.Linear(np.zeros(D + DZ), interactions=np.zeros((DZ, D))), r"shape \(3, 2\); .* so they must be \(2, 3\)"),
        (P.from_arrow(lambda b: b, columns=["x0"]), "a from_arrow, chooses among actions that all events share"),
        (P.Epsilon(Own(), 0.1), "a Own, chooses among actions"),
        (P.Column("nothing"), "no column 'nothing'"),
        (P.Column("items"), "lists must hold numbers"),
        (P.Greedy(type("O", (), {"predict": lambda self, X: X})()), "a log of candidates takes a model of drstream.m"),
        (P.Column("flag"), "has type bool: on this log, it must hold lists of probabilities"),
    ],
)
def test_policies_that_do_not_fit(policy, message):
    table, candidates = table_of(FOUND)
    log = drs.Log(table.append_column("flag", pa.array([True] * 60)), context="x?", candidates=candidates)
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(log, policy)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (M.Constant([1, 2]), "takes one number for all of them, not 2"),
        (M.Column("x0"), "'x0': on a log of candidates, predictions are one column of lists of numbers"),
        (M.Column("x0", "x1"), "columns 'x0', 'x1': on a log of candidates"),
        (M.from_arrow(lambda b: b, columns=["x0"]), "a from_arrow, predicts rewards of actions that all events share"),
        (
            M.Ridge().fit(world().table(100)),
            "fitted on a log with one set of actions for all events, and this is a log",
        ),
    ],
)
def test_models_that_do_not_fit(model, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(LOG, P.Uniform(), model)


def test_fits_that_are_not_for_candidates():
    cases = [
        (lambda: M.Ridge(weights="mrdr", policy=P.Uniform()).fit(LOG), 'weights="mrdr" is for logs with one set'),
        (lambda: M.Ridge(interactions=True).fit(world().table(100)), "interactions=True is about contexts and candi"),
        (lambda: drs.optimize.impute(LOG, M.Constant(1)), "this log has candidates=, a set for each event"),
        (lambda: drs.evaluate(LOG, P.Uniform(), M.Constant(1), BY_TIME[:1]), "one set of actions for all events"),
    ]
    for run, message in cases:
        with pytest.raises(drs.DrstreamError, match=message):
            run()
    sklearn = pytest.importorskip("sklearn.linear_model")
    with pytest.raises(drs.DrstreamError, match=r"Propensity\.from_sklearn needs one set"):
        M.Propensity.from_sklearn(sklearn.LogisticRegression()).fit(LOG)
    with pytest.raises(drs.ModelError, match="columns= are of events, and this log has candidates"):
        M.from_sklearn(sklearn.Lasso(), columns=["x0"]).fit(LOG)
    fitted = sklearn.Lasso().fit(np.zeros((3, 2)), [0, 1, 0])
    with pytest.raises(drs.ModelError, match="an array of 2 features, and the log has 2 of the context and 3"):
        drs.evaluate(LOG, P.Uniform(), M.from_sklearn(fitted, prefit=True))
    with pytest.raises(drs.ModelError, match="got a mapping of estimators"):
        drs.evaluate(LOG, P.Uniform(), M.from_sklearn({0: fitted}, prefit=True))


def test_constants_that_cannot_be_ids_or_positions():
    for found, action, message in (
        (log_of(FOUND, position=True, features_only=True), "item-1", "in this log, it must be a position, from 0"),
        (log_of(FOUND, position=True, features_only=True), -1, "must be a position, from 0"),
        (log_of(events(text=False)), 2**70, "ids of candidates are int64"),
        (log_of(events(text=False)), 1.5, "ids of candidates are int64"),
        (log_of(FOUND, "items"), "itme-1", "takes 'itme-1', which the table of items lacks"),
    ):
        with pytest.raises(drs.PolicyError, match=message):
            drs.evaluate(found, P.Constant(action, P.Uniform()))


def test_policies_and_models_of_candidates_on_other_logs():
    plain = drs.Log(world().table(100))
    with pytest.raises(drs.PolicyError, match="has one vector of weights, which candidates share, and this log has no"):
        drs.evaluate(plain, P.Softmax(np.zeros(5)))
    with pytest.raises(drs.PolicyError, match="has one vector of weights"):
        P.Linear(np.zeros(5)).probabilities(np.zeros((1, 5)))
    with pytest.raises(drs.ModelError, match="fitted on a log with candidates=, and this is a log with one set"):
        drs.evaluate(plain, P.Uniform(), M.Ridge().fit(LOG))


def test_models_of_other_features():
    model = M.Ridge().fit(log_of(FOUND, "structs"))
    table, candidates = table_of(FOUND, "columns")
    other = drs.Log(table, candidates=drs.Candidates(candidates.ids, ["z1", "z0", "z2"]))
    with pytest.raises(drs.ModelError, match=r"with the features z.z0, z.z1, z.z2; those of the log have z1,"):
        drs.evaluate(other, P.Uniform(), model)
    fewer = drs.Log(table, candidates=drs.Candidates(candidates.ids, ["z0", "z1"]))
    with pytest.raises(drs.ModelError, match="those of the log have z0, z1"):
        drs.evaluate(fewer, P.Uniform(), model)
    assert M.Ridge().fit(log_of(FOUND, "columns")).coef_ == pytest.approx(model.coef_)


def test_logs_without_features_or_with_sparse_contexts():
    table, _ = table_of(FOUND)
    bare = drs.Log(table, context="x?", candidates=drs.Candidates("items"))
    with pytest.raises(drs.PolicyError, match="needs features of candidates, and the log has none"):
        drs.evaluate(bare, P.Softmax(np.zeros(2)))
    with pytest.raises(drs.LogError, match="have no features, so no model can tell them apart"):
        M.Ridge().fit(bare)
    seen = []
    with pytest.raises(drs.PolicyError, match="returned NoneType for 60 events with"):
        drs.evaluate(bare, lambda X, Z, starts: seen.append(Z))
    assert seen == [None]
    indices = pa.array([[0, 2]] * 60)
    sparse = drs.Log(
        table.append_column("i", indices),
        context=drs.Sparse("i", dim=4),
        candidates=drs.Candidates("items", "z"),
    )
    with pytest.raises(drs.ModelError, match="it takes dense contexts, and those of this log are sparse"):
        M.Propensity().fit(sparse)
    with pytest.raises(drs.ModelError, match="have no features, so it cannot tell them apart"):
        M.Propensity().fit(bare)
    weights, products = np.arange(7.0), np.arange(12.0).reshape(4, 3)
    got = drs.evaluate(sparse, P.Softmax(weights, interactions=products), estimators=["ips"])["ips"].value
    X = np.tile([1.0, 0, 1, 0], (60, 1))
    dense = table.append_column("d", pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4))
    same = drs.Log(dense, context="d", candidates=drs.Candidates("items", "z"))
    wanted = drs.evaluate(same, P.Softmax(weights, interactions=products), estimators=["ips"])["ips"].value
    assert got == pytest.approx(wanted, rel=1e-12)


def test_weights_are_checked():
    cases = [
        (lambda: P.Softmax([1.0, 2.0], intercept=1.0), "an intercept is the same for all candidates"),
        (lambda: P.Softmax([[1.0]], interactions=[[1.0]]), "interactions= goes with one vector of weights"),
        (lambda: P.Linear([1.0, math.nan]), "must be finite"),
        (lambda: P.Linear([1.0], interactions=[1.0]), r"interactions have shape \(1,\)"),
        (lambda: P.Linear([1.0], interactions=[["a"]]), "must be arrays of numbers"),
        (lambda: P.from_function(3), "3 is not a function"),
    ]
    for run, message in cases:
        with pytest.raises(drs.PolicyError, match=message):
            run()


# What goes wrong in a pass


def flat(value, place=0):
    """A function of candidates that gives each the same probability but for one."""

    def function(X, Z, starts):
        out = np.repeat(1 / np.diff(starts), np.diff(starts))
        out[place] = value
        return out

    return function


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (flat(-0.5), "gives a probability of -0.5 at row 0"),
        (flat(math.nan), "gives NaN among its probabilities at row 0"),
        (flat(3.0), "gives probabilities that sum to .*, not 1, at row 0"),
        (
            lambda X, Z, starts: np.ones(3),
            r"returned an array of shape \(3,\) for 60 events with .* returns a number for",
        ),
        (lambda X, Z, starts: "no", "returned str for 60 events"),
    ],
)
def test_functions_that_return_something_else(function, message):
    with pytest.raises(drs.PolicyError, match=message):
        drs.evaluate(LOG, P.from_function(function))
    if "gives" in message:
        with pytest.raises(drs.PolicyError, match=f"the propensity model {message}"):
            drs.evaluate(LOG, P.Uniform(), propensity=P.from_function(function))


def test_errors_of_functions_say_where():
    with pytest.raises(ZeroDivisionError) as caught:
        drs.evaluate(LOG, lambda X, Z, starts: 1 / 0)
    assert "raised by policy 'policy' for 60 events from row 0 on" in caught.value.__notes__[0]


def test_predictions_and_scores_that_are_not_finite():
    last = M.from_function(lambda X, Z, starts: np.where(np.arange(len(Z)) == len(Z) - 1, math.nan, 0.0))
    with pytest.raises(drs.ModelError, match=r"the reward model predicts nan for candidate 'item-.' at row 59"):
        drs.evaluate(LOG, P.Uniform(), last)
    far = M.from_function(lambda X, Z, starts: np.where(np.arange(len(Z)) == 0, math.inf, 0.0))
    with pytest.raises(drs.ModelError, match=f"the reward model predicts inf for candidate '{FIRST}' at row 0"):
        drs.evaluate(LOG, P.Uniform(), far)
    with pytest.raises(drs.PolicyError, match=f"has a prediction of inf for candidate '{FIRST}' at row 0"):
        drs.evaluate(LOG, P.Greedy(far))
    table, candidates = table_of({**FOUND, "features": np.full((9, DZ), 1e200)})
    huge = drs.Log(table, candidates=candidates)
    with pytest.raises(drs.PolicyError, match=r"has a score of inf for candidate .* which is not finite"):
        drs.evaluate(huge, P.Softmax(np.full(D + DZ, 1e200)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, *[[1.0]] * 59], "column 'c' is null at row 0"),
        ([[0.5] * 9] * 60, "column 'c' holds 9 numbers at row 0, where there are"),
        ("null inside", "column 'c' holds a null at row 2"),
        (["nobody"] * 60, "column 'c' holds 'nobody' at row 0, which is not among the candidates"),
        ([None] * 59 + ["a"], "column 'c' is null at row 0"),
        ([7] * 60, "column 'c' holds 7 at row 0, which is not a position among . candidates"),
        ([-0.5] * 60, "column 'c' holds the probability -0.5 at row 0"),
    ],
)
def test_columns_that_are_wrong(values, message):
    table, candidates = table_of(FOUND)
    if values == "null inside":
        values = [[1 / len(s)] * len(s) for s in FOUND["sets"]]
        values[2][-1] = None
    log = drs.Log(table.append_column("c", pa.array(values)), context="x?", candidates=candidates)
    with pytest.raises(drs.PolicyError, match=f"policy 'policy': {message}"):
        drs.evaluate(log, P.Column("c"))


def test_propensities_of_a_logging_policy_that_never_takes_the_action():
    never = P.from_function(lambda X, Z, starts: _first(starts, len(Z)))
    with pytest.raises(drs.ModelError, match="gives the logged action the probability 0 at row"):
        drs.evaluate(LOG, P.Uniform(), propensity=never)


def _first(starts, count):
    out = np.zeros(count)
    out[starts[:-1]] = 1
    return out


def test_a_function_of_contexts_alone_and_an_id_that_is_none():
    with pytest.raises(drs.PolicyError, match=r"'new' does not take three arguments.*\(contexts, features, starts\)"):
        drs.evaluate(LOG, {"new": lambda X: X}, estimators=["ips"])
    with pytest.raises(drs.DrstreamError, match="does not take three arguments"):
        drs.evaluate(LOG, P.Uniform(), M.from_function(lambda X: X))
    with pytest.raises(drs.PolicyError, match="takes None, and ids of candidates are"):
        drs.evaluate(LOG, P.Constant(None, otherwise=P.Uniform()), estimators=["ips"])
