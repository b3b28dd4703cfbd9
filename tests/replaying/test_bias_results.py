"""What a replay with a target of the bias mass returns: sums, the grid, tables, notes; and errors."""

import copy
import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.replaying import options
from drstream.replaying.notes import CUT_OFF
from tests.helpers.replays import bits, small_log

LEVELS = [{"bias": 0.05}, {}]


@pytest.fixture(scope="module")
def log():
    return drs.Log(small_log(0, 3000, 3, 1), actions=3, context=["x0"])


def replay(log, horizon=20, **levels):
    return drs.replay(log, drs.policies.UCB1(), horizon, drs.models.Column("rhat"), **levels)


@pytest.mark.parametrize("levels", LEVELS)
def test_the_cumulative_reward_is_t_times_the_average(log, levels):
    run = replay(log, **levels)
    assert run.complete > 3
    for name in ("", "_low", "_high"):
        per_step = getattr(run, name[1:] or "value")
        assert getattr(run, f"cumulative{name}") == pytest.approx(20 * per_step, rel=1e-12)
    assert run.total.stderr == pytest.approx(20 * run.stderr, rel=1e-12)
    assert run.curve["cumulative"][-1].as_py() == pytest.approx(run.cumulative, rel=1e-9)
    assert run.curve["average"][-1].as_py() == pytest.approx(run.value, rel=1e-9)
    assert run.low < run.value < run.high
    averages = run.replicates["average"].to_numpy()
    assert run.value == pytest.approx(averages.mean(), rel=1e-12)


@pytest.mark.parametrize("horizon", [20, 45])
@pytest.mark.parametrize("levels", [*LEVELS, {"q": 0.1}])
def test_by_step_weighs_all_steps_alike(log, monkeypatch, levels, horizon):
    if horizon == 45:
        monkeypatch.setattr(options, "CURVE_POINTS", 8)  # points of 6 steps, the last of 3
    run = replay(log, horizon, **levels)
    curve = run.curve
    steps = np.diff([0, *curve["t"].to_pylist()])
    wanted = sum(n * reward for n, reward in zip(steps, curve["reward"].to_pylist(), strict=True)) / horizon
    assert run.by_step == pytest.approx(wanted, rel=1e-12)


def test_students_interval_of_one_target(log):
    from scipy import stats

    run = replay(log, bias=0.05, confidence=0.9)
    averages = run.replicates["average"].to_numpy()
    low, high = stats.t.interval(0.9, len(averages) - 1, averages.mean(), stats.sem(averages))
    assert (run.low, run.high) == pytest.approx((low, high), rel=1e-12)
    assert run.shift == 0


def test_the_grid_shows_every_target_and_which_are_in_the_result(log):
    run = replay(log)
    grid = run.grid
    assert grid["bias"].to_pylist() == list(options.GRID)
    flags = grid["pooled"].to_pylist()
    first = sum(flags)
    assert flags == [True] * first + [False] * (len(flags) - first)
    assert first >= 1
    counted = [row["replicates"] for row in grid.to_pylist() if row["pooled"]]
    assert run.complete == sum(counted) == len(run.replicates)
    assert run.replicates["bias"].to_pylist() == [
        t for t, n in zip(options.GRID, counted, strict=False) for _ in range(n)
    ]
    for row in grid.to_pylist():
        assert row["bias_mass"] <= row["bias"] * 1.5  # measured on the replicates alone
        assert 0 < row["c"] <= 1
    row = run.row()
    assert (row["level"], row["largest_target"]) == ("bias = auto", options.GRID[first - 1])
    assert math.isnan(row["bias"])
    assert run.bias == "auto"
    assert run.events + run.pilot_events == 3000
    single = replay(log, bias=0.05).grid.to_pylist()
    assert [(row["bias"], row["pooled"]) for row in single] == [(0.05, True)]
    assert math.isnan(replay(log, q=0.1).grid["bias"][0].as_py())


def test_acceptance_of_a_grid_is_that_of_all_its_lanes(log):
    run = replay(log)
    rows = [row for row in run.grid.to_pylist() if row["pooled"]]
    events = [3000 - row["pilot_events"] for row in rows]
    wanted = sum(n * row["acceptance"] for n, row in zip(events, rows, strict=True)) / sum(events)
    assert run.acceptance == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("levels", [*LEVELS, {"q": 0.1}])
def test_tables_have_the_columns_and_json_round_trips(log, levels):
    run = replay(log, **levels)
    row = run.row()
    assert {"bias", "q", "c", "pilot_events", "bias_mass"} <= row.keys()
    assert run.to_arrow().column_names == list(row)
    assert run.to_arrow()["c"][0].as_py() == run.multiplier
    found = json.loads(run.to_json())
    assert found["value"] == run.value
    assert found["pilot_events"] == run.pilot_events
    assert found["c"] == run.multiplier
    assert found["bias"] == levels.get("bias")
    assert found["level"] == run.level
    assert found["q"] == levels.get("q")
    assert len(found["grid"]) == len(run.grid)
    assert [each["value"] for each in found["grid"]] == run.grid["value"].to_pylist()
    assert json.loads(run.to_json(indent=None)) == found
    assert row["c"] == pytest.approx(np.mean(run.curve["c"].to_numpy()))


@pytest.mark.parametrize("levels", LEVELS)
def test_results_can_be_pickled(log, levels):
    run = replay(log, **levels)
    for copied in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        assert bits(copied) == bits(run)
        assert repr(copied) == repr(run)
        assert copied.to_json() == run.to_json()
        assert repr(copied.grid) == repr(run.grid)
    assert run.notes == []


def test_repr_shows_the_pilot_and_the_targets(log):
    run = replay(log)
    text = repr(run)
    assert "bias = auto, seed 0" in text
    assert f"pilot              {run.pilot_events:,} events, which set c and do not count" in text
    used = sum(run.grid["pooled"].to_pylist())
    assert f"with targets {', '.join(f'{t:g}' for t in options.GRID[:used])} of the bias mass" in text
    one = repr(replay(log, bias=0.05))
    assert "bias = 0.05, seed 0" in one
    assert "targets" not in one
    assert "pilot" in one
    assert "pilot" not in repr(replay(log, q=0.1))


def test_several_targets_are_found_by_their_number(log):
    policies = {"a": drs.policies.UCB1(), "b": drs.policies.Uniform()}
    runs = drs.replay(log, policies, 20, bias=[0.02, 0.1])
    assert runs.levels == [0.02, 0.1]
    assert runs["a", 0.1].bias == 0.1
    assert drs.replay(log, policies, 15)["a", "auto"].policy == "a"
    assert runs["b", 0.02, 0].row()["bias"] == 0.02
    with pytest.raises(KeyError, match=r"give policy, bias and seed, of policies .* bias \[0.02, 0.1\], seeds \[0\]"):
        runs["a"]
    assert "   0.02 " in repr(runs)
    assert runs.to_arrow()["bias"].to_pylist() == [0.02, 0.1, 0.02, 0.1]
    curves = runs.curves()
    assert curves["bias"].to_pylist() == [x for t in (0.02, 0.1, 0.02, 0.1) for x in [t] * 20]
    auto = drs.replay(log, policies, 20)
    assert auto.levels == ["auto"]
    assert auto["b"].bias == "auto"
    assert auto["b", 0] is auto["b"] if len(auto.seeds) > 1 else True
    assert " auto " in repr(auto)
    assert pickle.loads(pickle.dumps(auto))["a"].value == auto["a"].value


def test_differences_carry_the_measured_bias(log):
    policies = {"a": drs.policies.UCB1(), "b": drs.policies.Uniform()}
    runs = drs.replay(log, policies, 20, drs.models.Column("rhat"))
    gain = runs.difference("a", "b")
    a, b = runs["a"], runs["b"]
    assert gain.value == pytest.approx(a.value - b.value)
    assert gain.low <= gain.value <= gain.high
    low, high = gain.value - gain.low, gain.high - gain.value
    extra = [max(-a.shift, 0) + max(b.shift, 0), max(a.shift, 0) + max(-b.shift, 0)]
    assert low - extra[0] == pytest.approx(high - extra[1])
    back = runs.difference("b", "a")
    assert (back.low, back.high) == pytest.approx((-gain.high, -gain.low))


# Notes


def kinds(run):
    return [note.kind for note in run.notes]


def test_a_pilot_that_is_cut_off_gets_a_note():
    log = drs.Log(small_log(0, 3000, 3, 1), actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.Uniform(), 250, bias=0.6)
    assert run.pilot_events == 300
    (note,) = [note for note in run.notes if note.kind == "pilot"]
    assert "cut off after 300 events, a tenth of the log, before its steps were complete" in note
    assert "pilot" not in kinds(drs.replay(log, drs.policies.Uniform(), 20, bias=0.6))


def test_few_complete_replicates_of_those_begun_get_a_note(tmp_path):
    """Seven shards: most of them end before their first replicate does."""
    pq.write_table(small_log(0, 3500, 3, 1), tmp_path / "log.parquet", row_group_size=500)
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.Uniform(), 190, bias=0.6, shards=7)
    begun = run.complete + run.cut_off
    assert run.cut_off > CUT_OFF * begun
    (note,) = [note for note in run.notes if note.kind == "selection"]
    assert note.startswith(f"{run.complete} of {begun} replicates that were begun are complete")
    assert "selection" not in kinds(drs.replay(log, drs.policies.Uniform(), 20, bias=0.6, shards=7))


def test_a_shard_without_a_replicate_to_make_has_no_pilot(tmp_path):
    """Two replicates in three shards: the third has nothing to do, which is no pilot that was cut off."""
    pq.write_table(small_log(0, 3000, 3, 1), tmp_path / "log.parquet", row_group_size=1000)
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.Uniform(), 10, bias=0.6, shards=3, replicates=2)
    assert run.complete == 2
    assert not run.pilot_cut
    assert run.notes == []


# Errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bias": 0}, r'bias=0: the target of the bias mass must be in \(0, 1\), e.g. 0.02, or "auto"'),
        ({"bias": 1}, "bias=1: the target of the bias mass"),
        ({"bias": -0.1}, "bias=-0.1: .* for the smallest bias, choose dr-ns-wc"),
        ({"bias": math.nan}, "bias=nan: the target"),
        ({"bias": math.inf}, "bias=inf: the target"),
        ({"bias": [0.1, 2]}, "bias=2: the target"),
        ({"bias": ["a", 0.1]}, r"bias=\['a', 0.1\]: several targets must be numbers"),
        ({"bias": True}, "bias=True"),
        ({"bias": [0.1, 0.1]}, r"bias=\[0.1, 0.1\]: give at least one value, and none of them twice"),
        ({"bias": []}, r"bias=\[\]: give at least one value"),
        ({"bias": "automatic"}, "bias='automatic': it must be a number in .*, a list of numbers, or \"auto\""),
        ({"bias": "0.05"}, "bias='0.05': "),
        ({"bias": None}, "bias=None: it must be"),
        ({"bias": 0.05, "q": 0.1}, r"bias=0.05 and q=0.1: give one of them"),
        ({"bias": [0.05], "q": [0.1]}, r"bias=\[0.05\] and q=\[0.1\]: give one of them"),
        ({"bias": 0.05, "c_max": 0.5}, r"bias=0.05 and c_max=0.5: give one of them"),
        ({"bias": 0.05, "method": "rs"}, "bias=0.05: rs has a constant multiplier. Leave out bias=, or choose dr-ns"),
        ({"bias": 0.05, "method": "dr-ns-wc"}, "dr-ns-wc has a constant multiplier"),
        ({"bias": 0.05, "method": "drns"}, "method='drns': did you mean 'dr-ns'"),
        ({"bias": 0.05, "carry": True}, "carry=True is for q=: with bias=, all events are kept"),
        ({"carry": True}, "carry=True is for q="),
        ({"tracker": "sketch"}, "tracker='sketch' is for q="),
        ({"bias": 0.05, "tracker": "exact"}, "tracker='exact' is for q="),
    ],
)
def test_parameters(log, given, message):
    with pytest.raises(drs.DrstreamError, match=message):
        replay(log, 5, **given)


def test_q_or_c_max_alone_is_the_papers_algorithm(log):
    assert bits(replay(log, q=0.05)) == bits(replay(log, q=0.05, c_max=1.0))
    assert bits(replay(log, c_max=0.5)) == bits(replay(log, q=0.01, c_max=0.5))
    for run in (replay(log, q=0.05), replay(log, c_max=0.5)):
        assert run.bias is None
        assert run.level_name == "q"
        assert run.pilot_events == 0
    assert replay(log, q=None, c_max=None).bias == "auto"


@pytest.mark.parametrize("levels", LEVELS)
def test_a_log_that_is_too_short_says_how_many_events_it_takes(levels):
    log = drs.Log(small_log(0, 600, 3, 2), actions=3)
    with pytest.raises(drs.NotEnoughEventsError) as caught:
        drs.replay(log, drs.policies.Uniform(), 5000, **levels)
    error = caught.value
    events = 540 if levels else 585  # the last simulation of a grid has the shortest pilot
    assert error.acceptance == error.steps / events
    pilot = math.ceil(5000 / error.acceptance)  # or a tenth of the log
    needed = [bernstein(steps, error.acceptance) for steps in (5000, 50_000)]
    one, ten = (min(math.ceil(n / 0.9), n + pilot) for n in needed)
    assert (error.events_for_one, error.events_for_ten) == (one, ten)
    text = str(error)
    assert f"{events} events simulated {error.steps} steps" in text
    assert f"about {one:,} events for one replicate and {ten:,} for ten" in text
    largest = "a larger bias than 0.1, the largest that was tried" if not levels else "or a larger bias"
    assert text.endswith(largest)


def bernstein(steps, rate):
    """n α >= m T + L + sqrt(L² + 2 m T L), with L = ln(1 / 0.05)."""
    log = math.log(20)
    return math.ceil((steps + log + math.sqrt(log**2 + 2 * steps * log)) / rate)


@pytest.mark.parametrize("levels", LEVELS)
def test_logs_of_no_event_and_of_one(levels):
    table = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
    with pytest.raises(drs.NotEnoughEventsError, match="the log is empty"):
        drs.replay(drs.Log(table.slice(0, 0), actions=2), drs.policies.UCB1(), 3, **levels)
    with pytest.raises(drs.NotEnoughEventsError, match="no event is left after the pilot, which took 1"):
        drs.replay(drs.Log(table.slice(0, 1), actions=2), drs.policies.UCB1(), 3, **levels)
    run = drs.replay(drs.Log(table, actions=2), drs.policies.Uniform(), 1, **levels)
    assert run.events == 1
    if levels:
        assert run.complete == 1
        assert math.isnan(run.low)
        assert "one replicate" in kinds(run)


def test_a_policy_that_never_takes_what_was_logged():
    never = pa.table({"action": [0] * 50, "reward": [1.0] * 50, "propensity": [0.5] * 50})
    for levels in LEVELS:
        with pytest.raises(drs.NotEnoughEventsError, match="It takes more than"):
            drs.replay(drs.Log(never, actions=2), drs.policies.Constant(1), 3, **levels)
