"""Limits of weights that are chosen from a grid in the same pass."""

import pickle

import numpy as np
import pytest

import drstream as drs
from drstream.evaluation import grids
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.reference import slope_by_hand

ROWS = 500 if PLAIN else 5_000
POLICIES = {"soft": drs.policies.Softmax(world().taste * 3), "second": drs.policies.Constant(1)}


@pytest.fixture(scope="module")
def result():
    model = drs.models.Ridge().fit(drs.Log(world().table(400, seed=1)))
    return drs.evaluate(drs.Log(world().table(ROWS)), POLICIES, model, lambda_="auto")


def test_every_estimator_with_a_limit_is_there(result):
    assert {"dros", "switch-dr", "ips-capped", "dr-capped"} < set(result.estimators)
    assert set(result.limits) == {"dros", "switch-dr", "ips-capped", "dr-capped"}
    assert len(result.grid) == 4 * 2 * len(grids.LIMITS)


@pytest.mark.parametrize(("name", "parameter"), [("dros", "lambda_"), ("switch-dr", "lambda_"), ("dr-capped", "cap")])
def test_each_point_of_the_grid_is_what_its_limit_gives(result, name, parameter):
    model = drs.models.Ridge().fit(drs.Log(world().table(400, seed=1)))
    rows = [r for r in result.grid.to_pylist() if r["estimator"] == name and r["policy"] == "soft"]
    for row in rows[1 :: 1 if not PLAIN else 6]:
        one = drs.evaluate(drs.Log(world().table(ROWS)), POLICIES, model, [name], **{parameter: row["lambda"]})[
            "soft", name
        ]
        assert (row["value"], row["stderr"]) == (one.value, one.stderr)
    assert sum(r["chosen"] for r in rows) == 1
    assert rows[0]["value"] == result["soft", "dr"].value


def test_the_choice_is_the_most_careful_one_of_all_policies(result):
    for name in result.limits:
        rows = [r for r in result.grid.to_pylist() if r["estimator"] == name]
        half = 1.959963984540054
        choices = []
        for policy in POLICIES:
            mine = [r for r in rows if r["policy"] == policy]
            choices.append(slope_by_hand([r["value"] for r in mine], [half * r["stderr"] for r in mine]))
        assert result.limits[name] == rows[min(choices)]["lambda"]


def test_the_interval_is_that_without_a_limit_extended_to_the_value(result):
    """A choice from the data must not make an interval narrower."""
    for name in result.limits:
        twin = result["soft", "ips" if name == "ips-capped" else "dr"]
        found = result["soft", name]
        assert (found.low, found.high) == (min(twin.low, found.value), max(twin.high, found.value))
        twin, found = (result.difference("soft", "second", e) for e in ("ips" if name == "ips-capped" else "dr", name))
        assert (found.low, found.high) == (min(twin.low, found.value), max(twin.high, found.value))


@pytest.mark.slow
@pytest.mark.parametrize("good", [True, False])
def test_errors_and_coverage_where_weights_are_heavy(good):
    """100 logs: with a good model, a chosen limit halves the rmse of DR. The intervals cover with any model."""
    w = world(floor=0.002)
    policy = drs.policies.Softmax(-3 * w.taste)
    truth, errors, inside = w.value(policy), {"dr": [], "dros": []}, 0
    model = drs.models.Ridge().fit(drs.Log(w.table(3000, seed=500)))
    if good:
        model = drs.models.from_function(lambda X: 0.9 * w.reward(X) + 0.01)
    for seed in range(100):
        log = drs.Log(w.table(1000, seed=seed))
        found = drs.evaluate(log, policy, model, ["dr", "dros"], lambda_="auto", threads=1)
        for name, list_ in errors.items():
            list_.append(found[name].value - truth)
        inside += found["dros"].low <= truth <= found["dros"].high
    rmse = {name: np.sqrt(np.mean(np.square(e))) for name, e in errors.items()}
    assert rmse["dros"] < (0.6 if good else 3) * rmse["dr"]  # SLOPE promises a constant factor, and no more
    assert inside >= 93


def test_json_has_the_grid_and_without_auto_there_is_none(result):
    assert len(result.to_dict()["grid"]) == len(result.grid)
    plain = drs.evaluate(drs.Log(world().table(200)), POLICIES)
    assert plain.grid is None
    assert plain.limits == {}


def test_a_limit_beside_the_grid_is_refused():
    with pytest.raises(drs.DrstreamError, match="lambda_='auto' chooses the limits of weights: leave out cap="):
        drs.evaluate(drs.Log(world().table(200)), POLICIES, lambda_="auto", cap=5)


def test_forms_and_results_can_be_pickled(result):
    copy = pickle.loads(pickle.dumps(result))
    assert copy.limits == result.limits
    assert copy["soft", "dros"] == result["soft", "dros"]
