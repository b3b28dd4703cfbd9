"""The best policy, bands and lifts of an evaluation: against what single events say, and what does not change them."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation import form, statistics
from drstream.intervals import winners
from drstream.intervals.basic import z_score
from tests.helpers import schemas
from tests.helpers.logs import arrays, world

K, D, ROWS = 4, 3, 3_000
WORLD = world(kinds=None)
POLICIES = {
    "new": drs.policies.Softmax(WORLD.taste),
    "hot": drs.policies.Softmax(WORLD.taste, temperature=3),
    "even": drs.policies.Uniform(K),
    "cold": drs.policies.Softmax(-WORLD.taste),
}


@pytest.fixture(scope="module")
def table():
    return WORLD.table(ROWS).append_column("user", pa.array(np.arange(ROWS) // 3))


@pytest.fixture(scope="module")
def log(table):
    return drs.Log(table, context="x?")


def evaluate(log, policies=POLICIES, **options):
    options = {"estimators": ["snips", "ips"], "interval": "normal", "precision": "float64", **options}
    return drs.evaluate(log, policies, **options)


def influences(table, policies=POLICIES):
    """What each event adds to IPS of each policy and to the logging policy's mean (n, policies + 1), and the values."""
    X, a, r, p = arrays(table, D)
    scores = [policy.probabilities(X)[np.arange(len(r)), a] / p * r for policy in policies.values()]
    scores = np.array([*scores, r]).T
    return scores - scores.mean(axis=0), scores.mean(axis=0)


def by_hand(away, values, clusters=None):
    """The hybrid interval of the best value and of its difference, and all bands, by normal intervals."""
    n, many = len(away), len(values) - 1
    if clusters is not None:
        away = np.array([np.bincount(clusters, x) for x in away.T]).T
    covariance = away.T @ away / (n - 1) / n
    turn = np.vstack([np.eye(many + 1)[:many], np.eye(many + 1)[:many] - np.eye(many + 1)[many]])
    both, means = turn @ covariance @ turn.T, turn @ values
    spread, j = np.sqrt(np.diag(both)), int(values[:many].argmax())
    ends = []
    for first in (0, many):
        place = slice(first, first + many)
        reach = winners.critical(winners.correlations(both[place, place]), 0.995)
        about = j, both[:many, first + j], spread[first + j], reach, 0.95
        found = winners.after_choice(values[:many], both[:many, :many], *about)
        low, high = min(found.low, 0), max(found.high, 0)
        ends.append((means[first + j] + low * spread[first + j], means[first + j] + high * spread[first + j]))
    kinds = (slice(0, many), slice(many, 2 * many))
    scores = [winners.critical(winners.correlations(both[kind, kind]), 0.95) for kind in kinds]
    half = np.repeat(scores, many) * spread
    return ends, np.array([means, means - half, means + half]).T


def bands_of(result, estimator):
    return np.array([[row[name] for name in ("value", "low", "high")] for row in result.bands(estimator).to_pylist()])


def test_best_and_bands_are_those_of_single_events(log, table):
    result, (ends, bands) = evaluate(log), by_hand(*influences(table))
    best = result.best("ips")
    assert best.policy == max(POLICIES, key=lambda name: result[name, "ips"].value)
    assert (best.value, best.stderr) == (result[best.policy, "ips"].value, result[best.policy, "ips"].stderr)
    assert (best.low, best.high) == pytest.approx(ends[0], rel=1e-6)
    assert (best.gain.low, best.gain.high) == pytest.approx(ends[1], rel=1e-6)
    assert (best.among, best.left_out, best.estimator) == (4, (), "ips")
    assert best.low <= best.unbiased <= best.high
    assert bands_of(result, "ips") == pytest.approx(bands, rel=1e-6)
    told = result.bands("ips")
    assert told.column_names == ["policy", "base", "value", "low", "high"]
    assert told["base"].to_pylist() == [None] * 4 + ["logging policy"] * 4


def test_clusters_make_covariances_of_clusters(table):
    """Few enough clusters for each to have a bucket of its own, mostly; the others share one, by chance."""
    users = np.arange(ROWS) // 60  # 50 users
    log = drs.Log(table.drop_columns("user").append_column("user", pa.array(users)), context="x?")
    result = evaluate(log, estimators=["ips"], interval=None, cluster="user")
    found, _ = by_hand(*influences(table), users)
    best = result.best()
    assert best.method.startswith("cluster, after choosing among 4")
    width = best.high - best.low
    assert width == pytest.approx(found[0][1] - found[0][0], rel=0.1)  # Student's t, and two users in one bucket


def test_other_intervals_are_asked_at_the_level_of_the_critical_value(log):
    """Bands have the sides of each method: never shorter than its own intervals."""
    few = drs.Log(log.to_arrow().slice(0, 150), context="x?")
    result = drs.evaluate(few, POLICIES, estimators=["ips"])
    assert {result[policy, "ips"].method for policy in POLICIES} != {"normal"}
    for row in result.bands().to_pylist():
        plain = result[row["policy"], "ips"] if row["base"] is None else result.difference(row["policy"])
        assert row["low"] <= plain.low < plain.high <= row["high"]
        assert row["value"] == plain.value
        assert row["base"] or row["low"] >= 0
    assert 0 <= result.best().low < result.best().high <= 1


def test_segments_and_rewards(table):
    clicks = table["reward"].to_numpy()
    table = table.append_column("side", pa.array(np.where(np.arange(ROWS) % 2, "odd", "even")))
    log = drs.Log(table.append_column("twice", pa.array(2 * clicks)), context="x?", reward=["reward", "twice"])
    result = evaluate(log, by="side", estimators=["ips"])
    odd = drs.Log(table.filter(pa.array(np.arange(ROWS) % 2 == 1)), context="x?")
    wanted, found = evaluate(odd, estimators=["ips"]).best(), result.segment(side="odd").best()
    assert (found.policy, found.value) == (wanted.policy, pytest.approx(wanted.value))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    one, two = result.best(), result.rewards["twice"].best()
    assert (two.low, two.high) == pytest.approx((2 * one.low, 2 * one.high))


def test_one_policy_is_not_chosen(log):
    result = evaluate(log, {"new": POLICIES["new"]}, interval=None)
    best, plain = result.best("ips"), result["ips"]
    assert (best.value, best.low, best.high, best.method) == (plain.value, plain.low, plain.high, plain.method)
    assert (best.unbiased, best.among) == (plain.value, 1)
    assert best.gain == result.difference("new", estimator="ips")
    assert "best" not in json.loads(result.to_json())
    assert "best:" not in repr(result)


def test_policies_without_a_value_are_left_out_and_said():
    half = pa.table({"action": [0] * 60, "reward": [0.0, 1.0] * 30, "propensity": [0.5] * 60})
    policies = {"zero": drs.policies.Constant(0), "one": drs.policies.Constant(1), "even": drs.policies.Uniform()}
    result = drs.evaluate(drs.Log(half, actions=2), policies, estimators=["ips"])
    best = result.best()
    assert (best.policy, best.among, best.left_out) == ("zero", 2, ("one",))
    assert "valid after choosing it among 2; left out: one" in repr(result)
    assert math.isnan(bands_of(result, "ips")[1, 1])
    none = drs.evaluate(
        drs.Log(half, actions=3), {"one": policies["one"], "two": drs.policies.Constant(2)}, estimators="ips"
    )
    assert (none.best().policy, none.best().left_out) == ("", ("one", "two"))
    assert math.isnan(none.best().value)
    assert "no policy has an estimate" in repr(none)
    assert np.isnan(bands_of(none, "ips")).all()
    schemas.check(json.loads(none.to_json()))


def test_dm_is_chosen_without_an_interval(log):
    result = drs.evaluate(log, POLICIES, drs.models.Constant(0.5), ["dm"])
    assert math.isnan(result.best().low)
    assert result.best().sentence.endswith("by dm, without an interval")


def test_a_policy_twice_is_one(log):
    twice = {**POLICIES, "again": POLICIES["new"], "renewed": POLICIES["new"]}
    one, two = evaluate(log).best("ips"), evaluate(log, twice).best("ips")
    assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high), rel=0.002)  # other draws


@pytest.mark.parametrize("clustered", [False, True])
def test_many_policies(log, clustered, monkeypatch):
    """Beyond 32, covariances of events are not gathered between policies: buckets know them."""
    many = {f"p{i}": drs.policies.Softmax(WORLD.taste, temperature=1 + i / 10) for i in range(40)}
    about = {"interval": None, "cluster": "user"} if clustered else {}
    result = evaluate(log, many, estimators=["ips"], **about)
    assert not result.statistics.paired
    best = result.best()
    plain = result[best.policy, "ips"]
    ratio = (best.high - best.low) / (plain.high - plain.low)
    assert ratio < 1.35
    wide = bands_of(result, "ips")
    assert (wide[:, 1] < wide[:, 0]).all()
    for module in (form, statistics):
        monkeypatch.setattr(module, "MOST_PAIRED", 40)
    known = bands_of(evaluate(log, many, estimators=["ips"], **about), "ips")
    assert wide[:, 2] - wide[:, 1] == pytest.approx(known[:, 2] - known[:, 1], rel=0.03)


def test_json_and_text(log):
    result = evaluate(log)
    document = json.loads(result.to_json())
    schemas.check(document)
    best = result.best()
    assert document["best"]["low"] == best.low
    assert document["best"]["gain"]["high"] == best.gain.high
    assert len(document["bands"]) == 8
    value = f"{best.value:.6g} [{best.low:.6g}, {best.high:.6g}]"
    assert f"best: {best.policy}, {value} by snips, valid after choosing it among 4" in repr(result)


def test_unknown_names(log):
    result = evaluate(log)
    for call in (result.best, result.bands, lambda name: result.lift("new", estimator=name)):
        with pytest.raises(KeyError, match="no estimator 'dr' was asked for"):
            call("dr")
    with pytest.raises(KeyError, match="no policy 'old'"):
        result.lift("new", "old")


# Lifts


def test_a_lift_is_fiellers(log, table):
    result = evaluate(log)
    away, values = influences(table)
    z = z_score(0.95)
    for base, k in ((None, 4), ("even", 2)):
        covariance = np.cov(away[:, [0, k]].T) / ROWS
        a, b = values[[0, k]]
        outer, middle = b * b - z * z * covariance[1, 1], a * b - z * z * covariance[0, 1]
        root = math.sqrt(middle**2 - outer * (a * a - z * z * covariance[0, 0]))
        found = result.lift("new", base, "ips")
        assert found.value == pytest.approx(a / b - 1)
        assert (found.low, found.high) == pytest.approx(((middle - root) / outer - 1, (middle + root) / outer - 1))
        assert (found.policy, found.base, found.finding) == ("new", base or "logging policy", None)
    assert result.lift("even", "even").high == pytest.approx(0, abs=1e-6)


def clicks(rewards, action=None):
    n = len(rewards)
    action = np.arange(n) % 2 if action is None else action
    return drs.Log(pa.table({"action": action, "reward": rewards, "propensity": np.full(n, 0.5)}), actions=2)


def test_open_ends_of_a_lift_are_said_and_null():
    """A mean reward that may be 0 bounds no ratio."""
    noise = np.random.default_rng(2).normal(0.01, 1, 400)
    found = drs.evaluate(clicks(noise), drs.policies.Constant(0), estimators="ips").lift("policy")
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.finding.level == "look"
    assert "may be 0" in found.finding.message
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["low"] is None
    assert document["finding"]["check"] == "lift"
    none = drs.evaluate(clicks(np.zeros(400)), drs.policies.Constant(0), estimators="ips").lift("policy")
    assert math.isnan(none.value)
    assert none.finding is not None


def test_nothing_falls_by_more_than_all_of_it():
    """Where rewards are not negative, no lift is below -100 %."""
    few = np.zeros(300)
    few[[0, 1, 2, 4]] = 1.0
    one = drs.policies.Constant(1)
    for options in ({}, {"interval": "normal", "reward_range": (0, 1)}):
        found = drs.evaluate(clicks(few), one, estimators="ips", **options).lift("policy")
        assert -1 <= found.low < found.value < found.high
    unknown = drs.evaluate(clicks(few * 5), one, estimators="ips", interval="normal").lift("policy")
    assert unknown.low < -1
    assert not math.isnan(unknown.high)


@pytest.mark.slow
def test_coverage_of_the_best_of_twenty_equal_arms():
    """300 logs: 3 standard errors are 3.8 points at 95 %. A plain interval fails, as one of the best does."""
    rng, arms, logs, n = np.random.default_rng(11), 20, 300, 4_000
    policies = {f"p{i}": drs.policies.Constant(i) for i in range(arms)}
    held = dict.fromkeys(("best", "gain", "bands", "plain", "plain gain"), 0)
    widths = []
    for _ in range(logs):
        table = {
            "action": rng.integers(0, arms, n),
            "reward": (rng.random(n) < 0.2) * 1.0,
            "propensity": [1 / arms] * n,
        }
        result = drs.evaluate(drs.Log(pa.table(table), actions=arms), policies, estimators="ips")
        best = result.best()
        plain, gain = result[best.policy, "ips"], result.difference(best.policy)
        found = {"best": (best, 0.2), "gain": (best.gain, 0), "plain": (plain, 0.2), "plain gain": (gain, 0)}
        for name, (one, truth) in found.items():
            held[name] += one.low <= truth <= one.high
        rows = result.bands().to_pylist()
        held["bands"] += all(row["low"] <= 0.2 <= row["high"] for row in rows[:arms])
        widths.append([x / (plain.high - plain.low) for x in (best.high - best.low, rows[0]["high"] - rows[0]["low"])])
    shares = {name: count / logs for name, count in held.items()}
    assert min(shares["best"], shares["gain"]) >= 0.93
    assert shares["bands"] >= 0.91
    assert max(shares["plain"], shares["plain gain"]) < 0.85
    hybrid, bands = np.mean(widths, axis=0)
    assert hybrid <= 1.5
    assert bands <= 1.65  # of the first policy, by the plain width of the best
