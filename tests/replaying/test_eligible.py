"""Replay on logs with eligible sets: against the naive algorithm, the same bits, and what is refused."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import drstream as drs
from drstream.replaying import plan as planning
from tests.helpers import naive_replay
from tests.helpers.cut import cut_log
from tests.helpers.eligible import lists_of, random_mask
from tests.helpers.passes import PLAIN
from tests.helpers.replays import LEARNERS, agree, as_events, bits, run_or_none, small_log_with_sets
from tests.helpers.sparse import DIM, both_logs

METHODS = ["dr-ns", "dr-ns-wc", "rs", "dm"]
LINEAR = [name for name in LEARNERS if name not in ("linucb", "ucb1", "exp3")]


def log_of(table, features, actions, **options):
    return cut_log(table, context=[f"x{j}" for j in range(features)], actions=actions, eligible="items", **options)


@settings(max_examples=40 if PLAIN else 200)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(list(LEARNERS)),
    method=st.sampled_from(METHODS),
    horizon=st.integers(1, 12),
    q=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    share=st.sampled_from([0.0, 0.4, 0.9]),
    most=st.sampled_from([None, 2]),
    with_model=st.booleans(),
    kind=st.sampled_from(["float32", "float64"]),
)
def test_compiled_equals_python_equals_the_naive_algorithm(
    seed, name, method, horizon, q, share, most, with_model, kind
):
    compiled, plain, parameters = LEARNERS[name]
    with_model = with_model or method == "dm"
    actions, features = 1 + seed % 5, seed % 3
    table, mask = small_log_with_sets(seed, 120, actions, features, kind, share)
    events, rhat = as_events(table, features)
    naive, u = plain(actions, features, **parameters), drs.uniforms(seed, 0, len(events))
    model = rhat if with_model and method != "rs" else None
    ref, _, counts = naive_replay.replay(
        events, model, u, naive, horizon, q, 1.0, method, replicates=most, eligible=mask
    )
    options = {"method": method, "q": q, "seed": seed, "replicates": most}
    options["model"] = drs.models.Column("rhat") if with_model else None
    log = log_of(table, features, actions)
    for policy in (compiled, plain(actions, features, **parameters)):
        run = run_or_none(log, policy, horizon, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_equals_its_naive_form(name):
    """Over enough steps that it learns something; with more actions than a word of bits has, and with the bias mass."""
    compiled, plain, parameters = LEARNERS[name]
    rows = 300 if PLAIN else 900
    for actions, share in ((4, 0.4), (40, 0.1)):
        table, mask = small_log_with_sets(7, rows, actions, 2, share=share)
        events, rhat = as_events(table, 2)
        log, u = log_of(table, 2, actions), drs.uniforms(0, 0, rows)
        ref, _, counts = naive_replay.replay(
            events, rhat, u, plain(actions, 2, **parameters), 20, 0.2, 1.0, "dr-ns", eligible=mask
        )
        agree(drs.replay(log, compiled, 20, drs.models.Column("rhat"), q=0.2), ref, counts, 20)
        assert len(ref) > 1
    ref, _, counts = naive_replay.replay(
        events, rhat, u, plain(40, 2, **parameters), 8, None, 1.0, "dr-ns", bias=0.2, pilot=rows // 10, eligible=mask
    )
    agree(drs.replay(log, compiled, 8, drs.models.Column("rhat"), bias=0.2), ref, counts, 8)


def sparse_log(seed, rows, actions, **options):
    """A sparse log with sets, its contexts, its table and the sets."""
    *_, X, table = both_logs(seed, rows, actions, **options)
    rng = np.random.default_rng(seed)
    mask = random_mask(rng, rows, actions)
    mask[np.arange(rows), table["action"].to_numpy()] = True
    table = table.append_column("items", lists_of(mask, rng=rng))
    context = drs.Sparse("at", "value", dim=DIM)
    return drs.Log(table, context=context, actions=actions, eligible="items"), X, table, mask


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", [*LINEAR, "ucb1", "exp3"])
def test_sparse_contexts(name, kind):
    policy, plain, parameters = LEARNERS[name]
    log, X, table, mask = sparse_log(3, 400, 4, kind=kind)
    columns = (table[c].to_pylist() for c in ("action", "reward", "propensity"))
    events, rhat = list(zip(X.tolist(), *columns, strict=True)), np.array(table["rhat"].to_pylist())
    naive, u = plain(4, DIM, **parameters), drs.uniforms(0, 0, 400)
    ref, _, counts = naive_replay.replay(events, rhat, u, naive, 15, 0.1, 1.0, "dr-ns", eligible=mask)
    agree(drs.replay(log, policy, 15, drs.models.Column("rhat"), q=0.1), ref, counts, 15)
    assert len(ref) > 1


@given(seed=st.integers(0, 10_000), method=st.sampled_from(METHODS), horizon=st.integers(1, 9))
@settings(max_examples=15 if PLAIN else 60)
def test_fixed_policies_equal_the_naive_algorithm(seed, method, horizon):
    table, mask = small_log_with_sets(seed, 100, 4, 2)
    events, rhat = as_events(table, 2)
    policy = drs.policies.Epsilon(drs.policies.Softmax(np.random.default_rng(seed).standard_normal((4, 2))), 0.2)

    class Naive:
        def reset(self):
            pass

        def probabilities(self, X, eligible):
            scores = np.where(eligible, X @ policy.base.weights.T, -np.inf)
            soft = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            return 0.8 * soft + 0.2 * eligible / eligible.sum()

        def update(self, x, action, reward, eligible):
            pass

    model = rhat if method != "rs" else None
    ref, _, counts = naive_replay.replay(
        events, model, drs.uniforms(5, 0, 100), Naive(), horizon, 0.1, 1.0, method, eligible=mask
    )
    options = {"model": drs.models.Column("rhat"), "method": method, "q": 0.1, "seed": 5}
    for given_policy in (policy, policy.probabilities):
        run = run_or_none(log_of(table, 2, 4), given_policy, horizon, **options)
        if run is None:
            assert not ref
        else:
            agree(run, ref, counts, horizon)


# The same bits


def everyone():
    policies = {name: compiled for name, (compiled, *_) in LEARNERS.items()}
    return {**policies, "fixed": drs.policies.Softmax(np.eye(4)[:, :2]), "python": naive_replay.Exp3(4, 2, gamma=0.3)}


def test_full_sets_are_no_sets():
    """Bit for bit, for every learner, in float32 and float64, with a model that is clamped."""
    rows = 150 if PLAIN else 3000
    for kind in ("float32", "float64"):
        table, mask = small_log_with_sets(2, rows, 4, 2, kind, share=1.0)
        assert mask.all()
        model = drs.models.Ridge().fit(log_of(small_log_with_sets(1, 200, 4, 2, kind)[0], 2, 4))
        options = {"q": 0.1, "clamp": (0.3, 0.6), "threads": 2}
        with_sets = drs.replay(log_of(table, 2, 4), everyone(), 10, model, **options)
        plain = drs.Log(table.drop_columns("items"), context=["x0", "x1"], actions=4)
        without = drs.replay(plain, everyone(), 10, model, **options)
        for name in everyone():
            assert bits(with_sets[name]) == bits(without[name])
            assert with_sets[name].models.clamped == without[name].models.clamped > 0


def test_the_order_of_a_set_does_not_matter():
    table, mask = small_log_with_sets(3, 400, 4, 2)
    other = table.set_column(table.column_names.index("items"), "items", lists_of(mask))
    assert other["items"] != table["items"]
    one, two = (drs.replay(log_of(t, 2, 4), everyone(), 15, drs.models.Column("rhat"), q=0.1) for t in (table, other))
    for name in everyone():
        assert bits(one[name]) == bits(two[name])


def test_threads_batches_chunks_shards_and_layouts_do_not_change_a_bit(tmp_path, monkeypatch):
    rows = 600 if PLAIN else 20_000
    table, _ = small_log_with_sets(5, rows, 4, 2, "float32")
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=rows // 7 + 1)
    model = drs.models.Ridge().fit(log_of(small_log_with_sets(1, 200, 4, 2, "float32")[0], 2, 4))

    def run(policy, batch_size=None, **options):
        log = log_of(tmp_path / "log.parquet", 2, 4, batch_size=batch_size)
        return bits(drs.replay(log, policy, 30, model, q=0.05, **options))

    names = ["epsilon", "square", "exp3"]
    for name in names[:1] if PLAIN else names:
        policy = LEARNERS[name][0]
        wanted, in_shards = run(policy, threads=1), run(policy, threads=1, shards=3)
        assert run(policy, threads=3) == wanted
        assert run(policy, threads=3, shards=3) == in_shards
        with ThreadPoolExecutor(2) as pool:
            assert run(policy, shards=3, executor=pool) == in_shards
        for size in (77, 5000):
            assert run(policy, batch_size=size, threads=2) == wanted
        with monkeypatch.context() as patch:
            patch.setattr(planning.Plan, "chunk_rows", 77)
            assert run(policy, threads=2) == wanted


def test_lanes_give_what_each_gives_alone():
    table, _ = small_log_with_sets(6, 400, 4, 2)
    runs = drs.replay(log_of(table, 2, 4), everyone(), 15, drs.models.Column("rhat"), q=0.1, seed=[0, 7], threads=2)
    for name, policy in everyone().items():
        alone = drs.replay(log_of(table, 2, 4), {name: policy}, 15, drs.models.Column("rhat"), q=0.1, seed=7, threads=1)
        assert bits(alone[name]) == bits(runs[name, 0.1, 7])


# What a result tells


def test_worst_case_c_is_the_smallest_propensity_also_of_uniform_sets():
    table, mask = small_log_with_sets(1, 500, 5, 1)
    log = drs.Log(table, context=["x0"], actions=5, propensity="uniform", eligible="items")
    run = drs.replay(log, drs.policies.UCB1(), 5, method="dr-ns-wc")
    assert run.c_max == 1 / mask.sum(axis=1).max()
    assert run.violations == 0
    assert math.isclose(run.max_weight, mask.sum(axis=1).max(), rel_tol=1)


def test_only_eligible_predictions_count_and_may_be_clamped():
    """Predictions for other actions may be anything."""
    table, mask = small_log_with_sets(4, 300, 4, 1)
    rhat = np.array(table["rhat"].to_pylist())
    wild = np.where(mask, rhat, np.resize([np.nan, np.inf, -5.0], rhat.shape))
    hidden = table.set_column(table.column_names.index("rhat"), "rhat", pa.array(list(wild)))
    runs = [
        drs.replay(
            log_of(t, 1, 4), LEARNERS[name][0], 10, drs.models.from_arrow(column, columns=["rhat"]), q=0.1,
            clamp=clamp,
        )
        for name in ("epsilon", "square", "linucb")
        for clamp in (None, (0.2, 0.7))
        for t in (table, hidden)
    ]  # fmt: skip
    for one, other in zip(runs[::2], runs[1::2], strict=True):
        assert bits(one) == bits(other)
        assert one.models.clamped == other.models.clamped
    share = ((rhat < 0.2) | (rhat > 0.7))[mask].mean()
    assert runs[2].models.clamped == pytest.approx(share)
    bad = table.set_column(table.column_names.index("rhat"), "rhat", pa.array(list(np.where(mask, np.nan, rhat))))
    with pytest.raises(drs.ModelError, match="predicts nan for action"):
        drs.replay(log_of(bad, 1, 4), drs.policies.UCB1(), 10, drs.models.from_arrow(column, columns=["rhat"]), q=0.1)


def column(batch):
    return batch.column("rhat")


# Policies in Python


class Even:
    """Takes eligible actions equally often, and writes down what it is told."""

    version = 0

    def reset(self):
        self.told = []

    def probabilities(self, X, eligible):
        assert eligible.dtype == bool
        assert not eligible.flags.writeable
        return eligible / eligible.sum(axis=1, keepdims=True)

    def update(self, x, action, reward, eligible=None):
        self.told.append((action, eligible if eligible is None else eligible.tolist()))


def test_a_python_policy_gets_the_sets_it_asks_for():
    table, mask = small_log_with_sets(8, 400, 4, 1)
    options = {"q": 0.1, "replicates": 1}
    policy = Even()
    run = drs.replay(log_of(table, 1, 4), policy, 10, **options)
    uniform = drs.replay(log_of(table, 1, 4), drs.policies.Uniform(), 10, **options)
    assert bits(run) == bits(uniform)
    sets = {tuple(row) for row in mask.tolist()}
    assert len(policy.told) == 10
    assert all(eligible[action] and tuple(eligible) in sets for action, eligible in policy.told)
    plain = drs.replay(table.drop_columns("items"), policy, 10, **options)  # all actions are eligible
    assert bits(plain) == bits(drs.replay(table.drop_columns("items"), drs.policies.Uniform(), 10, **options))
    assert {eligible for _, eligible in policy.told} == {None}


@pytest.mark.covers
def test_a_python_policy_that_asks_for_no_sets_must_respect_them():
    table, mask = small_log_with_sets(9, 200, 4, 1)

    class Blind(Even):
        def probabilities(self, X):
            return np.full((len(X), 4), 0.25)

    first = int(np.argmin(mask.all(axis=1)))
    action = int(np.argmin(mask[first]))
    with pytest.raises(drs.PolicyError, match=rf"gives action {action} the probability 0.25 at t = \d+, row {first}, "):
        drs.replay(log_of(table, 1, 4), Blind(), 10, q=0.1)
    for function in (Blind().probabilities, drs.policies.Column("rhat")):
        with pytest.raises(drs.PolicyError, match=r"where it is not eligible"):
            drs.replay(log_of(table, 1, 4), function, 10, q=0.1)


def test_retrained_acts_on_the_sets():
    from sklearn.linear_model import Ridge

    table, mask = small_log_with_sets(10, 400, 3, 2)
    events, _ = as_events(table, 2)

    class Naive:
        def reset(self):
            self.seen, self.n = [([], []) for _ in range(3)], 0
            self.train()

        def train(self):
            known = [r for _, rewards in self.seen for r in rewards]
            self.models = [
                Ridge().fit(X, r) if len(set(r)) > 1 else (r[0] if r else np.mean(known or [0.0])) for X, r in self.seen
            ]

        def probabilities(self, X, eligible):
            scores = [float(m.predict(X)[0]) if hasattr(m, "predict") else float(m) for m in self.models]
            among = np.flatnonzero(eligible[0])
            out = np.zeros((1, 3))
            out[0, among] = 0.3 / len(among)
            out[0, max(among, key=lambda a: scores[a])] += 0.7
            return out

        def update(self, x, a, r, eligible):
            self.seen[a][0].append(x)
            self.seen[a][1].append(r)
            self.n += 1
            if self.n % 5 == 0:
                self.train()

    ref, _, counts = naive_replay.replay(
        events, None, drs.uniforms(0, 0, 400), Naive(), 30, 0.1, 1.0, "dr-ns", eligible=mask
    )
    run = drs.replay(log_of(table, 2, 3), drs.policies.Retrained(Ridge(), every=5, epsilon=0.3), 30, q=0.1)
    agree(run, ref, counts, 30)


# Compiled policies of the user's own


class Own(drs.policies.Compiled):
    """Prefers actions by the sum of their rewards; with sets, and with sparse contexts."""

    def initial_state(self, n_actions, n_features):
        return np.ones(n_actions)

    @staticmethod
    def eligible_probabilities(state, x, eligible, out):
        total = 0.0
        for a in range(len(out)):
            out[a] = state[a] * eligible[a]
            total += out[a]
        for a in range(len(out)):
            out[a] /= total

    @staticmethod
    def sparse_eligible_probabilities(state, indices, values, eligible, out):
        total = 0.0
        for a in range(len(out)):
            out[a] = state[a] * eligible[a]
            total += out[a]
        for a in range(len(out)):
            out[a] /= total

    @staticmethod
    def update(state, x, action, reward):
        state[action] += reward

    @staticmethod
    def sparse_eligible_update(state, indices, values, eligible, action, reward):
        state[action] += reward


class OwnPython:
    def reset(self):
        self.state, self.version = np.ones(4), 0

    def probabilities(self, X, eligible):
        weights = self.state * eligible
        return weights / weights.sum(axis=1, keepdims=True)

    def update(self, x, action, reward):
        self.state[action] += reward
        self.version += 1


@pytest.mark.covers
def test_a_compiled_policy_of_the_users():
    """Also on a log without sets, where all actions are eligible, and with sparse contexts."""
    table, _ = small_log_with_sets(11, 400, 4, 1)
    plain = drs.Log(table.drop_columns("items"), context=["x0"], actions=4)
    sparse, *_ = sparse_log(3, 400, 4)
    for log in (log_of(table, 1, 4), plain, sparse):
        run, ref = (drs.replay(log, policy, 15, drs.models.Column("rhat"), q=0.1) for policy in (Own(), OwnPython()))
        assert run.complete == ref.complete > 1
        assert run.replicates["last_row"].to_pylist() == ref.replicates["last_row"].to_pylist()
        assert run.value == pytest.approx(ref.value, rel=1e-12)


def test_compiled_policies_that_are_refused_before_the_pass():
    table, _ = small_log_with_sets(12, 100, 4, 1)
    log, sparse = log_of(table, 1, 4), sparse_log(3, 50, 4)[0]

    class Without(drs.policies.Compiled):
        def initial_state(self, n_actions, n_features):
            return np.ones(1)

        @staticmethod
        def probabilities(state, x, out):
            out[:] = 0.25

        update = Own.update

    class Changed(drs.policies.EpsilonGreedy):
        probabilities = staticmethod(Without.probabilities)

    class Learns(drs.policies.Exp3):
        update = staticmethod(Own.update)

    class Unlearning(drs.policies.Compiled):
        initial_state = Own.initial_state
        eligible_probabilities = staticmethod(Own.eligible_probabilities)

    class Short(Own):
        @staticmethod
        def eligible_probabilities(state, x, out):
            out[:] = 0.25

    for policy, words in (
        (Without(), "'policy': Without has no static function eligible_probabilities, and the log has eligible sets"),
        (Changed(), "Changed has no static function eligible_probabilities"),
        (Learns(), "Learns has a static function update of its own, but not eligible_update"),
        (Unlearning(), "Unlearning has no static function update"),
        (Short(), r"takes \(state, x, out\); it must be a static function of \(state, x, eligible, out\)"),
    ):
        with pytest.raises(drs.PolicyError, match=words):
            drs.replay(log, policy, 5, q=0.1)
    for policy, words in (
        (drs.policies.LinUCB(), "LinUCB has no static function sparse_eligible_probabilities"),
        (Changed(), "Changed has no static function sparse_eligible_probabilities"),
    ):
        with pytest.raises(drs.PolicyError, match=words):
            drs.replay(sparse, policy, 5, q=0.1)


@pytest.mark.covers
def test_a_compiled_policy_that_leaves_the_set_is_refused_with_the_row():
    class Outside(Own):
        @staticmethod
        def eligible_probabilities(state, x, eligible, out):
            out[:] = 1.0 / len(out)

    table, mask = small_log_with_sets(13, 100, 4, 1)
    first = int(np.argmin(mask.all(axis=1)))
    with pytest.raises(
        drs.PolicyError, match=rf"the probability 0.25 at t = \d+, row {first}, where it is not eligible"
    ):
        drs.replay(log_of(table, 1, 4), Outside(), 5, q=0.1)


@pytest.mark.covers
def test_scores_that_are_no_numbers_are_refused():
    """Also where other actions have a score of minus infinity, which must not win."""
    table = pa.table(
        {
            "x0": [1.0, -1.0] * 4, "action": [1] * 8, "reward": [1e200] * 8, "propensity": [1.0] * 8,
            "items": [[1]] * 8,
        }
    )  # fmt: skip
    kinds = drs.policies.EpsilonGreedy, drs.policies.Boltzmann, drs.policies.SquareCB
    for policy in (kind(0.5, learning_rate=1e300) for kind in kinds):
        with pytest.raises(drs.PolicyError, match=r"gives (NaN|probabilities that sum).* row 1"):
            drs.replay(log_of(table, 1, 3), policy, 8, q=0.5)


def test_bad_sets_are_refused_or_skipped():
    table, _ = small_log_with_sets(14, 60, 4, 1)
    lists = table["items"].to_pylist()
    lists[7] = [a for a in range(4) if a != table["action"][7].as_py()]
    bad = table.set_column(table.column_names.index("items"), "items", pa.array(lists))
    with pytest.raises(drs.LogError, match=r"action is not in its eligible set: got .* at row 7, column 'items'"):
        drs.replay(log_of(bad, 1, 4), drs.policies.UCB1(), 3, q=0.1)
    run = drs.replay(log_of(bad, 1, 4), drs.policies.UCB1(), 3, q=0.1, on_bad_row="skip")
    assert run.skipped == {"action is not in its eligible set": 1}
    assert any("action is not in its eligible set" in str(note) for note in run.notes)


def test_policies_with_functions_for_sets_can_be_pickled():
    table, _ = small_log_with_sets(15, 60, 4, 1)
    for policy in (drs.policies.EpsilonGreedy(), drs.policies.Exp3()):
        again = pickle.loads(pickle.dumps(policy))
        assert bits(drs.replay(log_of(table, 1, 4), again, 3, q=0.1)) == bits(
            drs.replay(log_of(table, 1, 4), policy, 3, q=0.1)
        )
