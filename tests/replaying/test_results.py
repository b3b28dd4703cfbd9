"""What a replay returns: intervals, curves, bias, differences and notes."""

import copy
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.replaying import lanes, options
from drstream.replaying import result as runs
from tests.helpers.logs import world
from tests.helpers.replays import bits, small_log


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "log.parquet"
    rows = 200_000
    w = world(kinds=None)
    pq.write_table(w.table(rows, seed=3), path, row_group_size=rows // 7 + 1)
    return path


def test_one_replicate_has_no_interval_and_says_so():
    log = drs.Log(small_log(0, 500, 2, 1), actions=2)
    run = drs.replay(log, drs.policies.Uniform(), 20, q=0.01, replicates=1)
    assert run.complete == 1
    assert math.isnan(run.low)
    assert math.isnan(run.high)
    assert "one replicate only: there is no interval" in run.notes
    assert "T = 20" in repr(run)
    assert run.to_dict()["low"] is None
    assert run.events < 500


def test_the_interval_is_students():
    from scipy import stats

    log = drs.Log(small_log(0, 3000, 2, 1), actions=2)
    run = drs.replay(log, drs.policies.Exp3(), 50, q=0.1, confidence=0.9)
    averages = run.replicates["average"].to_numpy()
    low, high = stats.t.interval(0.9, len(averages) - 1, averages.mean(), stats.sem(averages))
    assert (run.low, run.high) == pytest.approx((low, high), rel=1e-12)
    cumulative = run.replicates["cumulative"].to_numpy()
    low, high = stats.t.interval(0.9, len(averages) - 1, cumulative.mean(), stats.sem(cumulative))
    assert (run.cumulative_low, run.cumulative_high) == pytest.approx((low, high), rel=1e-12)
    curve = run.curve
    assert curve["average_low"][-1].as_py() == pytest.approx(run.low, rel=1e-9)
    assert curve["average_high"][-1].as_py() == pytest.approx(run.high, rel=1e-9)


def test_a_long_horizon_has_a_curve_of_bounded_length(monkeypatch):
    monkeypatch.setattr(options, "CURVE_POINTS", 8)
    log = drs.Log(small_log(0, 900, 2, 1), actions=2)
    run = drs.replay(log, drs.policies.Uniform(), 45, q=0.3)
    assert run.curve["t"].to_pylist() == [6, 12, 18, 24, 30, 36, 42, 45]
    assert run.curve["cumulative"][-1].as_py() == pytest.approx(run.cumulative, rel=1e-9)
    assert run.curve["average"][-1].as_py() == pytest.approx(run.value, rel=1e-12)


def test_auto_turns_to_the_sketch_above_its_size_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(lanes, "EXACT_VALUES", 100)
    pq.write_table(small_log(0, 3000, 2, 1), tmp_path / "log.parquet", row_group_size=500)
    log = drs.Log(tmp_path / "log.parquet", actions=2)
    run = drs.replay(log, drs.policies.Uniform(), 400, q=0.4)
    assert any("sketch" in note for note in run.notes)
    exact = drs.replay(log, drs.policies.Uniform(), 400, q=0.4, tracker="exact")
    assert not any("sketch" in note for note in exact.notes)
    monkeypatch.setattr(lanes, "EXACT_VALUES", 10**9)
    assert bits(drs.replay(log, drs.policies.Uniform(), 400, q=0.4)) == bits(exact)


def test_bias_mass_and_bound_by_hand(monkeypatch):
    """All logged with p = 0.5; the policy always takes action 0, so that w is 2 or 0; c starts at 0.75."""
    table = pa.table({"action": [1, 0, 0, 0, 0], "reward": [1.0, 1, 0, 1, 0], "propensity": [0.5] * 5})
    run = drs.replay(table, drs.policies.Constant(0), 2, q=1.0, c_max=0.75)
    pooled = run.bias_mass / (1 - run.bias_mass)  # of two replicates, ε is measured on all steps together
    assert run.bias_bound == pytest.approx(1.5 * pooled)
    monkeypatch.setattr(runs, "MEASURED", 1)
    # Replicate 1: t = 1 sees c w = 0 and 1.5 and is taken; Q = {inf, 0.5}, so c stays; t = 2 sees 1.5.
    # Replicate 2: t = 1 sees 1.5; Q = {0.5}, c = 0.5; t = 2 sees 1.
    assert [r["events"] for r in run.replicates.to_pylist()] == [3, 2]
    assert [r["weight"] for r in run.replicates.to_pylist()] == [3 * 0.75, 0.75 + 0.5]
    assert run.violations == 3 / 5
    assert run.bias_mass == pytest.approx(3 * 0.5 / (3 * 1.5 + 1))  # Σ (c w - 1)+ / Σ c w
    first, second = 2 * 0.5 / (2 * 1.5), 0.5 / (1.5 + 1)  # of the events that simulate t = 1 and t = 2
    bound = (2 * first / (1 - first) + 1 * second / (1 - second)) / 2
    assert run.bias_bound == pytest.approx(bound)
    none = drs.replay(table, drs.policies.Uniform(), 2, q=0.0)
    assert none.bias_mass == none.bias_bound == none.violations == 0


def test_replays_are_found_by_policy_q_and_seed():
    log = drs.Log(small_log(0, 600, 2, 1), actions=2)
    policies = {"a": drs.policies.UCB1(), "b": drs.policies.Exp3()}
    runs = drs.replay(log, policies, 20, q=[0.0, 0.1])
    assert runs["a", 0.1].q == 0.1
    assert runs["a", 0.1, 0] is runs["a", 0.1]
    assert [r.policy for r in runs] == ["a", "a", "b", "b"]
    with pytest.raises(KeyError, match="did you mean"):
        drs.replay(log, {"new": drs.policies.UCB1(), "old": drs.policies.UCB1()}, 20)["nwe"]
    with pytest.raises(KeyError, match="more than one simulation"):
        runs["a"]
    with pytest.raises(KeyError):
        runs["a", 0.7]
    only = drs.replay(log, drs.policies.UCB1(), 20, q=[0.0, 0.1])
    assert only[0.1].q == 0.1
    assert drs.replay(log, {"a": drs.policies.UCB1()}, 20)["a"].policy == "a"
    seeds = drs.replay(log, drs.policies.UCB1(), 20, seed=[3, 4])
    assert seeds[4].seed == 4
    table = runs.to_arrow()
    assert table["policy"].to_pylist() == ["a", "a", "b", "b"]
    assert table["horizon"].to_pylist() == [20] * 4
    assert pickle.loads(pickle.dumps(runs))["b", 0.1].value == runs["b", 0.1].value
    assert "T = 20" in repr(runs)
    import json

    assert len(json.loads(runs.to_json())["runs"]) == 4


def test_differences_are_paired_by_shard(big):
    policies = {"a": drs.policies.Exp3(), "b": drs.policies.Uniform()}
    runs = drs.replay(big, policies, 30, q=0.1, shards=7)
    gain = runs.difference("a", "b")
    by_shard = [
        np.mean([r["average"] for r in runs["a"].replicates.to_pylist() if r["shard"] == s])
        - np.mean([r["average"] for r in runs["b"].replicates.to_pylist() if r["shard"] == s])
        for s in range(7)
    ]
    assert gain.n == 7
    assert gain.value == pytest.approx(np.mean(by_shard))
    assert gain.stderr == pytest.approx(np.std(by_shard, ddof=1) / math.sqrt(7))
    one = drs.replay(big, policies, 30, q=0.1).difference("a", "b")
    from scipy import stats

    alone = drs.replay(big, policies, 30, q=0.1)
    samples = [alone[p].replicates["average"].to_numpy() for p in "ab"]
    welch = stats.ttest_ind(*samples, equal_var=False).confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((welch.low, welch.high))


def test_one_lane_without_a_replicate_does_not_lose_the_others():
    log = drs.Log(small_log(0, 400, 2, 1), actions=2)
    runs = drs.replay(log, drs.policies.Uniform(), 180, q=[0.0, 0.9])
    assert runs[0.9].complete
    assert not runs[0.0].complete
    assert runs.to_arrow()["value"].is_valid().to_pylist() == [True, True]  # NaN, not null
    assert "no replicate of 180 steps" in repr(runs)
    with pytest.raises(drs.NotEnoughEventsError):
        runs[0.0].value  # noqa: B018


def test_the_pooled_ratio_has_the_delta_methods_interval():
    from scipy import stats

    log = drs.Log(small_log(0, 3000, 2, 1), actions=2)
    run = drs.replay(log, drs.policies.Exp3(), 20, q=0.1)
    V, C = run.replicates["cumulative"].to_numpy(), run.replicates["weight"].to_numpy()
    ratio = V.sum() / C.sum()
    error = np.std((V - ratio * C) / C.mean(), ddof=1) / math.sqrt(len(V))
    half = stats.t.ppf(0.975, len(V) - 1) * error
    assert run.pooled.value == pytest.approx(ratio, rel=1e-12)
    assert (run.pooled.low, run.pooled.high) == pytest.approx((ratio - half, ratio + half), rel=1e-9)
    last = run.curve.slice(19)
    point = run._outcome.curve[-1]
    assert last["reward"][0].as_py() == pytest.approx(point["mean_reward"] / point["mean_weight"])
    assert last["low"][0].as_py() < last["reward"][0].as_py() < last["high"][0].as_py()


def test_notes_say_what_is_amiss():
    rows = 4000
    rng = np.random.default_rng(0)
    table = pa.table({"action": rng.integers(0, 20, rows), "reward": np.full(rows, 3.0), "propensity": [0.05] * rows})
    runs = drs.replay(table, {"one": drs.policies.Constant(3), "ucb": drs.policies.UCB1()}, 10, q=0.05)
    assert "replicates weigh" in " ".join(runs["one"].notes)
    assert "use bias=, a smaller q, or dr-ns-wc" in repr(runs["one"])
    assert "takes rewards to lie in [0, 1]; here they lie in [3, 3]" in " ".join(runs["ucb"].notes)
    assert any(note.startswith("ucb: the policy takes rewards") for note in runs.notes)
    assert "too large for a bound on the bias" in repr(runs["one"])
    safe = drs.replay(table, drs.policies.Constant(3), 10, method="dr-ns-wc")
    assert "weigh" not in " ".join(safe.notes)
    assert safe.value == pytest.approx(3, abs=4 * safe.stderr)
    same = drs.replay(table, drs.policies.Constant(3), 10, method="rs")
    first, *others = same.notes
    assert first == "all replicates have the same value: an interval without width does not mean certainty"
    assert [note.kind for note in others] == ["smallest propensity"]


@pytest.mark.parametrize("method", ["dr-ns", "rs"])
def test_a_note_on_estimated_propensities(method):
    """Section 5 of the paper assumes exact ones. The logging policy itself, given as such, is exact."""
    log, model = drs.Log(small_log(0, 2000, 2, 1), actions=2), drs.models.Propensity()
    run = drs.replay(log, drs.policies.UCB1(), 20, q=0.1, method=method, propensity=model, crossfit=2)
    (note,) = (note for note in run.notes if note.kind == "estimated propensities")
    assert "section 5 of the paper) assumes exact ones" in note
    assert note in repr(run)
    forward = drs.replay(log, drs.policies.UCB1(), 20, q=0.1, method=method, propensity=model, crossfit="forward:300")
    assert "estimated propensities" in [note.kind for note in forward.notes]
    for exact in (None, drs.policies.Uniform()):
        run = drs.replay(log, drs.policies.UCB1(), 20, q=0.1, method=method, propensity=exact)
        assert "estimated propensities" not in [note.kind for note in run.notes]


def test_results_and_their_notes_can_be_pickled():
    table = small_log(0, 3000, 2, 1)
    table = table.set_column(table.column_names.index("reward"), "reward", pa.array(np.full(3000, 3.0)))
    log, model = drs.Log(table, actions=2), drs.models.Constant(1.0)
    one = drs.replay(log, drs.policies.UCB1(), 20, model, q=0.01, replicates=1)
    several = drs.replay(log, {"ucb": drs.policies.UCB1(), "even": drs.policies.Uniform()}, 20, q=[0.0, 0.9])
    assert [note.kind for note in one.notes] == ["one replicate", "reward range"]
    assert {note.kind for note in several.notes} >= {"reward range"}
    for found in (one, several):
        for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert type(copied) is type(found)
            assert repr(copied) == repr(found)
            assert copied.to_json() == found.to_json()
            assert copied.notes == found.notes
            assert [note.kind for note in copied.notes] == [note.kind for note in found.notes]
    assert bits(pickle.loads(pickle.dumps(one))) == bits(one)
    for note in (*one.notes, *several.notes):  # a note by itself, as of a list that is sent to another process
        for copied in (pickle.loads(pickle.dumps(note)), copy.copy(note), copy.deepcopy(note)):
            assert (type(copied), copied, copied.kind) == (type(note), note, note.kind)
            assert copied.kind
    result = drs.evaluate(log, {"even": drs.policies.Uniform(), "zero": drs.policies.Constant(0)}, model)
    copied = pickle.loads(pickle.dumps(result))
    assert type(copied) is drs.Evaluation
    assert repr(copied) == repr(result)
    assert copied.to_json() == result.to_json()
    assert copied["even", "dr"] == result["even", "dr"]
    assert copied.difference("even", "zero", "dr") == result.difference("even", "zero", "dr")
    assert copied.how() == result.how() != ""


def test_a_note_on_some_runs_keeps_its_kind():
    """With the names of the policies before it, it is still about the same thing."""
    table = pa.table({"action": [0, 1] * 500, "reward": [3.0, 2.0] * 500, "propensity": [0.5] * 1000})
    runs = drs.replay(table, {"ucb": drs.policies.UCB1(), "even": drs.policies.Uniform()}, 10)
    (note,) = [note for note in runs.notes if "takes rewards to lie in" in note]
    assert note.startswith("ucb: ")
    assert note.kind == "reward range"


def test_a_curve_without_rewards_or_with_rewards_that_cancel_has_its_cumulative_reward():
    """It is not scaled by a sum that may be 0."""
    rng = np.random.default_rng(0)
    n = 3000
    for rewards in (np.zeros(n), rng.choice([-1.0, 1.0], n)):
        table = pa.table({"action": rng.integers(0, 2, n), "reward": rewards, "propensity": np.full(n, 0.5)})
        for bias in (0.05, "auto"):
            run = drs.replay(table, drs.policies.UCB1(), 40, bias=bias)
            wanted = np.arange(1, 41) * run.curve["average"].to_numpy()
            np.testing.assert_allclose(run.curve["cumulative"].to_numpy(), wanted, rtol=1e-12)
            assert wanted[-1] == pytest.approx(run.cumulative, rel=1e-9, abs=1e-12)
            assert np.abs(wanted).max() <= 40
