"""The gamma interval against its formulas over single events."""

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import gamma as gamma_distribution
from scipy.stats import norm

import drstream as drs
from tests.helpers.passes import PLAIN

ROWS = 300 if PLAIN else 3_000
TAIL = 0.025


def fay_feuer(parts, largest):
    """Bounds of a weighted sum of Poisson counts (Fay and Feuer 1997), divided by the number of events."""
    y, v = math.fsum(parts), math.fsum(x * x for x in parts)
    low = gamma_distribution.ppf(TAIL, y**2 / v, scale=v / y) if y > 0 else 0.0
    y, v = y + largest, v + largest**2
    return low / len(parts), gamma_distribution.ppf(1 - TAIL, y**2 / v, scale=v / y) / len(parts)


def combined(value, parts, scores):
    """Zou and Donner 2008: distances of bounds add up like standard errors, with their correlations."""
    correlation = np.nan_to_num(np.corrcoef(scores))
    np.fill_diagonal(correlation, 1.0)
    below, above = (np.array([part[i] for part in parts]) for i in (0, 1))
    return value - math.sqrt(below @ correlation @ below), value + math.sqrt(above @ correlation @ above)


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(5)
    p = np.array([0.75, 0.2, 0.05])
    a = rng.choice(3, ROWS, p=p)
    r = (rng.random(ROWS) < 0.02).astype(float)
    x = rng.standard_normal(ROWS)
    table = {"action": a, "reward": r, "propensity": p[a], "x0": x}
    return a, r, p[a], table


def evaluate(events, policies, model=None, **options):
    return drs.evaluate(drs.Log(pa.table(events[3])), policies, model, interval="gamma", reward_range=(0, 1), **options)


def test_ips_has_the_bounds_of_fay_and_feuer(events):
    a, r, p, _ = events
    result = evaluate(events, drs.policies.Constant(2))
    w = (a == 2) / p
    assert (result["ips"].low, result["ips"].high) == pytest.approx(fay_feuer(w * r, w.max()), rel=1e-9)


def test_a_bound_on_the_weights_replaces_the_largest(events):
    a, r, p, _ = events
    result = evaluate(events, drs.policies.Constant(2), max_weight_bound=50)
    assert (result["ips"].low, result["ips"].high) == pytest.approx(fay_feuer((a == 2) / p * r, 50.0), rel=1e-9)


def test_snips_is_a_ratio_of_two_such_sums(events):
    a, r, p, _ = events
    result = evaluate(events, drs.policies.Constant(1))
    w = (a == 1) / p
    mean, value = w.mean(), (w * r).sum() / w.sum()
    with_click, without = w * r, w * (1 - r)
    one, two = fay_feuer(with_click, w.max()), fay_feuer(without, w.max())
    c1, c2 = (1 - value) / mean, value / mean
    parts = [
        (c1 * (with_click.mean() - one[0]), c1 * (one[1] - with_click.mean())),
        (c2 * (two[1] - without.mean()), c2 * (without.mean() - two[0])),
    ]
    wanted = combined(value, parts, [c1 * with_click, -c2 * without])
    assert (result["snips"].low, result["snips"].high) == pytest.approx(wanted, rel=1e-8)


def test_dr_has_a_rest_with_a_normal_interval(events):
    a, r, p, _ = events
    result = evaluate(events, drs.policies.Constant(1), drs.models.from_function(predicted))
    w = (a == 1) / p
    x = events[3]["x0"]
    b = predicted(x[:, None])[:, 1]
    psi = b + w * (r - b)
    rest = psi - w * r
    slope = np.cov(w, rest)[0, 1] / w.var(ddof=1)
    with_click, without = w * r, w * (1 - r)
    one, two = fay_feuer(with_click, w.max()), fay_feuer(without, w.max())
    left = rest - slope * w
    half = norm.ppf(1 - TAIL) * left.std(ddof=1) / math.sqrt(ROWS)
    c1, c2 = 1 + slope, slope
    parts = [
        (c1 * (with_click.mean() - one[0]), c1 * (one[1] - with_click.mean())),
        (-c2 * (two[1] - without.mean()), -c2 * (without.mean() - two[0])),
        (half, half),
    ]
    assert c2 < 0 < c1
    wanted = combined(psi.mean(), parts, [c1 * with_click, c2 * without, left])
    assert (result["dr"].low, result["dr"].high) == pytest.approx(wanted, rel=1e-8)


def predicted(X):
    return np.column_stack([0.02 + 0.005 * np.tanh(X[:, 0])] * 3)


def test_the_logging_policy_is_a_sum_of_clicks_without_weights(events):
    _, r, _, _ = events
    found = evaluate(events, drs.policies.Uniform(3)).baseline
    assert (found.low, found.high) == pytest.approx(fay_feuer(r, 1.0), rel=1e-9)


def test_no_click_at_all_has_an_upper_bound():
    """With all weights 1 it is the exact Poisson bound of zero counts: -ln(0.025) / n."""
    table = pa.table({"action": [0, 1] * 50, "reward": [0.0] * 100, "propensity": [0.5] * 100})
    result = drs.evaluate(drs.Log(table), drs.policies.Uniform(), interval="gamma", reward_range=(0, 1))
    assert result["ips"].low == 0
    assert result["ips"].high == pytest.approx(-math.log(TAIL) / 100)


def test_many_clicks_give_the_normal_interval():
    rng = np.random.default_rng(2)
    rows = 2_000 if PLAIN else 200_000
    a, r = rng.integers(0, 2, rows), (rng.random(rows) < 0.04).astype(float)
    table = pa.table({"action": a, "reward": r, "propensity": np.full(rows, 0.5)})
    result = drs.evaluate(drs.Log(table), drs.policies.Constant(1), interval=["gamma", "normal"], reward_range=(0, 1))
    for name in ("ips", "snips"):
        (low, high), (least, most) = (result[name].intervals[method] for method in ("gamma", "normal"))
        assert (high - low) / (most - least) == pytest.approx(1, abs=0.5 if PLAIN else 0.05)


def test_clusters_are_taken_for_events():
    """Each cluster has one event: the same interval, up to clusters that share a bucket."""
    rng = np.random.default_rng(3)
    rows = 200
    a, r = rng.integers(0, 2, rows), (rng.random(rows) < 0.05).astype(float)
    columns = {"action": a, "reward": r, "propensity": np.full(rows, 0.5), "user": np.arange(rows)}
    log, policy = drs.Log(pa.table(columns)), drs.policies.Constant(1)
    options = {"interval": "gamma", "reward_range": (0, 1)}
    one, two = drs.evaluate(log, policy, **options)["ips"], drs.evaluate(log, policy, cluster="user", **options)["ips"]
    assert two.low == pytest.approx(one.low, rel=0.15)
    assert two.high == pytest.approx(one.high, rel=0.3)


def test_it_needs_the_range_and_a_score():
    log = drs.Log(pa.table({"action": [0, 1] * 5, "reward": [0.0, 1.0] * 5, "propensity": [0.5] * 10}))
    with pytest.raises(drs.DrstreamError, match="interval='gamma' needs the range of the rewards"):
        drs.evaluate(log, drs.policies.Uniform(), interval="gamma")
    capped = drs.evaluate(log, drs.policies.Uniform(), interval="gamma", reward_range=(0, 1), cap=5)["ips-capped"]
    assert math.isnan(capped.low)
