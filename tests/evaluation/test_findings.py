"""What a result says about itself, and what it refuses: findings, warnings, bounds that do not hold."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation.checks import PolicyFacts, findings_of
from drstream.findings import LEVELS, Finding, to_show, worst
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

ROWS = 600 if PLAIN else 5_000


def log_of(action, reward, propensity, **options):
    return drs.Log(pa.table({"action": action, "reward": reward, "propensity": propensity}), **options)


def random_log(rows=ROWS, actions=2, seed=0, **options):
    rng = np.random.default_rng(seed)
    action = rng.integers(0, actions, rows)
    return log_of(action, (rng.random(rows) < 0.5).astype(float), np.full(rows, 1 / actions), **options)


def level(result, check, policy="policy"):
    return next(f.level for f in result.findings if f.check == check and f.policy == policy)


def test_a_clean_log_has_findings_that_are_all_ok():
    result = drs.evaluate(random_log(), drs.policies.Uniform())
    assert {f.level for f in result.findings} == {"ok"}
    checks = ["unlogged", "mean weight", "ess", "largest weight", "small propensities", "carriers"]
    assert [f.check for f in result.findings] == checks
    assert "stop" not in repr(result)
    assert worst(result.findings) == "ok"


def test_an_action_that_was_never_logged():
    result = drs.evaluate(random_log(actions=2), drs.policies.Uniform(3))
    assert level(result, "unlogged") == "stop"
    found = next(f for f in result.findings if f.check == "unlogged")
    assert found.value == pytest.approx(1 / 3)
    assert "33.33% of its mass on actions that were never logged (2)" in found.message
    assert result["ips"].warning == "33% of its mass on actions that were never logged"
    assert result["ips"].warning in str(result["ips"])
    assert result["ips"].warning in repr(result)
    assert f"stop: {found.message}" in repr(result)


def test_a_little_mass_on_such_an_action_is_a_look():
    policy = drs.policies.Epsilon(drs.policies.Linear(np.zeros((3, 0)), [1.0, 0, 0]), 0.003)
    result = drs.evaluate(random_log(actions=2), policy)
    assert level(result, "unlogged") == "look"
    assert result["ips"].warning == ""


@pytest.mark.parametrize("propensity", [1.0, 0.7])
def test_wrong_propensities(propensity):
    log = random_log()
    wrong = log.source.table.set_column(2, "propensity", pa.array(np.full(ROWS, propensity)))
    assert level(drs.evaluate(drs.Log(wrong), drs.policies.Uniform()), "mean weight") == "stop"


def test_an_effective_sample_of_two():
    propensity = np.full(10_000, 0.999)
    action = np.zeros(10_000, int)
    action[[3, 77]] = 1
    propensity[[3, 77]] = 0.001
    result = drs.evaluate(log_of(action, np.ones(10_000), propensity), drs.policies.Constant(1))
    assert result["ips"].ess == pytest.approx(2)
    assert level(result, "ess") == "stop"
    assert "largest weight" not in bad(result)  # half of the weight: that is why the sample is so small
    assert level(result, "small propensities") == "look"


def bad(result):
    """The checks that say something."""
    return {f.check for f in result.findings if f.level != "ok"}


def test_findings_of_one_cause_are_one_finding():
    """Each of these gave up to four stops."""
    log = random_log(actions=2)
    assert bad(drs.evaluate(log, drs.policies.Linear(np.zeros((3, 0)), [0.0, 0, 1]))) == {"unlogged"}
    assert bad(drs.evaluate(log, drs.policies.Uniform(3))) == {"unlogged"}  # the mean weight is 2/3, as it should be
    half = drs.policies.Epsilon(drs.policies.Linear(np.zeros((3, 0)), [0.0, 0, 1]), 1e-3)
    assert bad(drs.evaluate(log, half)) == {"unlogged"}
    wrong = log.source.table.set_column(2, "propensity", pa.array(np.full(ROWS, 0.9)))
    assert bad(drs.evaluate(drs.Log(wrong), drs.policies.Uniform(3))) == {"unlogged", "mean weight"}  # 2/3 * 1/1.8


def test_no_event_has_weight():
    log = log_of([0, 0, 0, 1], [1.0, 0.0, 1.0, 1.0], [0.5] * 4)
    result = drs.evaluate(log, drs.policies.Linear(np.zeros((3, 0)), [0.0, 0, 1]))
    assert level(result, "unlogged") == "stop"
    assert math.isnan(result["ips"].low)


def test_few_clicks_have_a_wider_default_interval_and_a_finding():
    rng = np.random.default_rng(1)
    action = rng.integers(0, 2, 2_000)
    for clicks, found in ((1, "stop"), (8, "look"), (60, "ok")):
        reward = np.zeros(2_000)
        reward[:clicks] = 1.0
        log = log_of(action, reward, np.full(2_000, 0.5))
        result = drs.evaluate(log, drs.policies.Uniform())
        assert level(result, "carriers") == found
        assert result["ips"].method == "tails"
        if clicks == 1:  # the range is taken as 0 to 1
            plain = drs.evaluate(log, drs.policies.Uniform(), interval="gamma", reward_range=(0, 1))
            assert result["ips"].intervals["tails"] == plain["ips"].intervals["gamma"]


def test_rare_failures_count_like_rare_clicks():
    rng = np.random.default_rng(1)
    rows = 2_000
    log = log_of(rng.integers(0, 2, rows), (rng.random(rows) > 0.004).astype(float), np.full(rows, 0.5))
    result = drs.evaluate(log, drs.policies.Uniform(), estimators="snips")
    assert level(result, "carriers") == "look"
    assert 3 < result.facts("policy").carriers["snips"] < 10


def test_dm_has_no_interval_by_default_and_stands_last():
    table = world().table(ROWS)
    model = drs.models.Ridge().fit(drs.Log(world().table(400, seed=1)))
    result = drs.evaluate(drs.Log(table), {"u": drs.policies.Uniform()}, model)
    assert result.estimators[-1] == "dm"
    dm = result["u", "dm"]
    assert all(map(math.isnan, (dm.low, dm.high, dm.ess)))
    assert (dm.intervals, dm.method) == ({}, "")
    assert "[" not in str(dm)
    asked = drs.evaluate(drs.Log(table), {"u": drs.policies.Uniform()}, model, interval="normal")["u", "dm"]
    assert asked.method == "normal, given the model"
    assert asked.low < asked.value < asked.high


def test_estimated_propensities_are_said():
    table = world().table(ROWS)
    result = drs.evaluate(
        drs.Log(table, propensity=None), drs.policies.Uniform(), propensity=drs.models.Propensity(), crossfit=2
    )
    assert level(result, "estimated propensities") == "look"


def test_json_and_arrow_have_the_findings():
    result = drs.evaluate(random_log(actions=2), drs.policies.Uniform(3))
    found = json.loads(result.to_json())["findings"]
    assert found[0].keys() == {"level", "check", "policy", "value", "message"}
    assert json.loads(result.to_arrow().schema.metadata[b"findings"]) == found
    assert result.to_arrow()["warning"].to_pylist() == [result["ips"].warning] * 2


def test_a_column_of_logged_probabilities_has_no_mass_by_action():
    log = random_log()
    table = log.source.table.append_column("target", pa.array(np.full(ROWS, 0.5)))
    result = drs.evaluate(drs.Log(table), drs.policies.Column("target"))
    assert "unlogged" not in {f.check for f in result.findings}
    assert level(result, "mean weight") == "ok"


@pytest.mark.parametrize(("bad", "level"), [(0, None), (9, None), (10, "look"), (99, "look"), (100, "stop")])
def test_rows_that_were_skipped(bad, level):
    table = world().table(1000)
    reward = table["reward"].to_numpy().copy()
    reward[:bad] = np.nan
    table = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(reward))
    result = drs.evaluate(drs.Log(table, on_bad_row="skip"), drs.policies.Uniform(), estimators="ips")
    assert result.n == 1000 - bad
    assert [f.level for f in result.findings if f.check == "skipped rows"] == ([level] if level else [])
    if level:
        assert f"{bad} of 1,000 rows ({bad / 1000:.2%}) were skipped as bad" in repr(result)


def test_levels():
    assert findings_of(PolicyFacts("p", 10)) == []
    shown = to_show([Finding(level, "c", None, 0.0, level) for level in LEVELS])
    assert [f.level for f in shown] == ["stop", "look"]
    assert Finding("ok", "c", None, math.nan, "m").to_dict()["value"] is None


class TestBounds:
    """Rewards, weights and predictions outside of what the caller said."""

    def test_weights_beyond_the_bound(self):
        log = log_of([0, 1, 1, 0], [1.0, 0, 1, 0], [0.5, 0.2, 0.25, 0.5])
        with pytest.raises(
            drs.DrstreamError,
            match=r"a weight of policy 'policy' is 5 at row 1, outside of max_weight_bound=3.0: give a bound",
        ):
            drs.evaluate(log, drs.policies.Constant(1), interval="bernstein", reward_range=(0, 1), max_weight_bound=3)

    def test_rewards_outside_of_the_range(self):
        log = log_of([0, 1], [1.0, 2.0], [0.5, 0.5])
        with pytest.raises(
            drs.DrstreamError, match=r"a reward is 2 at row 1, outside of reward_range=\(0.0, 1.0\): give the range"
        ):
            drs.evaluate(log, drs.policies.Uniform(), reward_range=(0, 1))

    def test_predictions_outside_of_the_range(self):
        with pytest.raises(
            drs.DrstreamError, match=r"a prediction is 1.5 at row 0, outside of reward_range=.*clamp=\(0.0, 1.0\)"
        ):
            drs.evaluate(
                random_log(),
                drs.policies.Uniform(),
                drs.models.Constant(1.5),
                interval="likelihood",
                reward_range=(0, 1),
            )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"interval": "likelyhood"}, "interval='likelyhood': no such interval; did you mean 'likelihood'"),
            ({"interval": []}, "name at least one method"),
            ({"interval": "bernstein"}, r"needs the range of the rewards: pass reward_range="),
            ({"interval": "bernstein", "reward_range": (0, 1)}, "needs an upper bound on the importance weights"),
            ({"interval": "cluster"}, "needs to know which events belong together: pass cluster="),
            ({"reward_range": (1, 0)}, "it must be two finite numbers"),
            ({"max_weight_bound": 0.5}, "max_weight_bound=0.5 must be a number at least 1"),
            ({"cluster": "usr"}, "the log has no column 'usr' for the cluster"),
            ({"lambda_": -1}, "lambda_=-1 must be a number above 0"),
        ],
    )
    def test_bad_parameters(self, options, message):
        with pytest.raises(drs.DrstreamError, match=message):
            drs.evaluate(random_log(), drs.policies.Uniform(), **options)

    def test_bounds_stay_within_the_range(self):
        log = log_of([0, 1] * 6, [1.0, 1.0] * 5 + [0.0, 1.0], [0.5] * 12)
        for name in ("normal", "tails", "bootstrap", "likelihood", "anytime"):
            e = drs.evaluate(log, drs.policies.Constant(1), interval=name, reward_range=(0, 1))["ips"]
            assert 0 <= e.low <= e.high <= 1, name


class TestFalseAlarms:
    """Logs on which a check must stay silent, and odd numbers that it must survive."""

    def test_costs(self):
        rng = np.random.default_rng(0)
        rows = 5_000
        table = pa.table(
            {"action": rng.integers(0, 2, rows), "cost": rng.exponential(size=rows), "propensity": np.full(rows, 0.5)}
        )
        result = drs.evaluate(drs.Log(table), drs.policies.Uniform())
        assert worst(result.findings) == "ok"
        assert result["ips"].value < 0

    def test_propensities_of_32_bits(self):
        rows = 3_000
        rng = np.random.default_rng(0)
        table = pa.table(
            {
                "action": rng.integers(0, 3, rows),
                "reward": (rng.random(rows) < 0.5).astype(float),
                "propensity": np.full(rows, 1 / 3, np.float32),
            }
        )
        assert level(drs.evaluate(drs.Log(table), drs.policies.Uniform()), "mean weight") == "ok"

    def test_a_tiny_propensity(self):
        log = log_of([0, 1, 1, 0] * 50, [1.0, 0, 1, 0] * 50, [0.5] * 199 + [1e-160])
        for options in ({}, {"interval": ["normal", "bootstrap", "gamma", "likelihood"], "reward_range": (0, 1)}):
            result = drs.evaluate(log, drs.policies.Uniform(), **options)
            assert "stop" in repr(result)
            json.loads(result.to_json())
        log.audit()


def test_a_model_that_predicts_worse_than_the_mean_is_said():
    result = drs.evaluate(random_log(), drs.policies.Uniform(), drs.models.Constant(3.0))
    assert level(result, "reward model", None) == "look"
    good = drs.evaluate(random_log(), drs.policies.Uniform(), drs.models.Constant(0.5))
    assert level(good, "reward model", None) == "ok"


@pytest.mark.parametrize("estimators", [["ips", "snips"], ["ips-capped"], ["dr-capped", "dm"]])
def test_a_policy_that_never_takes_a_logged_action_stops(estimators):
    """Here both actions are logged, but never where the policy takes them."""
    table = world(kinds=None).table(ROWS, seed=1)
    other = (table["action"].to_numpy() + 1) % 4
    log = drs.Log(table.append_column("other", pa.array(other)))
    result = drs.evaluate(log, drs.policies.Column("other"), drs.models.Constant(0.5), estimators, cap=10)
    found = next(f for f in result.findings if f.check == "ess")
    assert found.level == "stop"
    assert "No event of the log has weight for policy: it never takes the logged action" in found.message
    for name in estimators:
        assert math.isnan(result[name].value) == (name != "dm")
    assert json.loads(result.to_json())["estimates"][0]["value"] is None


def test_a_segment_without_overlap_is_undefined():
    log = drs.Log(
        pa.table(
            {"action": [0, 1] * 20, "reward": [1.0] * 40, "propensity": [0.5] * 40, "side": ["a"] * 20 + ["b"] * 20}
        ),
        actions=2,
    )
    choice = pa.array([0, 1] * 10 + [1, 0] * 10)
    log = drs.Log(log.source.table.append_column("choice", choice))
    result = drs.evaluate(log, drs.policies.Column("choice"), estimators=["ips", "ips-capped"], by="side", cap=9)
    for name in ("ips", "ips-capped"):
        assert result.segment(side="a")[name].value == 2
        assert math.isnan(result.segment(side="b")[name].value)
        assert result[name].value == 1
