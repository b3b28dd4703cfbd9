"""Default intervals cover the truth, or the result says that they may not: a fast part of `scripts/study coverage`.

Seeds are fixed. "Covers" is: in at least 93 % of the simulated logs, minus 2.5 standard errors of that share.
"""

import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.intervals.anytime import anytime_path
from scripts.studies.coverage.measure import ESTIMATORS, evaluate
from scripts.studies.coverage.worlds import CLICKS, WORLDS

pytestmark = pytest.mark.slow

LOGS = 200
ENOUGH = 0.93 - 2.5 * math.sqrt(0.93 * 0.07 / LOGS)


def logs(name, count=LOGS):
    world = WORLDS[name]
    return world, world.tables(np.random.default_rng([20, list(WORLDS).index(name)]), count)


def default_coverage(name):
    """Coverage of the first policy and of its difference to the second, by estimator; and the last result."""
    world, tables = logs(name)
    first, second = list(world.policies)[:2]
    truth = world.truth
    hits = dict.fromkeys([(what, e) for what in ("value", "difference") for e in ESTIMATORS], 0)
    for table in tables:
        result = evaluate(world, table)
        for e in ESTIMATORS:
            found = result[first, e]
            hits["value", e] += found.low <= truth[first] <= found.high
            found = result.difference(first, second, e)
            hits["difference", e] += found.low <= truth[first] - truth[second] <= found.high
    return {key: count / LOGS for key, count in hits.items()}, result


def findings(result, level="stop"):
    return {f.check for f in result.findings if f.level == level}


@pytest.mark.parametrize(
    "name", ["benign-2000", "heavy-2000", "rare-clicks", "few-clicks", "users-50", "users-50-sticky", "users-clicks"]
)
def test_the_default_covers(name):
    shares, _ = default_coverage(name)
    assert min(shares.values()) >= ENOUGH, shares


@pytest.mark.parametrize("name", ["greedy", "thompson"])
def test_under_a_logging_policy_that_learns_the_default_covers_and_anytime_does_at_all_times_at_once(name):
    world, tables = logs(name)
    hits = dict.fromkeys(ESTIMATORS, 0)
    always = dict.fromkeys(ESTIMATORS, 0)
    policy = next(iter(world.policies))
    truth = world.truth[policy]
    for table in tables:
        result = evaluate(world, table, interval="anytime", reward_range=CLICKS, max_weight_bound=world.max_weight)
        default = evaluate(world, table)
        for e in ESTIMATORS:
            found = default[policy, e]
            hits[e] += found.low <= truth <= found.high
            events, low, high = anytime_path(result.statistics.value(0, result._form(e)), result._settings.limits)
            assert len(events) > 10
            always[e] += bool((low <= truth).all() and (truth <= high).all())
    assert min(hits.values()) / LOGS >= ENOUGH, hits
    assert min(always.values()) / LOGS >= 0.95, always


def test_normal_intervals_of_rare_clicks_are_too_narrow():
    """0.5 % clicks in 3,329 rows: that is why the default differs. Their coverage falls with the number of clicks."""
    world, tables = logs("rare-clicks", 300)
    hits = dict.fromkeys(world.policies, 0)
    for table in tables:
        result = evaluate(world, table, interval="normal")
        for policy in world.policies:
            found = result[policy, "ips"]
            hits[policy] += found.low <= world.truth[policy] <= found.high
    shares = [hits[policy] / 300 for policy in world.policies]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 0.93
    assert shares[1] < 0.88
    assert shares[2] < 0.6


@pytest.mark.parametrize("name", ["users-50", "users-50-sticky"])
def test_users_that_are_taken_for_independent_rows_are_not_covered(name):
    world, tables = logs(name)
    hits = 0
    for table in tables:
        found = evaluate(world, table, interval="normal")["best", "dr"]
        hits += found.low <= world.truth["best"] <= found.high
    assert hits / LOGS < 0.8


def test_few_clusters_are_a_finding_and_many_that_share_actions_are_none():
    world, tables = logs("users-few", 1)
    assert "clusters" in {f.check for f in evaluate(world, tables[0]).findings if f.level != "ok"}
    world, tables = logs("users-10-sticky", 50)
    wrong = [evaluate(world, table) for table in tables]
    assert not any("mean weight" in findings(r, "stop") | findings(r, "look") for r in wrong)


def test_where_no_method_is_known_the_result_says_so():
    """Continuous rewards and heavy weights: normal intervals are too narrow, and a range of rewards mends it."""
    world, tables = logs("heavy-no-range", 20)
    for table in tables:
        result = evaluate(world, table)
        assert result["rare", "ips"].method == "normal"
        said = [f for f in result.findings if f.check == "interval" and f.policy == "rare"]
        assert len(said) == 1
        assert "reward_range" in said[0].message
        assert evaluate(world, table, reward_range=CLICKS)["rare", "ips"].method == "gamma"


# What results say about logs that cannot answer


def uniform_log(n=5_000, actions=2, propensity=None, seed=0):
    rng = np.random.default_rng(seed)
    p = np.full(n, 1 / actions if propensity is None else propensity)
    return pa.table(
        {"action": rng.integers(0, actions, n), "reward": (rng.random(n) < 0.5).astype(float), "propensity": p}
    )


def test_an_action_that_was_never_logged_stops_and_stands_beside_the_number():
    log = drs.Log(uniform_log(), actions=3)
    result = drs.evaluate(log, {"uniform": drs.policies.Uniform()}, estimators=["ips", "snips"])
    assert "unlogged" in findings(result)
    assert "33%" in result["uniform", "ips"].warning
    line = next(line for line in repr(result).splitlines() if "ips" in line)
    assert "never logged" in line


@pytest.mark.parametrize("wrong", [1.0, 0.7])
@pytest.mark.parametrize("policy", [drs.policies.Uniform(), drs.policies.Constant(1)])
def test_wrong_propensities_stop(wrong, policy):
    """All 1.0, or 0.7 written for 0.5."""
    result = drs.evaluate(uniform_log(propensity=wrong), policy, estimators=["ips", "snips"])
    assert "mean weight" in findings(result)
    assert not findings(drs.evaluate(uniform_log(), policy, estimators=["ips", "snips"]))


def test_an_effective_sample_of_two_stops():
    n = 10_000
    p = np.full(n, 0.9999)
    action = np.zeros(n, np.int64)
    action[:2], p[:2] = 1, 0.0002
    table = pa.table({"action": action, "reward": np.ones(n), "propensity": p})
    result = drs.evaluate(table, drs.policies.Constant(1), estimators=["ips", "snips"])
    assert result["ips"].ess == pytest.approx(2)
    assert {"ess", "largest weight"} <= findings(result)


def test_dm_has_no_interval_by_default_and_stands_last():
    world, tables = logs("benign-2000", 1)
    log, policies, model = world.log(tables[0]), world.named_policies, world.model
    result = drs.evaluate(log, policies, model)
    assert result.estimators[-1] == "dm"
    assert math.isnan(result["best", "dm"].low)
    asked = drs.evaluate(log, policies, model, ["dm"], interval="normal")["best", "dm"]
    assert asked.low < asked.high
    assert asked.method == "normal, given the model"


def test_estimated_propensities_are_a_finding():
    """The example of the README: a log without propensities."""
    world = drs.synth.World(n_actions=3, n_features=2)
    log = drs.Log(world.table(5_000), propensity=None)
    new = drs.policies.Softmax([[0.3, 0.1], [-0.2, 0.5], [0.0, 0.0]])
    models = {"model": drs.models.Ridge(), "propensity": drs.models.Propensity()}
    result = drs.evaluate(log, {"new": new}, **models, crossfit=5)
    said = [f for f in result.findings if f.check == "estimated propensities"]
    assert [f.level for f in said] == ["look"]
    assert "leave out the error of the propensity model" in said[0].message
