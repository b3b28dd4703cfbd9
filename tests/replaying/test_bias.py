"""Replay with a target of the bias mass against the naive algorithm: compiled, Python and fixed policies, dense and
sparse contexts, pilots that are complete or cut off, chunks of any size, and shards."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import drstream as drs
from drstream.replaying import plan as planning
from tests.helpers import naive_replay
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, agree, as_events, check_curve, run_or_none, small_log
from tests.helpers.sparse import DIM, both_logs

TARGETS = [0.00137, 0.0109, 0.0523, 0.217, 0.613]  # odd numbers: ties do not decide


def naive(events, rhat, seed, policy, horizon, target, method="dr-ns", replicates=None, pilot="a tenth"):
    u = drs.uniforms(seed, 0, len(events))
    pilot = max(len(events) // 10, 1) if pilot == "a tenth" else pilot
    options = {"replicates": replicates, "bias": target, "pilot": pilot}
    return naive_replay.replay(events, rhat, u, policy, horizon, None, 1.0, method, **options)


@settings(max_examples=15 if PLAIN else 60)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(list(LEARNERS)),
    method=st.sampled_from(["dr-ns", "dm"]),
    horizon=st.integers(1, 12),
    target=st.sampled_from(TARGETS),
    most=st.sampled_from([None, None, 1, 3]),
    with_model=st.booleans(),
    kind=st.sampled_from(["float32", "float64", "int64"]),
)
def test_compiled_equals_python_equals_the_naive_algorithm(seed, name, method, horizon, target, most, with_model, kind):
    compiled, plain, parameters = LEARNERS[name]
    with_model = with_model or method == "dm"
    actions, features = 1 + seed % 4, seed % 3
    table = small_log(seed, 120, actions, features, kind)
    events, rhat = as_events(table, features)
    model = rhat if with_model else None
    learner = plain(actions, features, **parameters)
    ref, accepted, counts = naive(events, model, seed, learner, horizon, target, method, most)
    options = {
        "horizon": horizon, "method": method, "bias": target, "seed": seed, "replicates": most,
        "model": drs.models.Column("rhat") if with_model else None,
    }  # fmt: skip
    log = drs.Log(table, context=[f"x{j}" for j in range(features)], actions=actions)
    seen = []

    class Recorded(plain):
        def update(self, x, action, reward):
            seen.append((action, reward))
            super().update(x, action, reward)

    for policy in (compiled, Recorded(actions, features, **parameters)):
        run = run_or_none(log, policy, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)
            assert run.replicates["bias"].unique().to_pylist() == [target]
    assert seen == [(events[k][1], events[k][2]) for k in accepted]


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_equals_its_naive_form(name):
    """Over enough steps that it learns something. The pilot is cut off, after the 40th event."""
    compiled, plain, parameters = LEARNERS[name]
    table = small_log(7, 400, 3, 2)
    events, rhat = as_events(table, 2)
    ref, _, counts = naive(events, rhat, 0, plain(3, 2, **parameters), 25, 0.613)
    log = drs.Log(table, context=["x0", "x1"], actions=3)
    agree(drs.replay(log, compiled, 25, drs.models.Column("rhat"), bias=0.613), ref, counts, 25)
    assert len(ref) > 1
    assert counts["pilot"] == 40


class Never:
    """A fixed policy, for the naive algorithm."""

    def __init__(self, policy):
        self.probabilities = policy.probabilities

    def reset(self):
        pass

    def update(self, x, action, reward):
        pass


@given(
    seed=st.integers(0, 10_000),
    method=st.sampled_from(["dr-ns", "dm"]),
    target=st.sampled_from(TARGETS),
    horizon=st.integers(1, 9),
)
def test_a_fixed_policy_equals_the_naive_algorithm(seed, method, target, horizon):
    table = small_log(seed, 100, 3, 2)
    events, rhat = as_events(table, 2)
    policy = drs.policies.Softmax(np.random.default_rng(seed).standard_normal((3, 2)))
    ref, _, counts = naive(events, rhat, 5, Never(policy), horizon, target, method)
    log = drs.Log(table, actions=3, context=["x0", "x1"])
    options = {"model": drs.models.Column("rhat"), "method": method, "bias": target, "seed": 5}
    for given_policy in (policy, policy.probabilities, Never(policy)):
        run = run_or_none(log, given_policy, horizon, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)


# The pilot


@pytest.mark.parametrize(
    ("horizon", "cut_off"),
    [(3, False), (60, True)],
)
@pytest.mark.parametrize("rows", [1, 7, 50, 10**6])
def test_chunks_and_pilots_equal_the_naive_algorithm(monkeypatch, rows, horizon, cut_off):
    """In chunks of few rows, so that every state is carried over. A pilot of 60 steps is cut off within a chunk."""
    monkeypatch.setattr(planning.Plan, "chunk_rows", rows)
    for seed in range(1 if PLAIN else 3):
        table = small_log(seed, 300, 3, 1)
        events, rhat = as_events(table, 1)
        log = drs.Log(table, actions=3, context=["x0"])
        for target in (0.0523, 0.613):
            ref, _, counts = naive(events, rhat, seed, naive_replay.Exp3(3, 1, gamma=0.3), horizon, target)
            assert (counts["pilot"] == 30) == cut_off
            for policy in (drs.policies.Exp3(0.3), naive_replay.Exp3(3, 1, gamma=0.3)):
                options = {"bias": target, "seed": seed}
                run = run_or_none(log, policy, horizon, drs.models.Column("rhat"), **options)
                if run is None:
                    assert not ref
                    continue
                agree(run, ref, counts, horizon)
                assert run.pilot_cut == cut_off
                assert run.events + run.pilot_events == 300
    assert ref  # with the larger target


def test_a_stream_has_no_known_end_so_its_pilot_is_never_cut_off():
    table = small_log(0, 400, 3, 1)
    events, rhat = as_events(table, 1)
    ref, _, counts = naive(events, rhat, 0, naive_replay.UCB1(3, 1), 30, 0.613, pilot=None)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=50))
    log = drs.Log(reader, actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.UCB1(), 30, drs.models.Column("rhat"), bias=0.613)
    agree(run, ref, counts, 30)
    assert not run.pilot_cut
    assert run.pilot_events > 40


def test_the_pilot_of_a_split_takes_a_tenth_of_what_the_split_leaves():
    table = small_log(0, 1000, 3, 1)
    part, _ = drs.Log(table, actions=3, context=["x0"]).split(0.3, seed=1)
    run = drs.replay(part, drs.policies.UCB1(), 60, bias=0.613)
    assert run.pilot_events == 30
    assert run.events + run.pilot_events == pytest.approx(300, abs=60)  # four standard errors of the split
    assert run.complete


# Sparse contexts, and shards


@pytest.mark.parametrize("rows", [7, 10**6])
@pytest.mark.parametrize("name", ["epsilon", "boltzmann", "exp3"])
def test_sparse_contexts_equal_the_naive_algorithm(monkeypatch, name, rows):
    monkeypatch.setattr(planning.Plan, "chunk_rows", rows)
    policy, plain, parameters = LEARNERS[name]
    sparse, dense, X, table = both_logs(3, 400, 3)
    columns = (table[c].to_pylist() for c in ("action", "reward", "propensity"))
    events, rhat = list(zip(X.tolist(), *columns, strict=True)), np.array(table["rhat"].to_pylist())
    for horizon in (5, 30):
        ref, _, counts = naive(events, rhat, 0, plain(3, DIM, **parameters), horizon, 0.217)
        for log in (sparse, dense):
            agree(drs.replay(log, policy, horizon, drs.models.Column("rhat"), bias=0.217), ref, counts, horizon)
        assert len(ref) > 1
        assert (counts["pilot"] == 40) == (horizon == 30)


def test_shards_merge_to_what_naive_runs_of_each_give(tmp_path):
    table = small_log(4, 900, 3, 1)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=300)
    events, rhat = as_events(table, 1)
    u = drs.uniforms(2, 0, 900)
    done, sums = [], {}
    for first in (0, 300, 600):
        part = slice(first, first + 300)
        ref, _, counts = naive_replay.replay(
            events[part], rhat[part], u[part], naive_replay.UCB1(3, 1), 9, None, 1.0, "dr-ns", bias=0.0523, pilot=30
        )
        done += [{**r, "first_row": r["first_row"] + first, "last_row": r["last_row"] + first} for r in ref]
        sums = {name: sums.get(name, 0) + n for name, n in counts.items()}
    log = drs.Log(tmp_path / "log.parquet", actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.UCB1(), 9, drs.models.Column("rhat"), bias=0.0523, seed=2, shards=3)
    agree(run, done, sums, 9)
    assert run.replicates["shard"].unique().to_pylist() == [0, 1, 2]
    check_curve(run, done)


def test_a_limit_of_replicates_does_not_count_the_pilot():
    log = drs.Log(small_log(0, 900, 3, 1), actions=3, context=["x0"])
    everything = drs.replay(log, drs.policies.UCB1(), 9, bias=0.0523)
    for most in (1, 4):
        run = drs.replay(log, drs.policies.UCB1(), 9, bias=0.0523, replicates=most)
        assert run.complete == most
        assert run.replicates.to_pylist() == everything.replicates.slice(0, most).to_pylist()
        assert run.pilot_events == everything.pilot_events > 0


def test_c_starts_a_replicate_where_the_one_before_ended():
    """All that was seen counts, so that the first step of a replicate has the c of the target, not 1."""
    log = drs.Log(small_log(0, 3000, 3, 1), actions=3, context=["x0"])
    run = drs.replay(log, drs.policies.Uniform(), 20, bias=0.0523)
    assert run.curve["c_largest"][0].as_py() < 1
    quantile = drs.replay(log, drs.policies.Uniform(), 20, q=0.05)
    assert quantile.curve["c_largest"][0].as_py() == 1
    assert run.bias_mass == pytest.approx(0.0523, rel=0.3)  # less than the target by the width of a bucket, and noise
