"""Intervals that allow for wrong propensities: naive forms, the theorem by enumeration, coverage, and what is said."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import naive_parts, reference
from tests.helpers.command import drstream
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

ROWS = 300 if PLAIN else 3_000
WORLD = world(kinds=40)
POLICY = drs.policies.Softmax(WORLD.taste * 2)
MODEL = drs.models.Ridge().fit(drs.Log(WORLD.table(300, seed=1)))
LIMITS = {"cap": 1.5, "floor": 0.1, "lambda_": 3.0}
KNOWN = ["ips", "snips", "dr", "sndr", "ips-capped", "dr-capped", "dros"]
ERROR = 0.15


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS, seed=3)


def run(table, estimators=("ips", "dr"), error=ERROR, policies=POLICY, **options):
    given = {name: value for name, value in LIMITS.items() if any(n in USES[name] for n in estimators)}
    return evaluate(drs.Log(table), policies, MODEL, list(estimators), propensity_error=error, **given, **options)


USES = {
    "cap": ("ips-capped", "dr-capped"),
    "floor": ("ips-capped", "dr-capped"),
    "lambda_": ("dros", "switch-dr"),
}


def naive_bias(table, name, error, policy=POLICY):
    """Event by event: δ / (1 - δ) mean w |y|, or δ √(mean w (y - c)² / (1 - δ)) / mean w."""
    X, a, r, p = arrays(table, 3)
    pi = policy.probabilities(X)
    rhat = np.zeros_like(pi) if "ips" in name else MODEL.predict(X)
    limits = {k: v for k, v in LIMITS.items() if name in USES[k]}
    w = reference.weights(name, p, a, pi, **limits)
    y = [r[k] - rhat[k][a[k]] for k in range(len(r))]
    if name not in ("snips", "sndr"):
        return error / (1 - error) * reference.mean([v * abs(x) for v, x in zip(w, y, strict=True)])
    centre = math.fsum(v * x for v, x in zip(w, y, strict=True)) / math.fsum(w)
    spread = reference.mean([v * (x - centre) ** 2 for v, x in zip(w, y, strict=True)])
    return error * math.sqrt(spread / (1 - error)) / reference.mean(w)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("interval", ["normal", "tails"])
def test_intervals_are_wider_by_what_the_theorem_allows(table, name, interval):
    wide, plain = (run(table, [name], error, interval=interval)[name] for error in (ERROR, None))
    bias = naive_bias(table, name, ERROR)
    assert bias > 0.01
    assert (wide.low, wide.high) == pytest.approx((plain.low - bias, plain.high + bias), rel=1e-10)
    assert (wide.value, wide.stderr) == (plain.value, plain.stderr)
    assert wide.method == f"{interval}, propensities off by up to 0.15"
    assert plain.method == interval


def test_an_error_of_0_and_dm_change_nothing(table):
    names = ["ips", "dr", "dm"]
    exact, none = (run(table, names, error, interval="normal") for error in (0.0, None))
    assert exact.rows() == none.rows()
    wide = run(table, names, interval="normal")
    assert wide["dm"] == none["dm"]
    assert wide.baseline == none.baseline


def test_differences_are_wider_by_both(table):
    policies = {"a": POLICY, "b": drs.policies.Softmax(-WORLD.taste)}
    wide, plain = (run(table, ["dr"], error, policies) for error in (ERROR, None))
    one, other = (naive_bias(table, "dr", ERROR, policy) for policy in policies.values())
    found, before = wide.difference("a", "b"), plain.difference("a", "b")
    assert before.low - found.low == pytest.approx(one + other, rel=1e-9)
    found, before = wide.difference("a"), plain.difference("a")
    assert found.high - before.high == pytest.approx(one, rel=1e-9)


def test_intervals_stay_in_the_range_of_the_rewards(table):
    found = run(table, ["ips"], 0.9, interval="normal", reward_range=(0, 1))["ips"]
    assert (found.low, found.high) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_bias_is_within_the_bound_by_enumeration(seed):
    """Exact worlds, with wrong propensities for which |1 - μ / μ̂| <= δ: no bound is exceeded."""
    rng = np.random.default_rng(seed)
    w = drs.synth.World(n_actions=3, n_features=2, kinds=5, seed=seed)
    error = rng.uniform(0.01, 0.9)
    policy = drs.policies.Softmax(w.taste * 2)
    frequency, nu, mu, r = naive_parts.matrices(w, policy)
    rhat = rng.random(r.shape)
    ratio = 1 + error * rng.choice([-1.0, 1.0], r.shape)
    used = mu / ratio
    absolute = r * abs(1 - rhat) + (1 - r) * abs(rhat)  # E|y| for clicks
    weight = nu / used
    bound = error / (1 - error) * (frequency @ (mu * weight * absolute).sum(axis=1))
    assert abs(w.bias(policy, rhat, used)) <= bound + 1e-12
    bound = error / (1 - error) * (frequency @ (mu * weight * r).sum(axis=1))
    assert abs(w.bias(policy, None, used)) <= bound + 1e-12
    mean_w, mean_z = (float(frequency @ (mu * weight * x).sum(axis=1)) for x in (1.0, r))
    spread = mean_z - mean_z**2 / mean_w  # E[w r²] = E[w r] for clicks
    assert abs(mean_z / mean_w - w.value(policy)) <= error * math.sqrt(spread / (1 - error)) / mean_w + 1e-12
    for limits in ({"cap": 1.5}, {"floor": 0.3}):  # against the same limit with true propensities
        low, high = (np.array(naive_parts.weights(nu, p, **limits)) for p in (used, mu))
        gap = frequency @ (mu * (low - high) * (r - rhat)).sum(axis=1)
        assert abs(gap) <= error / (1 - error) * (frequency @ (mu * low * absolute).sum(axis=1)) + 1e-12


@pytest.mark.slow
def test_coverage_where_propensities_are_wrong():
    """200 logs whose propensities are 1 / 0.8 too large: a plain interval misses, a wide one holds."""
    w = drs.synth.World(n_actions=3, n_features=2, kinds=8, floor=0.1, seed=4)
    policy, model = drs.policies.Softmax(w.taste * 2), drs.models.Constant(0.6)
    truth, held = w.value(policy), {None: 0, 0.2: 0}
    for seed in range(200):
        drawn = w.table(2_000, seed=seed)
        p = pa.array(np.minimum(drawn["propensity"].to_numpy() / 0.8, 1.0))
        log = drs.Log(drawn.set_column(drawn.column_names.index("propensity"), "propensity", p))
        for error in held:
            found = evaluate(log, policy, model, ["dr"], confidence=0.9, propensity_error=error, threads=1)["dr"]
            held[error] += found.low <= truth <= found.high
    assert held[None] < 100
    assert held[0.2] >= 180


def test_findings_say_so(table):
    result = run(table, ["ips", "dr", "dm"])
    (found,) = (f for f in result.findings if f.check == "propensity error")
    assert found.level == "look"
    assert found.value == pytest.approx(max(naive_bias(table, name, ERROR) for name in ("ips", "dr")))
    assert "Propensities may be off by 0.15 of their value. So the intervals of policy are wider" in found.message
    assert not [f for f in run(table, error=None).findings if f.check == "propensity error"]


def test_where_it_is_not_known_there_is_no_interval(table):
    result = run(table, ["dr", "switch-dr", "ips-cv"], interval="normal")
    for name in ("switch-dr", "ips-cv"):
        assert math.isnan(result[name].low)
        assert math.isfinite(result[name].value)
    (found,) = (f for f in result.findings if f.check == "propensity error")
    assert "What this does to switch-dr, ips-cv is not known, so there is no interval." in found.message


def test_estimated_propensities_with_a_bound_on_their_error(table):
    options = {"propensity": drs.models.Propensity(), "crossfit": 2}
    with_error = {f.check for f in run(table, ["ips"], **options).findings}
    without = {f.check for f in run(table, ["ips"], None, **options).findings}
    assert "estimated propensities" in without
    assert "estimated propensities" not in with_error


def test_segments_have_p_values_that_allow_for_it(table):
    named = table.append_column("country", pa.array(np.where(np.arange(ROWS) % 3, "DE", "FR")))
    wide, plain = (run(named, ["ips"], error, by="country").segments.to_pylist() for error in (ERROR, None))
    for one, other in zip(wide, plain, strict=True):
        assert one["p_value"] >= other["p_value"]
        assert one["low"] < other["low"]
    assert any(one["p_value"] > other["p_value"] for one, other in zip(wide, plain, strict=True))


def test_down_sampled_logs(table):
    """Rows that count for two each are the same as every row twice."""
    rated = table.append_column("rate", pa.array(np.full(ROWS, 0.5)))
    for name in ("ips", "snips", "dr", "sndr"):
        found, plain = (
            evaluate(drs.Log(rated, sample_rate="rate"), POLICY, MODEL, [name], propensity_error=error)[name]
            for error in (ERROR, None)
        )
        assert plain.low - found.low == pytest.approx(naive_bias(table, name, ERROR), rel=1e-9)


def test_no_weight_and_grids(table):
    never = table.set_column(table.column_names.index("action"), "action", pa.array(np.zeros(ROWS, np.int32)))
    log = drs.Log(never, actions=4)
    result = evaluate(log, drs.policies.Constant(1), None, ["ips", "snips"], propensity_error=0.1)
    assert math.isnan(result["snips"].low)
    grid = evaluate(drs.Log(table), POLICY, MODEL, ["dros"], lambda_="auto", propensity_error=ERROR)
    plain = evaluate(drs.Log(table), POLICY, MODEL, ["dros"], lambda_="auto")
    assert grid["dros"].high - grid["dros"].low > plain["dros"].high - plain["dros"].low


def test_threads_and_batch_sizes_do_not_change_a_bit(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=ROWS // 5)
    rows = []
    for threads, size in ((1, 65_536), (3, 77)):
        log = cut_log(tmp_path / "log.parquet", batch_size=size)
        rows.append(evaluate(log, POLICY, MODEL, KNOWN, propensity_error=ERROR, threads=threads, **LIMITS).rows())
    assert rows[0] == rows[1]


def test_the_command_line(table, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    words = ("evaluate", "log.parquet", "--policy", "uniform", "--estimator", "ips", "--json")
    found = json.loads(drstream(*words, "--propensity-error", "0.1", cwd=tmp_path).stdout)["estimates"][0]
    assert found["method"] == "tails, propensities off by up to 0.1"
