"""The paper's finite-sample bound: against its formula over single events, its constants, coverage and messages."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import for_command_line
from tests.helpers import naive_intervals as naive
from tests.helpers.command import drstream, fails
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import evaluate
from tests.helpers.logs import arrays, world
from tests.helpers.passes import PLAIN

ROWS = 200 if PLAIN else 2_000
WORLD = world(kinds=40, floor=0.05)
POLICY = drs.policies.Softmax(WORLD.taste * 2)
MODEL = drs.models.Ridge().fit(drs.Log(WORLD.table(300, seed=1)))
M = 1 / 0.05
GIVEN = {"model_bias": 0.3, "model_error": 0.4, "value_variance": 0.05}


def table(low=0.0, high=1.0, rows=ROWS, seed=3):
    """Rewards are `low` or `high`."""
    found = WORLD.table(rows, seed=seed)
    rewards = low + (high - low) * found["reward"].to_numpy()
    return found.set_column(found.column_names.index("reward"), "reward", pa.array(rewards))


def model(low, high):
    return drs.models.from_function(lambda X: low + (high - low) * np.clip(MODEL.predict(X), 0, 1))


def run(low=0.0, high=1.0, estimators=("ips", "snips", "dr", "dm"), **options):
    options = {"interval": "freedman", "reward_range": (low, high), "max_weight_bound": M, **options}
    return evaluate(drs.Log(table(low, high)), POLICY, model(low, high), list(estimators), **options)


def events(low, high, name):
    X, a, r, p = arrays(table(low, high), 3)
    pi = POLICY.probabilities(X)
    rhat = model(low, high).predict(X) if name == "dr" else np.zeros_like(pi)
    each = np.arange(len(r))
    w, miss = pi[each, a] / p, r - rhat[each, a]
    return (pi * rhat).sum(axis=1).tolist(), (w * miss).tolist(), w.tolist(), miss.tolist()


@meeting(
    2,
    error=[0.0, 0.2],
    limits=[(0.0, 1.0), (-1.0, 3.0), (2.0, 5.0)],
    constants=[{}, {"largest": True}, GIVEN, {**GIVEN, "max_ratio": 1.05}],
)
def test_bounds_are_those_of_single_events(error, limits, constants):
    low, high = limits
    told = {k: v for k, v in constants.items() if k != "largest"}
    told = drs.Constants(**told, measured="largest" not in constants)
    result = run(low, high, propensity_error=error or None, constants=told)
    for name in ("ips", "dr"):
        least, most = (min(low, 0), max(high, 0)) if name == "ips" else (low, high)
        ratio = constants.get("max_ratio")
        ref = naive.freedman(*events(low, high, name), least, most - least, M, 0.95, error, ratio, given=constants)
        wanted = tuple(min(max(end, low), high) for end in ref)
        assert (result[name].low, result[name].high) == pytest.approx(wanted, abs=1e-6 if error else 1e-10)
    assert (result["snips"].low, result["snips"].high) == (result["ips"].low, result["ips"].high)


def about_constants(result):
    """What the finding says about constants that were measured."""
    (finding,) = (f for f in result.findings if f.check == "constants")
    return finding.message


def test_a_finding_has_the_constants_that_were_measured():
    measured = run(-1, 3, ["dr"])
    assert measured["dr"].method == "freedman, constants measured"
    _, z, _, _ = events(-1, 3, "dr")
    shown = f"(second_moment {naive.mean([v * v for v in z]):.4g}, value_variance "
    assert shown in about_constants(measured)
    assert "so their coverage is not guaranteed" in about_constants(measured)
    _, _, w, miss = events(0, 1, "ips")
    wrong = run(propensity_error=0.1, estimators=["ips"])
    absolute = naive.mean([v * abs(m) for v, m in zip(w, miss, strict=True)]) / 0.9
    squared = naive.mean([v * m * m for v, m in zip(w, miss, strict=True)]) / 0.9
    assert f"(model_bias {min(absolute, math.sqrt(squared), 1):.4g}, second_moment" in about_constants(wrong)


@pytest.mark.parametrize("told", [drs.Constants(measured=False), drs.Constants(**GIVEN)], ids=["largest", "given"])
def test_only_without_measured_constants_it_is_a_guarantee(told):
    result = run(constants=told, estimators=("dr", "ips"))
    assert result["dr"].method == "freedman, guaranteed"
    assert not [f for f in result.findings if f.check == "constants"]
    part = run(constants=drs.Constants(model_error=0.4), estimators=("dr",))
    assert part["dr"].method == "freedman, constants measured"


def test_events_of_clusters_are_no_guarantee():
    named = table().append_column("user", pa.array(np.arange(ROWS) // 5))
    told = {"interval": "freedman", "reward_range": (0, 1), "max_weight_bound": M, "cluster": "user"}
    result = evaluate(drs.Log(named), POLICY, None, ["ips"], constants=drs.Constants(measured=False), **told)
    assert result["ips"].method == "freedman, if events are independent"


def test_differences_share_the_risk():
    """The difference of two policies is within the sum of their bounds at half of the risk."""
    policies = {"a": POLICY, "b": drs.policies.Uniform()}
    options = {"interval": "freedman", "reward_range": (0, 1), "max_weight_bound": M}
    log = drs.Log(table())
    result = evaluate(log, policies, MODEL, ["dr"], clamp=(0, 1), **options)
    half = evaluate(log, policies, MODEL, ["dr"], clamp=(0, 1), confidence=0.975, **options)
    wanted = sum((half[p, "dr"].high - half[p, "dr"].low) / 2 for p in policies)
    found = result.difference("a", "b")
    assert found.high - found.low == pytest.approx(2 * wanted, rel=1e-9)
    assert math.isfinite(result.difference("a").low)  # to the logging policy


@pytest.mark.slow
@pytest.mark.parametrize("error", [0.0, 0.2])
def test_coverage_with_given_constants_is_at_least_nominal(error):
    """300 logs of 400 events at 80 %. The share has a standard error of 2.3 % there; the bound is far above."""
    w = drs.synth.World(n_actions=3, n_features=2, kinds=8, floor=0.1, seed=4)
    policy = drs.policies.Softmax(w.taste * 2)
    truth, rhat = w.value(policy), np.clip(0.5 * w.reward(w.kinds) + 0.1, 0, 1)
    predictions = drs.models.from_function(lambda X: 0.5 * w.reward(X) + 0.1)
    nu, r = w._probabilities(policy), w.reward(w.kinds)
    squared = r * (1 - rhat) ** 2 + (1 - r) * rhat**2
    value = (nu * r).sum(axis=1)
    told = drs.Constants(
        model_bias=float(w.frequency @ (nu * abs(rhat - r)).sum(axis=1)),
        model_error=float(w.frequency @ (nu * squared).sum(axis=1)),
        value_variance=float(w.frequency @ (value - truth) ** 2),
    )
    held = widths = 0
    for seed in range(300):
        drawn = w.table(400, seed=seed)
        p = drawn["propensity"].to_numpy() / (1 - error)  # ϱ = 1 - error
        drawn = drawn.set_column(drawn.column_names.index("propensity"), "propensity", pa.array(np.minimum(p, 1.0)))
        found = evaluate(
            drs.Log(drawn),
            policy,
            predictions,
            ["dr"],
            interval="freedman",
            reward_range=(0, 1),
            max_weight_bound=10,
            propensity_error=error or None,
            constants=told,
            confidence=0.8,
            threads=1,
        )["dr"]
        held += found.low <= truth <= found.high
        widths += found.high - found.low
        assert found.method == "freedman, guaranteed"
    assert held >= 0.8 * 300
    assert widths / 300 < 0.6  # and it is no trivial interval


def test_estimated_propensities_need_a_bound_on_their_error():
    log = drs.Log(table())
    options = {"propensity": drs.models.Propensity(), "crossfit": 2, "reward_range": (0, 1), "max_weight_bound": 1e6}
    with pytest.raises(drs.DrstreamError, match="interval='freedman' needs a bound on the error of estimated prop"):
        evaluate(log, POLICY, estimators=["ips"], interval="freedman", **options)
    found = evaluate(log, POLICY, estimators=["ips"], interval="freedman", propensity_error=0.3, **options)
    assert math.isfinite(found["ips"].low)


def test_errors():
    log = drs.Log(table())
    with pytest.raises(drs.DrstreamError, match="interval='freedman' needs the range of the rewards") as raised:
        evaluate(log, POLICY, interval="freedman", max_weight_bound=M)
    assert "pass --reward-range" in for_command_line(raised.value.message)
    with pytest.raises(drs.DrstreamError, match=r"interval='freedman' needs an upper bound .* pass max_weight_bound="):
        evaluate(log, POLICY, interval="freedman", reward_range=(0, 1))
    outside = drs.models.Constant(1.5)
    with pytest.raises(drs.DrstreamError, match=r"a prediction is .* outside of reward_range=.* clamp="):
        evaluate(log, POLICY, outside, ["dr"], interval="freedman", reward_range=(0, 1), max_weight_bound=M)
    with pytest.raises(drs.DrstreamError, match=r"constants=3: pass drs.Constants\(...\)"):
        run(constants=3)
    with pytest.raises(drs.DrstreamError, match="Constants: model_error=-1 must be a number at least 0"):
        run(constants=drs.Constants(model_error=-1))
    for wrong in (-0.1, 1.0, 2, math.nan, "a", True):
        with pytest.raises(
            drs.DrstreamError, match=r"propensity_error=.*: it must be a number of at least 0 and below 1"
        ):
            run(propensity_error=wrong)


def test_no_weight_and_one_event_have_no_interval():
    one = drs.Log(table(rows=1))
    result = evaluate(one, POLICY, None, ["ips"], interval="freedman", reward_range=(0, 1), max_weight_bound=M)
    assert math.isnan(result["ips"].low)
    assert result["ips"].method == "freedman"
    assert result.findings


def test_threads_do_not_change_a_bit(tmp_path):
    pq.write_table(table(), tmp_path / "log.parquet", row_group_size=ROWS // 5)
    options = {"interval": "freedman", "reward_range": (0, 1), "max_weight_bound": M, "propensity_error": 0.1}
    found = [
        evaluate(
            cut_log(tmp_path / "log.parquet", batch_size=size), POLICY, model(0, 1), ["dr", "ips"], threads=n, **options
        )
        for n, size in ((1, 65_536), (3, 77))
    ]
    assert found[0].rows() == found[1].rows()
    assert about_constants(found[0]) == about_constants(found[1])


def test_the_command_line(tmp_path):
    pq.write_table(table(), tmp_path / "log.parquet")
    words = ("evaluate", "log.parquet", "--policy", "uniform", "--estimator", "ips", "--interval", "freedman", "--json")
    bounds = ("--reward-range", "0,1", "--max-weight-bound", "20")
    found = json.loads(drstream(*words, *bounds, cwd=tmp_path).stdout)
    assert found["estimates"][0]["method"] == "freedman, constants measured"
    assert "constants" in [finding["check"] for finding in found["findings"]]
    found = json.loads(drstream(*words, *bounds, "--not-measured", cwd=tmp_path).stdout)
    assert found["estimates"][0]["method"] == "freedman, guaranteed"
    fails("--propensity-error 1.5: it must be a number", *words, *bounds, "--propensity-error", "1.5", cwd=tmp_path)
