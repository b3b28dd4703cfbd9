"""Replay against a naive Algorithm 1: every count and accepted row exactly, values to 1e-12."""

import warnings

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import drstream as drs
from drstream.models.binding import BoundModels
from drstream.replaying import lanes
from drstream.replaying import plan as planning
from drstream.running.execution import Workers
from tests.helpers import naive_replay
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, agree, as_events, bits, check_curve, run_or_none, small_log

METHODS = ["dr-ns", "dr-ns-wc", "rs", "dm"]


@pytest.mark.covers
@settings(max_examples=60 if PLAIN else 400)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(list(LEARNERS)),
    method=st.sampled_from(METHODS),
    horizon=st.integers(1, 12),
    q=st.sampled_from([0.0, 0.01, 0.05, 0.3, 1.0]),
    c_max=st.sampled_from([1.0, 0.7, 0.1]),
    carry=st.booleans(),
    most=st.sampled_from([None, 1, 3]),
    with_model=st.booleans(),
    kind=st.sampled_from(["float32", "float64", "int64"]),
)
def test_compiled_equals_python_equals_the_naive_algorithm(
    seed, name, method, horizon, q, c_max, carry, most, with_model, kind
):
    compiled, plain, parameters = LEARNERS[name]
    with_model = with_model or method == "dm"
    actions, features = 1 + seed % 4, seed % 3
    table = small_log(seed, 120, actions, features, kind)
    events, rhat = as_events(table, features)
    u = drs.uniforms(seed, 0, len(events))
    naive = plain(actions, features, **parameters)
    model = rhat if with_model and method != "rs" else None
    ref, accepted, counts = naive_replay.replay(events, model, u, naive, horizon, q, c_max, method, carry, most)
    options = {
        "horizon": horizon, "method": method, "q": q, "c_max": c_max, "seed": seed, "carry": carry, "replicates": most,
        "model": drs.models.Column("rhat") if with_model else None,
    }  # fmt: skip
    log = drs.Log(table, context=[f"x{j}" for j in range(features)], actions=actions)
    seen = []

    class Recorded(plain):
        def update(self, x, action, reward):
            seen.append((action, reward))
            super().update(x, action, reward)

    runs = [run_or_none(log, policy, **options) for policy in (compiled, Recorded(actions, features, **parameters))]
    for run in runs:
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)
    assert seen == [(events[k][1], events[k][2]) for k in accepted]


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_equals_its_naive_form(name):
    """Over enough steps that it learns something, whatever hypothesis may have drawn above."""
    compiled, plain, parameters = LEARNERS[name]
    table = small_log(7, 400, 3, 2)
    events, rhat = as_events(table, 2)
    naive = plain(3, 2, **parameters)
    ref, _, counts = naive_replay.replay(events, rhat, drs.uniforms(0, 0, 400), naive, 25, 0.1, 1.0, "dr-ns")
    log = drs.Log(table, context=["x0", "x1"], actions=3)
    agree(drs.replay(log, compiled, 25, drs.models.Column("rhat"), q=0.1), ref, counts, 25)
    assert len(ref) > 1


@given(
    seed=st.integers(0, 10_000),
    method=st.sampled_from(METHODS),
    q=st.sampled_from([0.0, 0.1, 1.0]),
    horizon=st.integers(1, 9),
)
def test_a_fixed_policy_equals_the_naive_algorithm(seed, method, q, horizon):
    table = small_log(seed, 100, 3, 2)
    events, rhat = as_events(table, 2)
    policy = drs.policies.Softmax(np.random.default_rng(seed).standard_normal((3, 2)))

    class Naive:
        def reset(self):
            pass

        def probabilities(self, X):
            return policy.probabilities(X)

        def update(self, x, action, reward):
            pass

    u = drs.uniforms(5, 0, len(events))
    model = rhat if method != "rs" else None
    ref, _, counts = naive_replay.replay(events, model, u, Naive(), horizon, q, 1.0, method)
    log = drs.Log(table, actions=3, context=["x0", "x1"])
    options = {"model": drs.models.Column("rhat"), "method": method, "q": q, "seed": 5}
    for given_policy in (policy, drs.policies.Fixed(policy), policy.probabilities):
        run = run_or_none(log, given_policy, horizon, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)


# Chunks and shards


@pytest.mark.covers
@pytest.mark.parametrize("tracker", ["sketch", "switched", "exact"])
@pytest.mark.parametrize("rows", [1, 7, 50])
def test_chunks_and_trackers_equal_the_naive_algorithm(monkeypatch, rows, tracker):
    """In chunks of few rows, so that every state is carried over; with the sketch, against a naive sketch; and with the
    exact tracker turned into a sketch before its second value is lost."""
    monkeypatch.setattr(planning.Plan, "chunk_rows", rows)
    monkeypatch.setattr(lanes, "EXACT_VALUES", -1 if tracker == "switched" else 10**9)
    for seed in range(1 if PLAIN else 3):
        table = small_log(seed, 300, 3, 1)
        events, rhat = as_events(table, 1)
        find = naive_replay.exact_c if tracker == "exact" else naive_replay.sketched_c
        for q, carry in ((0.0, False), (0.07, False), (0.3, True)):
            naive, u = naive_replay.Exp3(3, 1, gamma=0.3), drs.uniforms(seed, 0, 300)
            ref, _, counts = naive_replay.replay(events, rhat, u, naive, 8, q, 1.0, "dr-ns", carry, None, find)
            log = drs.Log(table, actions=3, context=["x0"])
            form = "auto" if tracker == "switched" else tracker
            for policy in (drs.policies.Exp3(0.3), naive_replay.Exp3(3, 1, gamma=0.3)):
                options = {"q": q, "seed": seed, "carry": carry, "tracker": form}
                run = drs.replay(log, policy, 8, drs.models.Column("rhat"), **options)
                agree(run, ref, counts, 8)
                assert (run._outcome.sketch_from is not None) == (tracker == "switched")


def test_shards_merge_to_what_naive_runs_of_each_give(tmp_path):
    table = small_log(4, 900, 3, 1)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=300)
    events, rhat = as_events(table, 1)
    u = drs.uniforms(2, 0, 900)
    done, left, violations = [], 0, 0
    for first in (0, 300, 600):
        part = slice(first, first + 300)
        naive = naive_replay.UCB1(3, 1)
        ref, _, counts = naive_replay.replay(events[part], rhat[part], u[part], naive, 9, 0.05, 1.0, "dr-ns")
        done += [{**r, "first_row": r["first_row"] + first, "last_row": r["last_row"] + first} for r in ref]
        left += counts["left_over"]
        violations += counts["violations"]
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.UCB1(), 9, drs.models.Column("rhat"), q=0.05, seed=2, shards=3)
    assert (run.left_over, run.violations) == (left, violations / 900)
    for got, wanted in zip(run.replicates.to_pylist(), done, strict=True):
        assert {k: got[k] for k in ("events", "first_row", "last_row")} == {
            k: wanted[k] for k in ("events", "first_row", "last_row")
        }
    check_curve(run, done)
    w = table["propensity"].to_numpy()
    assert run.max_weight == pytest.approx((1 / w).max())


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world(kinds=None).table(400, seed=4)))


# The worst-case multiplier


def smallest(log):
    return planning.smallest_propensity(log, log.reader(action=True), BoundModels(None, None, None, None), Workers(2))


def test_worst_case_c_of_rows_that_are_not_skipped():
    table = pa.table({"action": [0, 1, None, 1] * 50, "reward": [1.0] * 200, "propensity": [0.5, 0.5, 1e-4, 0.5] * 50})
    run = drs.replay(drs.Log(table, on_bad_row="skip"), drs.policies.UCB1(), 3, method="dr-ns-wc")
    assert run.c_max == 0.5


def test_worst_case_c_is_read_not_taken_from_statistics(tmp_path):
    """Statistics may be wrong, and too large a c would bias the history."""
    table = small_log(0, 500, 2, 1)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=500, compression="none", use_dictionary=False)
    least = min(table["propensity"].to_pylist())
    whole, before = path.read_bytes(), np.array(least).tobytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert before in whole[start:]
    path.write_bytes(whole[:start] + whole[start:].replace(before, np.array(2 * least).tobytes()))
    assert smallest(drs.Log(path)) == least


def test_worst_case_c_of_a_filtered_split_or_streamed_log_is_that_of_its_events():
    table = small_log(0, 500, 2, 1)
    few = drs.Log(table, filter=pa.compute.field("propensity") > 0.2)
    assert smallest(few) == 0.25
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=50))
    run = drs.replay(drs.Log(reader, actions=2), drs.policies.UCB1(), 3, method="rs")
    assert run.c_max == 0.06
    assert run.events == 500
    assert bits(run) == bits(drs.replay(drs.Log(table, actions=2), drs.policies.UCB1(), 3, method="rs"))
    low = drs.replay(drs.Log(table, actions=2), drs.policies.UCB1(), 1, method="dr-ns-wc", c_max=0.01)
    assert low.c_max == 0.01


@pytest.mark.parametrize("method", ["dr-ns-wc", "rs"])
def test_a_constant_multiplier_that_the_user_knows(method):
    """It replaces the smallest logged propensity, 0.06 here, also where it is larger. Only the latter gets a note."""
    log = drs.Log(small_log(0, 900, 3, 1), actions=3)

    def run(**options):
        return drs.replay(log, drs.policies.Exp3(), 5, method=method, **options)

    small, found, large = run(c=0.02), run(), run(c=0.2)
    assert (small.c_max, found.c_max, large.c_max) == (0.02, 0.06, 0.2)
    assert bits(small) == bits(run(c_max=0.02))
    assert small.violations == 0 < large.violations
    (note,) = [note for note in found.notes if note.kind == "smallest propensity"]
    assert "c is the smallest propensity of the logged events, 0.06" in note
    assert not small.notes
    assert not [note for note in large.notes if note.kind == "smallest propensity"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"c": 0.1}, r"c=0.1 is the constant multiplier of dr-ns-wc and rs. dr-ns finds its own"),
        ({"c": 0.0, "method": "rs"}, r"c=0.0: the multiplier must be in \(0, 1\]"),
        ({"c": "a", "method": "rs"}, "c='a': the multiplier"),
        ({"c": 0.1, "c_max": 0.2, "method": "rs"}, "c=0.1 and c_max=0.2: give one of them"),
    ],
)
def test_constant_multipliers_that_are_none(options, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.replay(drs.Log(small_log(0, 90, 3, 1), actions=3), drs.policies.Exp3(), 5, **options)


def test_no_model_means_predictions_of_zero():
    log = drs.Log(small_log(0, 900, 3, 1), actions=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = drs.replay(log, drs.policies.Exp3(), 20, q=0.1)
        b = drs.replay(log, drs.policies.Exp3(), 20, drs.models.Constant(0.0), q=0.1)
    assert bits(a) == bits(b)
