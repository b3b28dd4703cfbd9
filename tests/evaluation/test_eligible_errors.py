"""What a policy or a model that does not keep to the eligible sets gets, and functions that are given the sets."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.errors import ModelError, PolicyError
from tests.helpers import eligible as naive

pytestmark = pytest.mark.covers

P, M = drs.policies, drs.models
LABELS = ["a", "b", "c"]
SETS = [["b", "a"], ["c"], ["a", "b", "c"], ["b"]]
TABLE = pa.table(
    {
        "action": ["a", "c", "b", "b"],
        "reward": [1.0, 0.0, 1.0, 0.0],
        "propensity": [0.5, 1.0, 0.25, 1.0],
        "items": SETS,
        "x0": [0.0, 1.0, 2.0, 3.0],
        "target": ["a", "c", "c", "a"],
        "nu": [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.1, 0.9, 0.0]],
        "pi": [0.5, 1.0, 0.25, 1.0],
    }
)
MASK = np.array([[label in row for label in LABELS] for row in SETS])


def log(**options):
    return drs.Log(TABLE, **{"eligible": "items", **options})


def refused(policy, message, error=PolicyError, **options):
    with pytest.raises(error, match=message):
        drs.evaluate(log(), {"new": policy}, estimators=["ips"], **options)


def test_a_function_that_leaves_the_set():
    message = (
        r"policy 'new' gives action 'c' the probability 0.333333 at row 0, where it is not eligible: the event could "
        r"choose from \['b', 'a'\]. .* takes `eligible` as its second argument is given the sets"
    )
    refused(lambda X: np.full((len(X), 3), 1 / 3), message)
    refused(lambda X, eligible: np.where(X == 3, 1 / 3, naive.uniform(eligible)), "gives action 'a' .* at row 3")
    refused(P.from_arrow(lambda batch: ["b", "c", "a", "c"], ["x0"]), "gives action 'c' the probability 1 at row 3")
    refused(P.Column("nu"), "gives action 'a' the probability 0.1 at row 3")
    refused(P.Epsilon(P.Column("nu"), 0.1), "gives action|sum to")


def test_nan_is_no_probability_wherever_it_is():
    refused(lambda X: np.where(MASK, 0.5, np.nan), "NaN among its probabilities at row 0")
    refused(lambda X, eligible: np.where(MASK, 0.5, 0.0), "sum to 0.5, not 1, at row 1")


def test_a_target_outside_of_the_set():
    message = r"policy 'new': column 'target' holds 'a' at row 3, which is not eligible there: .* from \['b'\]"
    refused(P.Column("target"), message)
    refused(P.Column("target"), message, model=M.Constant(0.1))


def test_a_constant_that_is_not_eligible():
    message = r"'new' always takes action 'a', which is not in the eligible set of row 1: it could choose from \['c'\]"
    refused(P.Constant("a"), message)
    refused(P.Constant("a"), message, model=M.Constant(0.1))
    refused(P.Constant("a", otherwise=P.Constant("b")), "'new' always takes action 'b', .* eligible set of row 1")
    refused(P.Constant("a", otherwise=P.Column("pi")), "must know the probabilities of all actions")
    refused(P.Constant("z", otherwise=P.Uniform()), "takes action 'z', which is not among the 3 actions")


def test_a_constant_with_another_policy_where_it_is_not_eligible():
    policy = P.Constant("a", otherwise=P.Constant("b", otherwise=P.Uniform()))
    assert drs.evaluate(log(), policy, estimators=["ips"])["ips"].value == 1 / 0.5 / 4
    without = drs.evaluate(log(eligible=None), policy, estimators=["ips"])["ips"].value
    assert without == drs.evaluate(log(eligible=None), P.Constant("a"), estimators=["ips"])["ips"].value
    with_model = drs.evaluate(log(), policy, M.Constant([0.1, 0.2, 0.3]), ["dm"])["dm"].value
    assert with_model == pytest.approx((0.1 + 0.3 + 0.1 + 0.2) / 4)


def test_a_constant_brings_the_columns_of_its_other_policy():
    other = P.from_arrow(lambda batch, eligible: naive.uniform(eligible), ["x0"])
    policy = P.Constant("a", otherwise=other)
    assert policy.columns == ("x0",)
    plain = drs.evaluate(log(), P.Constant("a", otherwise=P.Uniform()), M.Constant(0.5), ["dr"])
    assert drs.evaluate(log(), policy, M.Constant(0.5), ["dr"])["dr"].value == plain["dr"].value


def test_functions_of_logs_without_sets_are_given_all_actions():
    seen = []

    def needs(X, mask):
        seen.append(mask)
        return naive.uniform(mask)

    def may(X, eligible=None):
        seen.append(eligible)
        return np.full((len(X), 3), 1 / 3)

    both = drs.evaluate(log(eligible=None), {"needs": needs, "may": may}, estimators=["ips"])
    assert both["needs", "ips"].value == both["may", "ips"].value
    assert seen[0].shape == (4, 3)
    assert seen[0].all()
    assert seen[1] is None


def test_a_parameter_with_a_default_is_no_set():
    def policy(X, temperature=1.0):
        assert temperature == 1.0
        return np.array([[1.0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])

    assert drs.evaluate(log(), policy, estimators=["ips"])["ips"].value == 0.5


class Classifier:
    classes_ = np.array(LABELS)

    def __init__(self, pi):
        self.pi = np.array(pi)

    def predict_proba(self, X):
        return self.pi


def test_a_classifier_says_what_it_wants():
    pi = [[0.2, 0.2, 0.6], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]]
    message = "actions that are not eligible the probability 0.6 at row 0, .* renormalise=True"
    refused(P.from_sklearn(Classifier(pi)), message)
    good = P.from_sklearn(Classifier(pi), renormalise=True)
    found = drs.evaluate(log(), good, estimators=["ips"])["ips"].value
    assert found == pytest.approx((0.5 / 0.5 + 0.3 / 0.25) / 4)
    pi[3] = [0.5, 0.0, 0.5]
    refused(P.from_sklearn(Classifier(pi), renormalise=True), "all eligible actions the probability 0 at row 3")
    inside = np.where(MASK, 1.0, 0.0) / MASK.sum(axis=1, keepdims=True)
    plain = drs.evaluate(log(), P.from_sklearn(Classifier(inside)), estimators=["ips"])
    assert plain["ips"].value == drs.evaluate(log(), P.Uniform(), estimators=["ips"])["ips"].value


def test_a_logging_policy_that_leaves_the_set():
    message = "the propensity model gives action 'c' .* at row 0"
    refused(P.Uniform(), message, propensity=lambda X: np.full((4, 3), 1 / 3))
    even = drs.evaluate(log(), P.Uniform(), estimators=["ips"], propensity=P.Uniform())
    assert even["ips"].value == 0.5


def test_a_classifier_of_propensities_knows_no_sets():
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = M.Propensity.from_sklearn(linear_model.LogisticRegression())
    with pytest.raises(ModelError, match="knows no eligible sets, and the log has some, in column 'items'"):
        model.fit(log())
    fitted = model.fit(drs.Log(TABLE.slice(0)))
    with pytest.raises(ModelError, match=r"Use drs.models.Propensity\(\), which is fitted over the sets"):
        drs.evaluate(log(), P.Uniform(), estimators=["ips"], propensity=fitted)


def test_predictions_for_eligible_actions_must_be_finite():
    outside = np.where(MASK, 0.5, np.nan)
    found = drs.evaluate(log(), P.Uniform(), M.from_function(lambda X: outside), ["dm", "dr"])
    assert found["dm"].value == 0.5
    assert drs.evaluate(log(), P.Greedy(M.from_function(lambda X: outside)), estimators=["ips"])
    bad = outside.copy()
    bad[2, 0] = np.inf
    model = M.from_function(lambda X: bad)
    with pytest.raises(ModelError, match="predicts inf for action 0 at row 2"):
        drs.evaluate(log(), P.Uniform(), model, ["dm"])
    with pytest.raises(ModelError, match="predicts inf for action 0 at row 2"):
        drs.evaluate(log(), P.Greedy(model), estimators=["ips"])


def test_a_column_of_predictions_may_be_null_where_the_action_is_not_eligible():
    lists = [[0.5 if able else None for able in row] for row in MASK]
    table = TABLE.append_column("rhat", pa.array(lists))
    for k, label in enumerate(LABELS):
        table = table.append_column(f"of {label}", pa.array([row[k] for row in lists]))
    models = M.Column("rhat"), M.Column(*(f"of {label}" for label in LABELS))
    for model in models:
        found = drs.evaluate(drs.Log(table, eligible="items"), P.Uniform(), model, ["dm", "dr"])
        assert found["dm"].value == 0.5
    for model, message in zip(models, ("'rhat' holds a null at row 0", "'of c' is null at row 0"), strict=True):
        with pytest.raises(ModelError, match=message):
            drs.evaluate(drs.Log(table), P.Uniform(), model, ["dm"])
    lists[3] = [0.5, None, 0.5]
    table = TABLE.append_column("rhat", pa.array(lists))
    with pytest.raises(ModelError, match="'rhat' holds a null at row 3"):
        drs.evaluate(drs.Log(table, eligible="items"), P.Uniform(), M.Column("rhat"), ["dm"])


def test_several_rewards_and_sampled_rows_keep_to_the_sets():
    table = TABLE.append_column("spend", pa.array([3.0, 1.0, 2.0, 5.0]))
    table = table.append_column("rate", pa.array([0.5, 1.0, 0.25, 1.0]))
    both = drs.Log(table, reward=["reward", "spend"], eligible="items")
    found = drs.evaluate(both, P.Uniform(), M.Constant(0.5), ["dm", "ips"])
    w = np.array([0.5, 1.0, 1 / 3, 1.0]) / np.array([0.5, 1.0, 0.25, 1.0])
    assert found.rewards["spend"]["ips"].value == pytest.approx((w * [3, 1, 2, 5]).mean())
    assert found.rewards["spend"]["dm"].value == pytest.approx(0.5)
    sampled = drs.evaluate(drs.Log(table, sample_rate="rate", eligible="items"), P.Uniform(), estimators=["ips"])
    rows = np.array([2, 1, 4, 1])
    assert sampled["ips"].value == pytest.approx((rows * w * [1, 0, 1, 0]).sum() / rows.sum())


def test_predictions_outside_of_a_range_count_where_they_are_eligible():
    outside = np.where(MASK, 0.5, 7.0)
    options = {"reward_range": (0.25, 1), "interval": "freedman", "max_weight_bound": 4.0}
    table = TABLE.set_column(1, "reward", pa.array([1.0, 0.5, 1.0, 0.5]))
    opened = drs.Log(table, eligible="items")
    model = M.from_function(lambda X: outside)
    drs.evaluate(opened, P.Uniform(), model, ["dr"], **options)
    with pytest.raises(drs.DrstreamError, match="outside of reward_range"):
        drs.evaluate(drs.Log(table), P.Uniform(), model, ["dr"], **options)
    clamped = drs.evaluate(opened, P.Uniform(), model, ["dm"], clamp=(0.0, 0.4))
    assert clamped.models.clamped == 1.0  # of the predictions for eligible actions
