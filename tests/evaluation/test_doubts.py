"""What is doubtful before the first row is read is a warning, and a finding of every result."""

import json
import re
import warnings
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

M, P = drs.models, drs.policies
ROWS = 2_000


@pytest.fixture(scope="module")
def log():
    return drs.Log(drs.synth.World(n_actions=3, n_features=3).table(ROWS))


@contextmanager
def quietly():
    """As someone who does not see warnings, e.g. in a batch job."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def found(result, check):
    return [one for one in result.findings if one.check == check]


def test_a_policy_that_was_learned_here_stops(log, tmp_path):
    policy = P.Greedy(M.Ridge().fit(log))
    with pytest.warns(drs.DrstreamWarning, match="'new' was learned from events that it is now evaluated on"):
        result = drs.evaluate(log, {"new": policy, "old": P.Uniform()})
    (one,) = found(result, "learned here")
    assert (one.level, one.policy) == ("stop", "new")
    assert one.message.startswith("Policy 'new' was learned from events that it is now evaluated on")
    assert one.message in repr(result)
    assert one.message in [finding["message"] for finding in json.loads(result.to_json())["findings"]]
    assert one in result.stops("new", "ips")
    assert not result.stops("old", "ips")
    result.report(tmp_path / "report.html")
    assert "was learned from events that it is now evaluated on" in (tmp_path / "report.html").read_text()


def test_each_run_has_its_own_doubts(log):
    with quietly():
        assert found(drs.evaluate(log, P.Greedy(M.Ridge().fit(log))), "learned here")
        assert not found(drs.evaluate(log, P.Uniform()), "learned here")


def test_models_that_were_fitted_here(log):
    with quietly():
        result = drs.evaluate(log, P.Uniform(), M.Ridge().fit(log), propensity=M.Propensity().fit(log))
    assert [(one.level, one.message.split(" was ")[0]) for one in found(result, "fitted here")] == [
        ("look", "The reward model"),
        ("look", "The propensity model"),
    ]


def test_empty_folds(log):
    users = pa.array([0, 1] * 20)
    few = drs.Log(log.source.table.slice(0, 40).append_column("user", users), context=["x0"])
    with quietly():
        result = drs.evaluate(few, P.Uniform(), M.Ridge(), crossfit=4, cluster="user")
    (one,) = found(result, "folds")
    assert one.level == "look"
    assert re.match(r"\d of the folds are empty", one.message)


def test_a_model_of_another_reward(log):
    other = drs.Log(log.source.table.rename_columns({"reward": "spend"}), reward="spend")
    train, _ = other.split(0.5)
    _, test = log.split(0.5)
    with quietly():
        result = drs.evaluate(test, P.Uniform(), M.Ridge().fit(train))
    (one,) = found(result, "reward")
    assert "fitted on the reward 'spend'; the log's is 'reward'" in one.message


def test_a_state_keeps_them(log, tmp_path):
    policy = P.Greedy(M.Ridge().fit(log))
    with quietly():
        result = drs.evaluate(log, policy, state=tmp_path / "one.state")
    merged = drs.merge(tmp_path / "one.state")
    assert found(merged, "learned here") == found(result, "learned here")
    assert repr(merged) == repr(result)


def test_replays_and_plans_say_so(log):
    policy = P.Greedy(M.Ridge().fit(log))
    with quietly():
        run = drs.replay(log, policy, 20, bias=0.05)
        several = drs.replay(log, {"new": policy, "old": P.Uniform()}, 20, bias=0.05)
        forecast = drs.plan(log, {"new": policy, "ucb": P.UCB1()}, sample=0.5)
    for notes in (run.notes, forecast.notes):
        (one,) = [note for note in notes if note.kind == "learned here"]
        assert one.level == "stop"
        assert "was learned from events" in one
    assert [note.kind for note in several["old"].notes if note.kind == "learned here"] == []
    assert sum(note.kind == "learned here" for note in several.notes) == 1


def with_users(rows=3_000, users=60):
    """Clicks and actions of users, who are alike in both."""
    rng = np.random.default_rng(0)
    user = rng.integers(0, users, rows)
    likes = rng.random(users)[user]
    columns = {"user_id": user, "x": rng.normal(size=rows), "action": rng.integers(0, 2, rows)}
    return {**columns, "reward": (rng.random(rows) < likes) * 1.0, "propensity": np.full(rows, 0.5)}


def test_ids_that_repeat():
    log = drs.Log(pa.table(with_users()), context=["x"])
    (one,) = found(drs.evaluate(log, P.Uniform()), "ids")
    assert one.level == "look"
    assert one.value == pytest.approx(50)
    assert "Rows of one user_id repeat 50 times" in one.message
    assert "cluster='user_id'" in one.message
    assert not found(drs.evaluate(log, P.Uniform(), cluster="user_id"), "ids")
    assert not found(drs.evaluate(log, P.Uniform(), by="user_id"), "ids")
    once = {**with_users(), "user_id": np.arange(3_000)}
    assert not found(drs.evaluate(drs.Log(pa.table(once), context=["x"]), P.Uniform()), "ids")


def test_doubts_about_the_log(tmp_path):
    columns = with_users()
    columns["reward"] *= columns["x"] > 0
    columns["clicked"] = (columns["reward"] > 0) | (np.random.default_rng(1).random(3_000) < 0.05)
    log = drs.Log(pa.table(columns), context=["x", "clicked"])
    doubts = list(log.doubts)
    assert [one.check for one in doubts] == ["outcomes"]
    result = drs.evaluate(log, P.Uniform(), cluster="user_id", state=tmp_path / "one.state")
    assert doubts[0] in result.findings
    assert doubts[0] in drs.merge(tmp_path / "one.state").findings
    assert doubts[0].message in drs.replay(log, P.Uniform(), 20, bias=0.05).notes
