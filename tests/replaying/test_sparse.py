"""Replay of logs with sparse contexts: as the same log made dense, and as the naive algorithm."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

import drstream as drs
from drstream.kernels import learners
from drstream.replaying import lanes
from drstream.replaying import plan as planning
from tests.helpers import naive_replay
from tests.helpers.cut import cut_log
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, agree, bits
from tests.helpers.sparse import DIM, REWARDS, both_logs

LINEAR = [name for name in LEARNERS if name not in ("linucb", "ucb1", "exp3")]
FREE = ["ucb1", "exp3"]


def same(got, ref):
    """The same events were taken; values to 1e-9, as sums are in another order."""
    assert (got.events, got.left_over, got.complete) == (ref.events, ref.left_over, ref.complete)
    assert got.complete > 1
    ours, theirs = got.replicates.to_pydict(), ref.replicates.to_pydict()
    for name in ("steps", "events", "first_row", "last_row", "shard"):
        assert ours[name] == theirs[name]
    for name in ("cumulative", "average", "weight"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-9)
    assert (got.value, got.low, got.high) == pytest.approx((ref.value, ref.low, ref.high), rel=1e-9)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", [*LINEAR, *FREE])
def test_every_learner_equals_itself_on_the_dense_log(name, kind):
    policy = LEARNERS[name][0]
    sparse, dense, *_ = both_logs(1, 300 if PLAIN else 3000, kind=kind)
    options = {"model": drs.models.Column("rhat"), "q": 0.1}
    same(drs.replay(sparse, policy, 25, **options), drs.replay(dense, policy, 25, **options))


@pytest.mark.parametrize("actions", [1, 2, 5])
@pytest.mark.parametrize("name", [*LINEAR, *FREE])
def test_every_learner_equals_its_naive_form(name, actions):
    policy, plain, parameters = LEARNERS[name]
    sparse, _, X, table = both_logs(actions, 400, actions)
    columns = (table[c].to_pylist() for c in ("action", "reward", "propensity"))
    events, rhat = list(zip(X.tolist(), *columns, strict=True)), np.array(table["rhat"].to_pylist())
    naive = plain(actions, DIM, **parameters)
    ref, _, counts = naive_replay.replay(events, rhat, drs.uniforms(0, 0, 400), naive, 15, 0.1, 1.0, "dr-ns")
    agree(drs.replay(sparse, policy, 15, drs.models.Column("rhat"), q=0.1), ref, counts, 15)
    assert len(ref) > 1


@pytest.mark.covers
@pytest.mark.parametrize("entries", range(7))
def test_rows_of_every_length(entries):
    """Scores are summed four entries at a time, and the rest one at a time."""
    rng = np.random.default_rng(entries)
    for actions in (1, 3):
        state = np.concatenate([np.zeros(learners.HEADER), rng.standard_normal(actions * (DIM + 1))])
        state[[learners.N_ACTIONS, learners.PARAMETER]] = actions, 0.7
        weights = state[learners.HEADER :].reshape(DIM + 1, actions)
        at, x = rng.permutation(DIM)[:entries].astype(np.int32), rng.standard_normal(entries)
        out = np.empty(actions)
        learners.sparse_boltzmann(state, at, x, out)
        ref = np.exp((weights[0] + x @ weights[at + 1]) / 0.7)
        np.testing.assert_allclose(out, ref / ref.sum(), rtol=1e-12)


@pytest.mark.covers
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_an_index_that_stands_twice_counts_twice(kind, ordered):
    """Also in |x|², by which a step is divided."""
    options = {"kind": kind, "dim": 6, "repeats": True, "ordered": ordered}
    sparse, dense, *_ = both_logs(3, 500, **options)
    policy = drs.policies.EpsilonGreedy(learning_rate=0.9)
    same(drs.replay(sparse, policy, 20, q=0.1), drs.replay(dense, policy, 20, q=0.1))


@pytest.mark.covers
def test_indices_need_no_order_and_no_values():
    sparse, dense, *_ = both_logs(4, 500, ordered=False)
    policy = drs.policies.SquareCB()
    same(drs.replay(sparse, policy, 20, q=0.1), drs.replay(dense, policy, 20, q=0.1))
    sparse, dense, *_ = both_logs(5, 500, values=False)
    same(drs.replay(sparse, policy, 20, q=0.1), drs.replay(dense, policy, 20, q=0.1))


def test_all_rows_are_empty():
    sparse, dense, *_ = both_logs(6, 300, most=0)
    policy = drs.policies.Boltzmann()
    same(drs.replay(sparse, policy, 20, q=0.1), drs.replay(dense, policy, 20, q=0.1))


@pytest.mark.parametrize("ordered", [True, False])
def test_threads_batches_chunks_and_layouts_do_not_change_a_bit(tmp_path, monkeypatch, ordered):
    rows = 900 if PLAIN else 30_000
    *_, table = both_logs(7, rows, ordered=ordered, repeats=not ordered)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=rows // 7 + 1)

    def run(batch_size=None, **options):
        context = drs.Sparse("at", "value", dim=DIM)
        log = cut_log(tmp_path / "log.parquet", context=context, actions=3, batch_size=batch_size)
        return bits(drs.replay(log, drs.policies.EpsilonGreedy(), 30, q=0.05, **options))

    wanted, in_shards = run(threads=1), run(threads=1, shards=3)
    assert run(threads=3) == wanted
    assert run(threads=3, shards=3) == in_shards
    for size in (77, 5000):
        assert run(batch_size=size, threads=2) == wanted
    monkeypatch.setattr(planning.Plan, "chunk_rows", 64)
    assert run(threads=2) == wanted


def test_lanes_give_what_each_gives_alone():
    """A policy that does not look at contexts runs beside some that do."""
    sparse, *_ = both_logs(8, 900, ordered=False, repeats=True)
    policies = {
        "greedy": drs.policies.EpsilonGreedy(),
        "exp3": drs.policies.Exp3(),
        "fixed": drs.policies.Softmax(np.random.default_rng(0).standard_normal((3, DIM))),
        "python": Watching(),
    }
    runs = drs.replay(sparse, policies, 20, q=0.1, seed=[0, 7], threads=2)
    for name, policy in policies.items():
        alone = drs.replay(sparse, {name: policy}, 20, q=0.1, seed=7, threads=1)
        assert bits(alone[name]) == bits(runs[name, 0.1, 7])


def test_chunks_of_a_sparse_log_do_not_shrink_with_its_dimension(monkeypatch):
    *_, table = both_logs(0, 5000, actions=1)
    sparse = drs.Log(table, context=drs.Sparse("at", "value", dim=300_000), actions=1)
    sizes = []
    walk = lanes.CompiledLane._walk
    monkeypatch.setattr(
        lanes.CompiledLane, "_walk", lambda self, *given: sizes.append(len(given[0].rows)) or walk(self, *given)
    )
    drs.replay(sparse, drs.policies.EpsilonGreedy(), 100, q=0.1)
    assert sizes == [5000]


# Fixed policies and models


def test_fixed_policies_and_models_equal_themselves_on_the_dense_log():
    sparse, dense, *_ = both_logs(9, 600)
    policy = drs.policies.Softmax(np.random.default_rng(1).standard_normal((3, DIM)))
    for model in (drs.models.Constant(0.4), drs.models.Column("rhat")):
        same(drs.replay(sparse, policy, 20, model, q=0.1), drs.replay(dense, policy, 20, model, q=0.1))
    function = policy.probabilities
    same(drs.replay(sparse, function, 20, q=0.1), drs.replay(dense, function, 20, q=0.1))


# Python policies


class Watching:
    """Learns a sum for each action, in which large contexts count more; keeps the shapes that it was shown."""

    def reset(self):
        self.version, self.sums, self.shown = 0, np.zeros(3), []

    def probabilities(self, X):
        assert isinstance(X, scipy.sparse.csr_array)
        self.shown.append(X.shape)
        weights = np.exp(self.sums * (1 + abs(X).sum(axis=1).reshape(-1, 1)))
        return weights / weights.sum(axis=1, keepdims=True)

    def update(self, x, action, reward):
        assert isinstance(x, scipy.sparse.csr_array)
        assert x.shape == (1, DIM)
        self.sums[action] += 0.01 * reward * (1 + abs(x).sum())
        self.version += 1


class Dense(Watching):
    def probabilities(self, X):
        return super().probabilities(scipy.sparse.csr_array(X))

    def update(self, x, action, reward):
        super().update(scipy.sparse.csr_array(x.reshape(1, -1)), action, reward)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_python_policy_is_given_csr_arrays(kind):
    sparse, dense, X, _ = both_logs(10, 500, kind=kind)
    policy = Watching()
    run = drs.replay(sparse, policy, 20, q=0.1)
    assert {d for _, d in policy.shown} == {DIM}
    ref = drs.replay(dense, Dense(), 20, q=0.1)
    assert run.value == pytest.approx(ref.value, rel=1e-5 if kind == "float32" else 1e-9)
    rows = []

    class Keeps(Watching):
        def update(self, x, action, reward):
            rows.append(x.toarray()[0])
            assert x.dtype == kind

    drs.replay(sparse, Keeps(), 20, q=1.0, c_max=1.0, replicates=1)
    found = [int(np.argmin(np.abs(X - row).sum(axis=1))) for row in rows]
    assert np.allclose(X[found], rows)


@pytest.mark.parametrize("start", [None, "dense", "sparse"])
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_retrained_equals_itself_on_the_dense_log(kind, start):
    from sklearn.linear_model import LogisticRegression, Ridge

    sparse, dense, *_ = both_logs(11, 500, rewards=(0.0, 1.0) if kind == "classifier" else REWARDS)
    rng = np.random.default_rng(2)
    given = None
    if start is not None:
        X = rng.standard_normal((30, DIM)) * (rng.random((30, DIM)) < 0.2)
        given = (scipy.sparse.csr_matrix(X) if start == "sparse" else X), rng.integers(0, 2, (30, 3))
    model = LogisticRegression() if kind == "classifier" else Ridge(solver="lsqr", tol=1e-12)
    policy = drs.policies.Retrained(model, every=10, start=given)
    same(drs.replay(sparse, policy, 30, q=0.1), drs.replay(dense, policy, 30, q=0.1))


def test_a_start_that_does_not_fit():
    from sklearn.linear_model import Ridge

    sparse, *_ = both_logs(0, 50)
    with pytest.raises(drs.PolicyError, match=r"contexts of shape \(4, 40\) and rewards of shape \(5, 3\)"):
        drs.policies.Retrained(Ridge(), start=(scipy.sparse.csr_array((4, DIM)), np.zeros((5, 3))))
    policy = drs.policies.Retrained(Ridge(), start=(scipy.sparse.csr_array((4, 2)), np.zeros((4, 3))))
    with pytest.raises(drs.PolicyError, match=r"contexts of shape \(4, 2\); the log has 40 features"):
        drs.replay(sparse, policy, 5)


# Compiled policies of the user's


class OneWeight(drs.policies.Compiled):
    """ε-greedy over means of x[0] r, for both forms of contexts: the state is the means, the counts, and x[0]'s sum."""

    def initial_state(self, n_actions, n_features):
        return np.zeros(2 * n_actions)

    @staticmethod
    def probabilities(state, x, out):
        out[:] = 0.3 / len(out)
        out[np.argmax(state[: len(out)] * x[0])] += 0.7

    @staticmethod
    def update(state, x, action, reward):
        count = len(state) // 2 + action
        state[count] += 1
        state[action] += (x[0] * reward - state[action]) / state[count]

    @staticmethod
    def sparse_probabilities(state, indices, values, out):
        first = 0.0
        for j in range(len(indices)):
            if indices[j] == 0:
                first += values[j]
        out[:] = 0.3 / len(out)
        out[np.argmax(state[: len(out)] * first)] += 0.7

    @staticmethod
    def sparse_update(state, indices, values, action, reward):
        first = 0.0
        for j in range(len(indices)):
            if indices[j] == 0:
                first += values[j]
        count = len(state) // 2 + action
        state[count] += 1
        state[action] += (first * reward - state[action]) / state[count]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_compiled_policy_of_the_users(kind, debug):
    sparse, dense, *_ = both_logs(12, 500, kind=kind, dim=4, most=3)
    options = {"q": 0.1, "debug": debug}
    same(drs.replay(sparse, OneWeight(), 20, **options), drs.replay(dense, OneWeight(), 20, **options))
    one = drs.replay(sparse, OneWeight(), 20, replicates=1, **options)
    assert one.complete == 1
    assert one.events < 500


def test_policies_that_do_not_take_sparse_contexts_say_what_does():
    class OnlyDense(drs.policies.Compiled):
        initial_state = OneWeight.initial_state
        probabilities = staticmethod(OneWeight.probabilities)
        update = staticmethod(OneWeight.update)

    class NewUpdate(OneWeight):
        @staticmethod
        def update(state, x, action, reward):
            pass

    class NewSparseUpdate(OneWeight):
        @staticmethod
        def sparse_update(state, indices, values, action, reward):
            pass

    class Short(OneWeight):
        @staticmethod
        def sparse_update(state, indices, action, reward):
            pass

    sparse, dense, *_ = both_logs(0, 50)
    advice = (
        "and the log's contexts are sparse. EpsilonGreedy, Boltzmann and SquareCB take them, UCB1 and Exp3 look at "
        "none; or write sparse_probabilities and sparse_update, or a policy in Python, which is given contexts as a "
        "csr_array"
    )
    for policy, function in (
        (drs.policies.LinUCB(), "sparse_probabilities"),
        (OnlyDense(), "sparse_probabilities"),
        (NewUpdate(), "sparse_update"),  # what it inherits does not go with its update
    ):
        with pytest.raises(drs.PolicyError) as caught:
            drs.replay(sparse, {"p": policy}, 5)
        assert str(caught.value) == f"policy 'p': {type(policy).__name__} has no static function {function}, {advice}"
    with pytest.raises(drs.PolicyError, match=r"'p': NewSparseUpdate has no static function update$"):
        drs.replay(dense, {"p": NewSparseUpdate()}, 5)
    with pytest.raises(
        drs.PolicyError,
        match=r"Short\.sparse_update takes \(state, indices, action, reward\); it must be a static function of "
        r"\(state, indices, values, action, reward\)",
    ):
        drs.replay(sparse, Short(), 5)


def test_invalid_probabilities():
    class Half(OneWeight):
        @staticmethod
        def probabilities(state, x, out):
            out[:] = 0.5

        @staticmethod
        def sparse_probabilities(state, indices, values, out):
            out[:] = 0.5

    sparse, *_ = both_logs(0, 50)
    with pytest.raises(drs.PolicyError, match=r"probabilities that sum to 1\.5, not 1, at t = 1, row 0"):
        drs.replay(sparse, Half(), 5)


def test_an_index_beyond_the_state_is_found_in_debug_mode():
    class Beyond(OneWeight):
        @staticmethod
        def sparse_update(state, indices, values, action, reward):
            state[action + 50] += 1.0

        update = OneWeight.update

    sparse, *_ = both_logs(0, 50)
    with pytest.raises(IndexError) as caught:
        drs.replay(sparse, {"beyond": Beyond()}, 5, q=0.1, debug=True)
    assert "raised by the compiled policy 'beyond' at t = 1, row " in caught.value.__notes__[0]


@pytest.mark.covers
def test_rows_with_bad_indices_are_skipped():
    sparse, _, _, table = both_logs(13, 400)
    rows = table.to_pylist()
    for i in (0, 5, 17):
        rows[i]["at"] = [DIM]
        rows[i]["value"] = [1.0]
    bad = drs.Log(
        pa.Table.from_pylist(rows, schema=table.schema), context=sparse.roles.sparse, actions=3, on_bad_row="skip"
    )
    run = drs.replay(bad, drs.policies.EpsilonGreedy(), 20, q=0.1)
    assert run.events == 397
    assert math.isfinite(run.value)
    with pytest.raises(drs.LogError, match=r"index that is not in 0\.\.39"):
        drs.replay(bad, drs.policies.EpsilonGreedy(), 20, q=0.1, on_bad_row="error")
