"""One test for each way in which floating-point numbers could spoil a result."""

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.kernels import scores
from drstream.moments import Layout
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS = 5_000 if PLAIN else 200_000


def moments_of(x):
    layout = Layout(1, ((0,),))
    state = layout.create()
    for start in range(0, len(x), 16_384):
        layout.update(state, x[None, start : start + 16_384].copy())
    return layout.means(state)[0], layout.comoment(state, (0,))[0, 0] / (len(x) - 1)


def test_sums_are_compensated():
    """Large terms that cancel: a plain running sum keeps about 9 of 16 digits here."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(ROWS) * 1e8
    x = np.concatenate([x, -x, rng.standard_normal(ROWS)])
    mean, _ = moments_of(x)
    ref = math.fsum(x) / len(x)
    assert abs(np.cumsum(x)[-1] / len(x) - ref) > 1e-12 * abs(ref)  # the test can fail
    assert mean == pytest.approx(ref, rel=1e-13)


def test_variance_far_from_zero():
    """1e8 + N(0, 1): the naive sum of squares loses every digit of the variance."""
    x = 1e8 + np.random.default_rng(1).standard_normal(ROWS)
    _, variance = moments_of(x)
    exact = x - 1e8
    assert variance == pytest.approx(np.var(exact, ddof=1), rel=1e-7)


def test_variance_with_one_huge_value_first():
    """A pivot taken from the first event would be useless here."""
    x = np.concatenate([[1e12], np.random.default_rng(2).standard_normal(ROWS)])
    _, variance = moments_of(x)
    assert variance == pytest.approx(np.var(x, ddof=1), rel=1e-12)


def test_softmax_is_exact_to_the_last_digits():
    rng = np.random.default_rng(3)
    x = rng.uniform(-40, 40, (5, 400))
    got = x.copy()
    scores.softmax(got, np.zeros(5), None)
    exps = np.exp(x - x.max(axis=0))
    np.testing.assert_allclose(got, exps / exps.sum(axis=0), rtol=5e-15)


def test_softmax_of_extreme_scores():
    got = np.array([[1e300, -800.0, 0.0, 5.0], [-1e300, 800.0, -1e4, 5.0]])
    scores.softmax(got, np.zeros(2), None)
    assert got.tolist() == [[1.0, 0.0, 1.0, 0.5], [0.0, 1.0, 0.0, 0.5]] or np.allclose(
        got, [[1, 0, 1, 0.5], [0, 1, 0, 0.5]], atol=1e-300
    )


@pytest.mark.parametrize("kernel", [scores.softmax, scores.argmax])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_scores_do_not_hide(kernel, bad):
    x = np.zeros((3, 2))
    x[1, 1] = bad
    kernel(x, np.zeros(3), None)
    assert np.isfinite(x[:, 0]).all()
    assert np.isnan(x[:, 1]).any()


def test_argmax_takes_the_first_of_a_tie():
    x = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 2.0]])
    scores.argmax(x, np.zeros(3), None)
    assert x.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_float32_contexts_are_scored_in_double_on_request():
    """The log's float32 numbers are taken as they are. By default, what is computed for an action is float32, too."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 3)).astype(np.float32)
    columns = {"action": np.zeros(500, int), "reward": rng.random(500), "propensity": np.full(500, 0.5)}
    table = pa.table({**columns, **{f"x{j}": X[:, j].copy() for j in range(3)}})
    weights = rng.standard_normal((2, 3))
    s = X.astype(float) @ weights.T
    pi = np.exp(s[:, 0]) / np.exp(s).sum(axis=1)
    wanted = math.fsum(pi / 0.5 * columns["reward"]) / 500
    log, policy = drs.Log(table, actions=2), drs.policies.Softmax(weights)
    double, single = (drs.evaluate(log, policy, estimators="ips", precision=p) for p in ("float64", None))
    assert (double.precision, single.precision) == ("float64", "float32")
    assert double["ips"].value == pytest.approx(wanted, rel=1e-14)
    assert single["ips"].value == pytest.approx(wanted, rel=1e-6)
    assert single["ips"].value != double["ips"].value


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_snips_error_does_not_depend_on_where_rewards_are(offset):
    rng = np.random.default_rng(5)
    rows = 2_000 if PLAIN else 50_000
    p = rng.uniform(0.2, 0.8, rows)
    action = (rng.random(rows) > p).astype(int)
    logged = np.where(action == 0, p, 1 - p)
    reward = rng.standard_normal(rows) + 0.5 * action + offset
    table = pa.table({"action": action, "reward": reward, "propensity": logged})
    got = drs.evaluate(table, drs.policies.Uniform(), estimators="snips")["snips"]
    w = 0.5 / logged
    value = (w * (reward - offset)).sum() / w.sum()
    psi = w * (reward - offset - value) / w.mean()
    assert got.value - offset == pytest.approx(value, abs=1e-7 if offset else 1e-12)
    assert got.stderr == pytest.approx(psi.std(ddof=1) / np.sqrt(rows), rel=1e-6)


def test_a_difference_lost_in_rounding_is_not_certain():
    """Policies that differ by 1e-12: the standard error is never less than what rounding may hide."""
    rng = np.random.default_rng(6)
    table = pa.table({"action": rng.integers(0, 2, 500), "reward": rng.random(500), "propensity": np.full(500, 0.5)})
    a, b = (lambda X, d=d: np.tile([0.5 + d, 0.5 - d], (len(X), 1)) for d in (0.0, 1e-12))
    result = drs.evaluate(table, {"a": a, "b": b}, estimators="ips")
    gap = result.difference("a", "b", "ips")
    assert 0 < gap.stderr < 1e-6 * result["a", "ips"].stderr
    assert gap.low < 0 < gap.high


def test_no_support_has_no_interval():
    table = pa.table({"action": [0, 1, 0], "reward": [1.0, 0.0, 1.0], "propensity": [0.5] * 3})
    names = ["ips", "dr", "dm"]
    result = drs.evaluate(drs.Log(table, actions=3), drs.policies.Constant(2), drs.models.Constant(0.5), names)
    for name in ("ips", "dr"):
        assert math.isnan(result[name].low)
        assert math.isnan(result.difference("policy", estimator=name).high)
    assert result["dm"].value == 0.5


def test_enormous_weights_do_not_warn():
    table = pa.table({"action": [0, 1, 0], "reward": [1.0, 0.0, 1.0], "propensity": [1e-200, 0.5, 5e-324]})
    result = drs.evaluate(table, drs.policies.Uniform(), drs.models.Constant(0.5), ["ips", "snips", "dr", "sndr"])
    assert result["ips"].max_weight == np.inf
    assert math.isnan(result["snips"].stderr)
