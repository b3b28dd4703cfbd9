"""Inflated propensities of the log, and caps and floors that are chosen from a grid."""

import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.evaluation import grids
from tests.helpers import reference
from tests.helpers.command import drstream, fails
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN
from tests.helpers.reference import slope_by_hand

ROWS = 300 if PLAIN else 3_000
WORLD = world(kinds=40, floor=0.01)
POLICIES = {"soft": drs.policies.Softmax(WORLD.taste * 2), "rare": drs.policies.Softmax(-2 * WORLD.taste)}
MODEL = drs.models.Ridge().fit(drs.Log(WORLD.table(300, seed=1)))
NAMES = ["ips-capped", "dr-capped"]
Z = 1.959963984540054
GRIDS = {"cap": grids.LIMITS, "floor": grids.FLOORS}


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=3)


@pytest.fixture(scope="module", params=["cap", "floor"])
def chosen(request, table):
    """The parameter, and a result with its value chosen from a grid."""
    given = {request.param: "auto"}
    return request.param, evaluate(drs.Log(table), POLICIES, MODEL, ["ips", "dr", *NAMES], **given)


# Inflation


@pytest.mark.parametrize(
    "limits", [{"inflation": 1.5}, {"inflation": 2.0, "cap": 1.2}, {"inflation": 1.3, "floor": 0.2}]
)
@pytest.mark.parametrize("name", NAMES)
def test_inflated_propensities_of_the_log(table, name, limits):
    X, a, r, p = arrays(table, 3)
    pi, rhat = POLICIES["soft"].probabilities(X), MODEL.predict(X)
    found = evaluate(drs.Log(table), POLICIES["soft"], MODEL, [name], **limits)[name]
    value, stderr, _ = reference.estimate(name, r, p, a, pi, rhat, **limits)
    assert (found.value, found.stderr) == pytest.approx((value, stderr), rel=1e-10)
    assert found.capped > 0.5


def test_inflation_is_the_factor_of_the_propensities(table):
    """2 p in the log, where it is at most 1, weighs as inflation=2 does."""
    small = table.filter(pa.compute.less_equal(table["propensity"], 0.5))
    twice = pa.array(2 * small["propensity"].to_numpy())
    other = small.set_column(small.column_names.index("propensity"), "propensity", twice)
    found = evaluate(drs.Log(small), POLICIES["soft"], MODEL, ["dr-capped"], inflation=2)["dr-capped"]
    wanted = evaluate(drs.Log(other), POLICIES["soft"], MODEL, ["dr"])["dr"]
    assert (found.value, found.stderr) == pytest.approx((wanted.value, wanted.stderr), rel=1e-12)


@pytest.mark.slow
def test_the_bias_of_inflation_is_that_of_theorem_3_4():
    """40 logs of 4,000 events: the measured bias and variance agree with the exact ones within 4 standard errors."""
    policy, rhat = POLICIES["soft"], 0.5 * WORLD.reward(WORLD.kinds) + 0.3
    model = drs.models.from_function(lambda X: 0.5 * WORLD.reward(X) + 0.3)
    seen = []
    for seed in range(40):
        log = drs.Log(WORLD.table(4_000, seed=seed))
        found = evaluate(log, policy, model, ["dr-capped"], inflation=1.5, explain=True, threads=1).explain()
        seen.append((found.bias, found.variance))
    wanted = WORLD.bias(policy, rhat, 1.5), WORLD.variance(policy, rhat, 1.5).total
    error = np.std(seen, axis=0, ddof=1) / math.sqrt(40)
    assert (abs(np.mean(seen, axis=0) - wanted) <= 4 * error + 1e-3 * np.abs(wanted)).all()
    assert abs(wanted[0]) > 10 * error[0]


@pytest.mark.parametrize("wrong", [0.9, math.inf, "2", 0])
def test_a_wrong_inflation_is_refused(table, wrong):
    with pytest.raises(drs.DrstreamError, match=r"inflation=.* must be a"):
        evaluate(drs.Log(table), POLICIES, inflation=wrong)


# Caps and floors from a grid


def test_all_limits_are_tried(chosen):
    parameter, result = chosen
    assert set(result.limits) == set(NAMES)
    assert len(result.grid) == len(NAMES) * len(POLICIES) * len(GRIDS[parameter])
    assert set(result.grid[parameter].to_pylist()) == set(GRIDS[parameter])


@pytest.mark.parametrize("name", NAMES)
def test_each_point_of_the_grid_is_what_its_limit_gives(chosen, table, name):
    parameter, result = chosen
    rows = [row for row in result.grid.to_pylist() if (row["estimator"], row["policy"]) == (name, "rare")]
    first = result["rare", "ips" if name == "ips-capped" else "dr"]
    assert rows[0]["value"] == first.value
    for row in rows[1 :: 5 if PLAIN else 1]:
        one = evaluate(drs.Log(table), POLICIES, MODEL, [name], **{parameter: row[parameter]})["rare", name]
        assert (row["value"], row["stderr"]) == (one.value, one.stderr)


def test_slope_chooses_and_the_most_careful_of_all_policies_counts(chosen):
    parameter, result = chosen
    for name in NAMES:
        places = []
        for policy in POLICIES:
            rows = [row for row in result.grid.to_pylist() if (row["estimator"], row["policy"]) == (name, policy)]
            places.append(slope_by_hand([row["value"] for row in rows], [Z * row["stderr"] for row in rows]))
            assert sum(row["chosen"] for row in rows) == 1
        assert result.limits[name] == GRIDS[parameter][min(places)]
        assert rows[min(places)]["chosen"]


def test_the_interval_is_that_without_a_limit_extended_to_the_value(chosen):
    """A choice from the data must not make an interval narrower."""
    _, result = chosen
    for name in NAMES:
        twin, found = result["rare", "ips" if name == "ips-capped" else "dr"], result["rare", name]
        assert (found.low, found.high) == (min(twin.low, found.value), max(twin.high, found.value))


def test_results_can_be_pickled_and_other_estimators_stay_as_they_are(chosen, table):
    parameter, result = chosen
    copy = pickle.loads(pickle.dumps(result))
    assert copy.limits == result.limits
    assert copy["soft", "dr-capped"] == result["soft", "dr-capped"]
    plain = evaluate(drs.Log(table), POLICIES, MODEL, ["ips", "dr"])
    assert result["soft", "dr"] == plain["soft", "dr"]
    beside = evaluate(drs.Log(table), POLICIES, MODEL, ["dros", "dr-capped"], lambda_=3.0, **{parameter: "auto"})
    assert set(beside.limits) == {"dr-capped"}
    assert beside["soft", "dros"] == evaluate(drs.Log(table), POLICIES, MODEL, ["dros"], lambda_=3.0)["soft", "dros"]


def test_without_names_the_capped_estimators_are_there(table):
    result = evaluate(drs.Log(table), POLICIES, MODEL, floor="auto")
    assert result.estimators == ["ips", "snips", "dr", "ips-capped", "dr-capped", "dm"]
    named = table.append_column("country", pa.array(np.where(np.arange(ROWS) % 3, "DE", "FR")))
    by = evaluate(drs.Log(named), POLICIES, MODEL, ["dr-capped"], floor="auto", by="country")
    assert by.segment(country="DE").limits == by.limits  # segments share the limit of the whole


def test_threads_and_batch_sizes_do_not_change_a_bit(chosen, table, tmp_path):
    parameter, _ = chosen
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 5)
    found = []
    for threads, size in ((1, 65_536), (3, 77)):
        log = cut_log(tmp_path / "log.parquet", batch_size=size)
        found.append(evaluate(log, POLICIES, MODEL, NAMES, threads=threads, **{parameter: "auto"}))
    assert found[0].grid.equals(found[1].grid)
    assert found[0].rows() == found[1].rows()


@pytest.mark.slow
@pytest.mark.parametrize("good", [True, False])
def test_errors_and_coverage_where_weights_are_heavy(good):
    """100 logs: with a good model, a chosen cap or floor lowers the rmse of DR. The intervals cover with any model."""
    w = world(floor=0.002)
    policy = drs.policies.Softmax(-3 * w.taste)
    truth, errors, inside = w.value(policy), {"dr": [], "cap": [], "floor": []}, 0
    model = drs.models.from_function(lambda X: 0.9 * w.reward(X) + 0.01) if good else drs.models.Constant(0.5)
    for seed in range(100):
        log = drs.Log(w.table(1000, seed=seed))
        for parameter in ("cap", "floor"):
            found = evaluate(log, policy, model, ["dr", "dr-capped"], threads=1, **{parameter: "auto"})
            errors[parameter].append(found["dr-capped"].value - truth)
            inside += found["dr-capped"].low <= truth <= found["dr-capped"].high
        errors["dr"].append(found["dr"].value - truth)
    rmse = {name: np.sqrt(np.mean(np.square(e))) for name, e in errors.items()}
    for name in ("cap", "floor"):
        assert rmse[name] < (1 if good else 3) * rmse["dr"]  # SLOPE promises a constant factor, and no more
    assert inside >= 186


def test_errors(table):
    log = drs.Log(table)
    for given in (
        {"cap": "auto", "floor": 0.1},
        {"floor": "auto", "cap": 3},
        {"cap": "auto", "floor": "auto"},
        {"cap": "auto", "inflation": 2},
        {"lambda_": "auto", "floor": "auto"},
        {"lambda_": "auto", "inflation": 2},
    ):
        with pytest.raises(drs.DrstreamError, match=r"='auto' chooses the limits of weights: leave out"):
            evaluate(log, POLICIES, MODEL, **given)
    for given in ({"cap": "automatic"}, {"floor": "best"}):
        with pytest.raises(drs.DrstreamError, match=r"(cap|floor)='.*' must be a number above 0"):
            evaluate(log, POLICIES, MODEL, **given)
    with pytest.raises(drs.DrstreamError, match=r"'dros' needs a limit: pass lambda_="):
        evaluate(log, POLICIES, MODEL, ["dros"], cap="auto")


def test_the_command_line(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    words = ("evaluate", "log.parquet", "--policy", "uniform", "--json")
    found = json.loads(drstream(*words, "--floor", "auto", cwd=tmp_path).stdout)
    assert len(found["grid"]) == len(grids.FLOORS)
    assert {"floor", "value", "stderr", "low", "high", "chosen"} <= set(found["grid"][0])
    found = json.loads(drstream(*words, "--inflation", "1.5", cwd=tmp_path).stdout)
    assert [row["estimator"] for row in found["estimates"]] == ["ips", "snips", "ips-capped"]
    assert found["estimates"][2]["capped"] == 1
    fails(
        "--cap auto chooses the limits of weights: leave out --floor",
        *words,
        "--cap",
        "auto",
        "--floor",
        "0.1",
        cwd=tmp_path,
    )
