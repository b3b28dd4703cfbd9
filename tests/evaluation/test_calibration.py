"""Clamped predictions, R² and calibration of reward models: as computed by hand."""

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.models.calibration import Calibration
from tests.helpers import reference
from tests.helpers.evaluations import POLICY, ROWS, WORLD, D, M, agree, evaluate, open_log, values
from tests.helpers.logs import arrays

pytestmark = pytest.mark.covers


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=1).append_column("user", pa.array(np.arange(ROWS) // 9))


# Clamps


def test_clamps_hold_predictions_and_are_counted(table):
    train, test = open_log(table).split(0.5)
    model = M.Ridge(1e-6).fit(train)
    X = arrays(table, D)[0]
    rhat = model.predict(X)
    outside = drs.uniforms(drs.log.rows.split_seed(0, 0), 0, ROWS) >= 0.5
    columns = table.filter(pa.array(outside))
    for clamp, (low, high) in (((0.1, 0.3), (0.1, 0.3)), ([0, 0.25], (0, 0.25)), (True, (0.0, 1.0))):
        held = np.clip(rhat, low, high)[outside]
        result = evaluate(test, POLICY, model, clamp=clamp)
        agree(result, values(columns, held))
        changed = ((rhat < low) | (rhat > high))[outside].mean()
        assert result.clamped == pytest.approx(changed, rel=1e-12)
        a, r = arrays(columns, D)[1:3]
        assert result.r2 == pytest.approx(reference.r_squared(held[np.arange(len(r)), a], r), rel=1e-9)
        run = drs.replay(test, drs.policies.Uniform(), 10, model, clamp=clamp, q=0.1)
        assert run.clamped == pytest.approx(changed, rel=0.2, abs=0.02)
    assert 0 < evaluate(test, POLICY, model, clamp=(0.1, 0.3)).clamped < 1
    for clamp in (None, False, (-np.inf, np.inf)):
        assert evaluate(test, POLICY, model, clamp=clamp).clamped == 0
    folded = evaluate(open_log(table), POLICY, M.Ridge(), crossfit=3, clamp=True)
    assert folded.r2 > evaluate(open_log(table), POLICY, M.Ridge(), crossfit=3).r2
    assert "of its predictions clamped" in repr(folded)


@pytest.mark.parametrize("clamp", [(1, 0), (0,), (0, 1, 2), "01", 0.5, (0, np.nan), ("a", "b"), (None, 1), {0, 1}])
def test_clamps_that_are_none(table, clamp):
    with pytest.raises(drs.ModelError, match=r"clamp=.*True, or the range of rewards as"):
        evaluate(table, POLICY, M.Constant(0.5), clamp=clamp)


def test_the_range_of_a_model_that_was_not_fitted(table):
    with pytest.raises(drs.ModelError, match=r"clamp=True is the range of rewards .* give \(low, high\)"):
        evaluate(table, POLICY, M.Constant(0.5), clamp=True)


# R² and calibration


def test_calibration_by_hand(table):
    """Ten parts of about the same size in the order of predictions; sums are exact, bounds to a few per cent."""
    X, a, r, _ = arrays(table, D)
    model = M.from_function(WORLD.reward)
    result = evaluate(open_log(table), POLICY, model)
    predicted = WORLD.reward(X)[np.arange(ROWS), a]
    assert result.r2 == pytest.approx(reference.r_squared(predicted, r), rel=1e-10)
    got = result.calibration
    assert got.column_names == ["decile", "events", "predicted", "reward"]
    assert got["decile"].to_pylist() == list(range(1, 11))
    events = got["events"].to_numpy()
    assert events.sum() == ROWS
    assert (np.abs(events - ROWS / 10) < ROWS / 20).all()
    assert (np.diff(got["predicted"].to_numpy()) > 0).all()
    order = np.argsort(predicted, kind="stable")
    start = 0
    for n, mean_predicted, mean_reward in zip(*(got[name].to_pylist() for name in got.column_names[1:]), strict=True):
        rows = order[start : start + n]
        start += n
        assert mean_predicted == pytest.approx(predicted[rows].mean(), rel=1e-9)
        assert mean_reward == pytest.approx(r[rows].mean(), abs=1e-9)
    assert result.to_dict()["model"]["calibration"] == got.to_pylist()
    assert f"R² {result.r2:.3g}" in repr(result)
    assert drs.replay(open_log(table), POLICY, 10, model).calibration["events"].to_pylist() == events.tolist()


def test_calibration_of_few_predictions_and_far_ones(table):
    result = evaluate(open_log(table), POLICY, M.Constant([0.0, 0.0, 1e12, -1e12]))
    a, r = arrays(table, D)[1:3]
    assert result.calibration["events"].to_pylist() == [(a == 3).sum(), (a < 2).sum(), (a == 2).sum()]
    assert result.calibration["predicted"].to_pylist() == [-1e12, 0, 1e12]
    np.testing.assert_allclose(result.calibration["reward"], [r[a == 3].mean(), r[a < 2].mean(), r[a == 2].mean()])


def test_r2_is_undefined_without_a_model_or_a_spread(table):
    assert math.isnan(evaluate(table, POLICY, estimators="ips").r2)
    assert evaluate(table, POLICY, estimators="ips").calibration is None
    assert evaluate(table, POLICY, estimators="ips").to_dict()["model"] is None
    rng = np.random.default_rng(0)
    for rows in (1, 2, 10, 77, 999):
        for reward in [0.0, 0.1, 1 / 3, 1e6 + 0.1, *rng.random(20)]:
            same = np.full(rows, reward)
            for pivot in (float(same.mean()), 0.0, reward * (1 + 1e-15)):
                tally, other = Calibration(pivot), Calibration(pivot)
                tally.add(np.full(rows, 0.2), same)
                other.add(np.full(rows, 0.3), same)
                assert math.isnan(tally.r2)
                tally.merge(other)
                assert math.isnan(tally.r2)
    assert math.isnan(Calibration(0.0).r2)
    spread = Calibration(5.0)
    spread.add(np.array([5.0, 5.0]), np.array([5.0 - 1e-6, 5.0 + 1e-6]))
    assert spread.r2 == pytest.approx(0, abs=1e-6)
