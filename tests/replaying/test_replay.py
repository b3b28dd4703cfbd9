"""Replay against a naive Algorithm 1: every count and accepted row exactly, values to 1e-12."""

import math
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import drstream as drs
from drstream import lanes, replaying, runs
from drstream.models.binding import Used
from tests.helpers import reference
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, agree, as_events, bits, check_curve, run_or_none, small_log

METHODS = ["dr-ns", "dr-ns-wc", "rs", "dm"]


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
    ref, accepted, counts = reference.replay(events, model, u, naive, horizon, q, c_max, method, carry, most)
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
    ref, _, counts = reference.replay(events, rhat, drs.uniforms(0, 0, 400), naive, 25, 0.1, 1.0, "dr-ns")
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
    ref, _, counts = reference.replay(events, model, u, Naive(), horizon, q, 1.0, method)
    log = drs.Log(table, actions=3, context=["x0", "x1"])
    options = {"model": drs.models.Column("rhat"), "method": method, "q": q, "seed": 5}
    for given_policy in (policy, drs.policies.Fixed(policy), policy.probabilities):
        run = run_or_none(log, given_policy, horizon, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)


# The same bits however it is run


@pytest.mark.parametrize("tracker", ["sketch", "switched", "exact"])
@pytest.mark.parametrize("rows", [1, 7, 50])
def test_chunks_and_trackers_equal_the_naive_algorithm(monkeypatch, rows, tracker):
    """In chunks of few rows, so that every state is carried over; with the sketch, against a naive sketch; and with the
    exact tracker turned into a sketch before its second value is lost."""
    monkeypatch.setattr(replaying._Plan, "chunk_rows", rows)
    monkeypatch.setattr(lanes, "EXACT_VALUES", -1 if tracker == "switched" else 10**9)
    for seed in range(6):
        table = small_log(seed, 300, 3, 1)
        events, rhat = as_events(table, 1)
        find = reference.exact_c if tracker == "exact" else reference.sketched_c
        for q, carry in ((0.0, False), (0.07, False), (0.3, True)):
            naive, u = reference.Exp3(3, 1, gamma=0.3), drs.uniforms(seed, 0, 300)
            ref, _, counts = reference.replay(events, rhat, u, naive, 8, q, 1.0, "dr-ns", carry, None, find)
            log = drs.Log(table, actions=3, context=["x0"])
            form = "auto" if tracker == "switched" else tracker
            for policy in (drs.policies.Exp3(0.3), reference.Exp3(3, 1, gamma=0.3)):
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
        naive = reference.UCB1(3, 1)
        ref, _, counts = reference.replay(events[part], rhat[part], u[part], naive, 9, 0.05, 1.0, "dr-ns")
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


@pytest.mark.jit_only
def test_python_lanes_alone_do_not_see_unfinished_contexts(big):
    """Contexts in columns are put together once for all lanes, which run on threads."""

    class Looks(reference.UCB1):
        def probabilities(self, X):
            assert (X != 0).all()
            return np.full((len(X), 4), 0.25)

    w = drs.synth.World(n_actions=4, n_features=40, kinds=None)
    log = drs.Log(w.table(60_000, seed=1))
    runs = drs.replay(log, Looks(4, 40), 500, q=[0.0, 0.01, 0.05, 0.1], threads=4)
    alone = drs.replay(log, Looks(4, 40), 500, q=[0.0, 0.01, 0.05, 0.1], threads=1)
    assert [bits(run) for run in runs] == [bits(run) for run in alone]


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "log.parquet"
    rows = 1500 if PLAIN else 200_000
    w = world(kinds=None)
    pq.write_table(w.table(rows, seed=3), path, row_group_size=rows // 7 + 1)
    return path


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world(kinds=None).table(400, seed=4)))


HORIZON = 30


def test_threads_batches_and_layouts_do_not_change_a_bit(big, model):
    def run(log, **options):
        return bits(drs.replay(log, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05, **options))

    wanted = run(drs.Log(big), threads=1)
    for threads in (2, 5):
        assert run(drs.Log(big), threads=threads) == wanted
    for size in (77, 5000):
        assert run(drs.Log(big, batch_size=size), threads=2) == wanted


def test_lanes_give_what_each_gives_alone(big, model):
    policies = {
        "greedy": drs.policies.EpsilonGreedy(),
        "soft": drs.policies.Boltzmann(),
        "fixed": drs.policies.Uniform(),
    }
    policies["python"] = reference.UCB1(4, 3)
    if not PLAIN:
        big = drs.Log(big, filter=pa.compute.field("x0") > 0.8)  # a Python policy is slow
    runs = drs.replay(big, policies, HORIZON, model, q=[0.0, 0.1], seed=[0, 7], threads=3)
    assert len(runs) == 16
    for name, policy in policies.items():
        for q in (0.0, 0.1):
            alone = run_or_none(big, {name: policy}, HORIZON, model, q=q, seed=7, threads=1)
            if alone is None:
                assert not runs[name, q, 7].complete
            else:
                assert bits(alone[name]) == bits(runs[name, q, 7])


def test_shards_are_replayed_independently_and_workers_do_not_matter(big, model):
    def run(**options):
        return drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05, shards=3, **options)

    wanted = run(threads=1)
    assert wanted.replicates["shard"].unique().to_pylist() == [0, 1, 2]
    for threads in (2, 4):
        assert bits(run(threads=threads)) == bits(wanted)
    with ThreadPoolExecutor(2) as pool:
        assert bits(run(executor=pool)) == bits(wanted)
    groups = pq.ParquetFile(big)
    first = groups.read_row_groups([0, 1, 2])  # 7 row groups in shards of 3, 2 and 2
    alone = drs.replay(first, drs.policies.EpsilonGreedy(), HORIZON, model, q=0.05)
    got = wanted.replicates.filter(pa.compute.equal(wanted.replicates["shard"], 0))
    for column in ("steps", "events", "first_row", "last_row"):
        assert got[column].to_pylist() == alone.replicates[column].to_pylist()
    np.testing.assert_allclose(got["cumulative"].to_numpy(), alone.replicates["cumulative"].to_numpy(), rtol=1e-12)
    capped = run(replicates=5)
    assert capped.replicates["shard"].to_pylist() == [0, 0, 1, 1, 2]
    curve = wanted.curve
    assert curve["cumulative"][-1].as_py() == pytest.approx(wanted.cumulative, rel=1e-9)
    assert curve["average_low"][-1].as_py() == pytest.approx(wanted.low, rel=1e-9)


@pytest.mark.jit_only
def test_shards_in_processes(big, model):
    import multiprocessing

    options = {"q": 0.05, "shards": 2}
    wanted = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, **options)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        got = drs.replay(big, drs.policies.EpsilonGreedy(), HORIZON, model, executor=processes, **options)
    assert bits(got) == bits(wanted)


def test_a_split_log_and_replay_of_the_same_seed_do_not_share_random_numbers(big):
    """Were they the same, a split's first part would accept far too much: E[c w] is the acceptance rate without
    violations, here 0.05."""
    part, _ = drs.Log(big).split(0.2, seed=0)
    run = drs.replay(part, drs.policies.Uniform(), 5, q=0.0, c_max=0.05, seed=0)
    error = math.sqrt(0.05 * 0.95 / run.events)
    assert abs(run.acceptance - 0.05) < 4.5 * error + run.violations


# Python policies


class Counting(reference.EpsilonGreedy):
    """Changes its version every fourth update only, and so must its probabilities."""

    calls = 0

    def start(self):
        super().start()
        self.shown = [list(w) for w in self.W]

    def scores(self, x):
        return [sum(w[j] * x[j] for j in range(self.d)) + w[self.d] for w in self.shown]

    def probabilities(self, X):
        self.calls += 1
        return super().probabilities(X)

    def learn(self, x, action, reward):
        super().learn(x, action, reward)
        if (self.n + 1) % 4 == 0:
            self.shown = [list(w) for w in self.W]

    def update(self, x, action, reward):
        super().update(x, action, reward)
        self.version = self.n // 4


def test_a_python_policy_is_asked_again_only_when_its_version_moves():
    table = small_log(1, 2000, 3, 2)
    log = drs.Log(table, actions=3, context=["x0", "x1"])
    lazy = Counting(3, 2)
    run = drs.replay(log, lazy, 40, q=0.1)
    events, _ = as_events(table, 2)
    naive = Counting(3, 2)
    ref, accepted, counts = reference.replay(events, None, drs.uniforms(0, 0, 2000), naive, 40, 0.1, 1.0, "dr-ns")
    agree(run, ref, counts, 40)
    assert lazy.calls < len(accepted) / 4 + run.complete + run.events / lanes.LEAST_AHEAD
    assert naive.calls == run.events


def test_a_policy_without_version_is_asked_after_every_acceptance():
    class NoVersion(reference.UCB1):
        def reset(self):
            super().reset()
            del self.version

        def update(self, x, action, reward):
            self.learn(x, action, reward)
            self.n += 1

    log = drs.Log(small_log(2, 1000, 3, 1), actions=3, context=["x0"])
    wanted = drs.replay(log, reference.UCB1(3, 1), 20, q=0.1)
    assert bits(drs.replay(log, NoVersion(3, 1), 20, q=0.1)) == bits(wanted)


def test_the_look_ahead_does_not_change_the_result(monkeypatch):
    log = drs.Log(small_log(3, 1500, 3, 2), actions=3, context=["x0", "x1"])
    wanted = drs.replay(log, Counting(3, 2), 30, q=0.05)
    for least, most in ((1, 1), (3, 7), (5000, 5000)):
        monkeypatch.setattr(lanes, "LEAST_AHEAD", least)
        monkeypatch.setattr(lanes, "MOST_AHEAD", most)
        assert bits(drs.replay(log, Counting(3, 2), 30, q=0.05)) == bits(wanted)


def test_python_policies_see_contexts_in_the_type_of_the_log_and_actions_as_numbers():
    seen = []

    class Look:
        version = 0

        def reset(self):
            seen.append("reset")

        def probabilities(self, X):
            assert X.dtype == np.float32
            assert not X.flags.writeable
            return np.full((len(X), 2), 0.5)

        def update(self, x, action, reward):
            seen.append((x.tolist(), action, reward))

    table = pa.table(
        {
            "x0": np.array([1, 2, 3], np.float32), "action": ["b", "a", "b"],
            "reward": [1.0, 2.0, 3.0], "propensity": [0.5, 0.5, 0.5],
        }
    )  # fmt: skip
    drs.replay(drs.Log(table), Look(), 3)
    assert seen == ["reset", ([1.0], 1, 1.0), ([2.0], 0, 2.0), ([3.0], 1, 3.0), "reset"]


# The worst-case multiplier


def smallest(log):
    return replaying.smallest_propensity(log, log.reader(action=True), Used(None, None, None, None), 2)


def test_worst_case_c_of_rows_that_are_not_skipped():
    table = pa.table({"action": [0, 1, None, 1] * 50, "reward": [1.0] * 200, "propensity": [0.5, 0.5, 1e-4, 0.5] * 50})
    run = drs.replay(drs.Log(table, on_bad_row="skip"), drs.policies.UCB1(), 3, method="dr-ns-wc")
    assert run.c_max == 0.5


def test_worst_case_c_from_statistics_and_from_a_pass(tmp_path, monkeypatch):
    table = small_log(0, 500, 2, 1)
    pq.write_table(table, tmp_path / "with.parquet", row_group_size=100)
    pq.write_table(table, tmp_path / "without.parquet", row_group_size=100, write_statistics=False)
    wanted = min(table["propensity"].to_pylist())
    passes = []
    monkeypatch.setattr(replaying._Smallest, "__call__", lambda self, part: passes.append(part) or 0.06)
    assert smallest(drs.Log(tmp_path / "with.parquet")) == wanted
    assert not passes
    assert smallest(drs.Log(tmp_path / "without.parquet")) == wanted
    assert passes


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


# Results


def test_one_replicate_has_no_interval_and_says_so():
    log = drs.Log(small_log(0, 500, 2, 1), actions=2)
    run = drs.replay(log, drs.policies.Uniform(), 20, replicates=1)
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
    monkeypatch.setattr(lanes, "CURVE_POINTS", 8)
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
    assert run.bias_mass == pytest.approx(3 * 0.5 / (3 * 0.75 + 0.75 + 0.5))  # Σ (c w - 1)+ / Σ c
    first, second = 2 * 0.5 / (3 * 0.75), 0.5 / (0.75 + 0.5)  # of the events that simulate t = 1 and t = 2
    bound = (2 * first / (1 - first) + 1 * second / (1 - second)) / 2
    assert run.bias_bound == pytest.approx(bound)
    none = drs.replay(table, drs.policies.Uniform(), 2, q=0.0)
    assert none.bias_mass == none.bias_bound == none.violations == 0


def test_replays_are_found_by_policy_q_and_seed():
    log = drs.Log(small_log(0, 3000, 2, 1), actions=2)
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
    y, w = run._outcome.curve[0][-1], run._outcome.curve[1][-1]
    assert last["reward"][0].as_py() == pytest.approx(y / w)
    assert last["low"][0].as_py() < last["reward"][0].as_py() < last["high"][0].as_py()


def test_notes_say_what_is_amiss():
    rows = 4000
    rng = np.random.default_rng(0)
    table = pa.table({"action": rng.integers(0, 20, rows), "reward": np.full(rows, 3.0), "propensity": [0.05] * rows})
    runs = drs.replay(table, {"one": drs.policies.Constant(3), "ucb": drs.policies.UCB1()}, 10, q=0.05)
    assert "replicates weigh" in " ".join(runs["one"].notes)
    assert "smaller q or c_max, or dr-ns-wc" in repr(runs["one"])
    assert "takes rewards to lie in [0, 1]; here they lie in [3, 3]" in " ".join(runs["ucb"].notes)
    assert any(note.startswith("ucb, q = 0.05: the policy takes rewards") for note in runs.notes)
    assert "too large for a bound on the bias" in repr(runs["one"])
    safe = drs.replay(table, drs.policies.Constant(3), 10, method="dr-ns-wc")
    assert "weigh" not in " ".join(safe.notes)
    assert safe.value == pytest.approx(3, abs=4 * safe.stderr)
    same = drs.replay(table, drs.policies.Constant(3), 10, method="rs")
    assert same.notes == ["all replicates have the same value: an interval without width does not mean certainty"]


# Retrained scikit-learn models


def test_retrained_is_the_policy_of_section_6_2():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    w = world(kinds=None, n_actions=3)
    start = rng.standard_normal((60, 3)), rng.integers(0, 2, (60, 3))
    table = w.table(3000, seed=1)
    log = drs.Log(table)
    policy = drs.policies.Retrained(LogisticRegression(), every=15, epsilon=0.1, start=start)
    run = drs.replay(log, policy, 100, q=0.1, replicates=2)

    class Naive:
        def reset(self):
            self.seen = [([*start[0]], [*start[1][:, a]]) for a in range(3)]
            self.n = 0
            self.train()

        def train(self):
            self.models = [LogisticRegression().fit(np.array(X), r) for X, r in self.seen]

        def probabilities(self, X):
            scores = np.column_stack([m.predict_proba(X)[:, 1] for m in self.models])
            out = np.full(scores.shape, 0.1 / 3)
            out[np.arange(len(X)), scores.argmax(axis=1)] += 0.9
            return out

        def update(self, x, a, r):
            self.seen[a][0].append(x)
            self.seen[a][1].append(r)
            self.n += 1
            if self.n % 15 == 0:
                self.train()

    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    events = list(zip(X, *(table[c].to_pylist() for c in ("action", "reward", "propensity")), strict=True))
    ref, _, counts = reference.replay(
        events, None, drs.uniforms(0, 0, 3000), Naive(), 100, 0.1, 1.0, "dr-ns", replicates=2
    )
    agree(run, ref, counts, 100)


def test_retrained_without_a_start_and_with_a_regressor():
    from sklearn.linear_model import Ridge

    log = drs.Log(small_log(0, 900, 3, 2), actions=3, context=["x0", "x1"])
    run = drs.replay(log, drs.policies.Retrained(Ridge(), every=5), 40, q=0.1)
    assert run.complete
    with pytest.raises(drs.PolicyError, match="every=0"):
        drs.policies.Retrained(Ridge(), every=0)
    with pytest.raises(drs.PolicyError, match="not a scikit-learn model"):
        drs.policies.Retrained(Ridge)
    with pytest.raises(drs.PolicyError, match="start has 2 actions, the log has 3"):
        drs.replay(log, drs.policies.Retrained(Ridge(), start=(np.zeros((4, 2)), np.ones((4, 2)))), 10)


def test_retrained_may_be_used_again_on_another_log():
    from sklearn.linear_model import Ridge

    policy = drs.policies.Retrained(Ridge(), every=5)
    five, three = (drs.Log(small_log(0, 600, k, 1), actions=k, context=["x0"]) for k in (5, 3))
    assert len(drs.replay(five, policy, 10, q=0.1).labels) == 5
    fresh = drs.replay(three, drs.policies.Retrained(Ridge(), every=5), 10, q=0.1)
    assert bits(drs.replay(three, policy, 10, q=0.1)) == bits(fresh)


def test_no_model_means_predictions_of_zero():
    log = drs.Log(small_log(0, 900, 3, 1), actions=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = drs.replay(log, drs.policies.Exp3(), 20, q=0.1)
        b = drs.replay(log, drs.policies.Exp3(), 20, drs.models.Constant(0.0), q=0.1)
    assert bits(a) == bits(b)
