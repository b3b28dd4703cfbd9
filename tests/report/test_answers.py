"""The answer in one sentence: what it says when the log tells something, and when it does not."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.evaluation import form
from drstream.report import answer
from drstream.report.kinds import _of
from tests.helpers import reports

ONE, ZERO = drs.policies.Constant(1), drs.policies.Constant(0)


def log(rates=(0.2, 0.5), n=2_000, seed=0, scale=1.0, shift=0.0):
    """Two actions with probability 1/2 and these chances of a reward."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 2, n)
    reward = (rng.random(n) < np.array(rates)[action]) * scale + shift
    return drs.Log(pa.table({"action": action, "reward": reward.astype(float), "propensity": np.full(n, 0.5)}))


def answer_of(result):
    return next(iter(_of(result).report(result).answers.values()))


def test_a_better_policy_with_its_gain_in_percent_of_the_logs_mean():
    result = drs.evaluate(log(), {"new": ONE})
    found, gain, base = answer_of(result), result.difference("new"), result.baseline
    percents = [f"{100 * x / base.value:.1f}" for x in (gain.value, gain.low, gain.high)]
    assert found.sentence == (
        f"new beats the logging policy by {percents[0]} % [{percents[1]}, {percents[2]}] (95 % interval, 2,000 events)."
    )
    assert found.kind == answer.BETTER
    assert found.beside[0].endswith("Percentages are of that mean.")


def test_a_worse_policy_without_a_name():
    found = answer_of(drs.evaluate(log(), ZERO))
    assert found.kind == answer.WORSE
    assert found.sentence.startswith("The policy does worse than the logging policy by ")
    assert "−" not in found.sentence


def test_no_difference():
    found = answer_of(drs.evaluate(log((0.3, 0.3)), {"new": ONE}))
    assert found.kind == answer.UNSURE
    assert found.sentence.startswith("No difference between new and the logging policy can be told: ")


@pytest.mark.parametrize(("scale", "shift"), [(1.0, -0.35), (-1.0, 0.0)])
def test_percent_only_where_the_base_is_well_above_zero(scale, shift):
    result = drs.evaluate(log(scale=scale, shift=shift), {"new": ONE})
    found = answer_of(result)
    assert found.kind in (answer.BETTER, answer.WORSE)
    assert "%" not in found.sentence.replace("95 %", "")
    assert "Percentages" not in " ".join(found.beside)


def test_a_log_without_overlap_cannot_tell():
    one_action = drs.Log(pa.table({"action": [0] * 50, "reward": [0.0, 1.0] * 25, "propensity": [1.0] * 50}), actions=2)
    found = answer_of(drs.evaluate(one_action, {"new": ONE}))
    assert found.kind == answer.UNKNOWN
    assert found.sentence.startswith("This log cannot tell how good new is: ")
    assert "never logged" in found.sentence


def test_an_estimate_without_an_interval_cannot_tell():
    result = drs.evaluate(log(), {"new": ONE}, drs.models.Constant(0.5), ["dm"])
    found = answer_of(result)
    assert found.kind == answer.UNKNOWN
    assert "has no interval" in found.sentence


def test_a_stop_about_weights_that_the_headline_does_not_use_is_left_out():
    """In a log of rankings, the weights of whole lists are wild, and those of positions are not."""
    result = reports.rankings()
    for estimator in result.estimators:
        about = result.stops("policy", estimator)
        assert all(estimator in finding.message or " by " not in finding.message for finding in about)


def test_the_best_of_many_by_chance_is_not_called_better():
    """Twenty policies that are all worth the same: about one interval of 95 % leaves 0 out."""
    rng = np.random.default_rng(5)
    n, many = 400, 30
    columns = {f"p{i}": rng.choice([0.2, 0.8], n) for i in range(many)}
    table = pa.table(
        {"action": rng.integers(0, 2, n), "reward": rng.normal(1, 1, n), "propensity": np.full(n, 0.5), **columns}
    )
    result = drs.evaluate(drs.Log(table), {name: drs.policies.Column(name) for name in columns}, estimators=["snips"])
    gains = [result.difference(name) for name in columns]
    assert sum(not gain.low <= 0 <= gain.high for gain in gains) >= 1
    found = answer_of(result)
    assert {verdict.kind for verdict in found.verdicts} == {answer.UNSURE}
    assert any("by chance" in verdict.brief for verdict in found.verdicts)
    assert found.sentence.startswith(f"None of {many} policies is shown to beat the logging policy")


def test_several_policies_and_how_the_best_compares_with_the_next(monkeypatch):
    policies = {"a": ONE, "b": drs.policies.Epsilon(ONE, 0.2), "c": ZERO}
    found = answer_of(drs.evaluate(log(n=20_000), policies))
    assert found.sentence.startswith("2 of 3 policies beat the logging policy; a has the highest estimate, ")
    assert found.beside[0].startswith("a also beats b, the next best, by ")
    assert [verdict.policy for verdict in found.verdicts] == ["a", "b", "c"]
    with monkeypatch.context() as patch:
        patch.setattr(form, "MOST_PAIRED", 2)
        unpaired = answer_of(drs.evaluate(log(n=20_000), policies))
    assert unpaired.beside[0] == "Whether a is better than b was not computed."
    same = answer_of(drs.evaluate(log(), {"a": ONE, "b": ONE}))
    assert same.beside[0] == "No difference between a and b, the next best, can be told."
    assert answer_of(drs.evaluate(log(), {"a": ZERO, "b": ZERO})).sentence.startswith("Both policies do worse")


def test_replays():
    assert answer_of(reports.replay()).kind == answer.TOLD
    assert answer_of(reports.replays()).sentence.startswith("Of 8 simulations, ")
    found = answer_of(reports.incomplete())
    assert found.sentence.startswith("even would earn ")
    assert found.beside[0].startswith("This log cannot tell what slow would earn in 60 steps: no replicate of 60 steps")
    one = drs.replay(drs.Log(reports.table(300), context="x?"), drs.policies.Uniform(), 60, q=0.01)
    assert one.complete == 1
    assert "1 replicate gives no interval" in answer_of(one).sentence


def test_audits():
    assert answer_of(reports.audit()).sentence == "No check speaks against this log (18 checks, 3,000 rows)."
    assert answer_of(reports.bad_audit()).sentence.startswith("Do not use this log as it is: ")
