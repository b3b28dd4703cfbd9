"""The same bits however a replay on candidates is run; and what a log with known actions gives, if it says the same."""

import math
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.replaying import offered
from drstream.replaying import plan as planning
from tests.helpers import candidate_replays, naive_replay
from tests.helpers.candidate_replays import CANDIDATES, Shared, small_log
from tests.helpers.crossed import meeting
from tests.helpers.passes import PLAIN
from tests.helpers.replays import bits

P = drs.policies
ROWS = 400 if PLAIN else 6000
HORIZON = 20
POLICIES = {
    "greedy": P.EpsilonGreedy(0.2, interactions=True),
    "ucb": P.LinUCB(0.5),
    "fixed": P.Softmax(np.arange(-5.0, 7.0) / 9, interactions=np.ones((9, 3)) / 7),
    "column": P.Column("pi"),
    "python": Shared(naive_replay.EpsilonGreedy, epsilon=0.3),
}


def open_log(source, **options):
    return candidate_replays.open_log(source, 9, **options)


@pytest.fixture(scope="module")
def table():
    return small_log(3, ROWS, 9, kind="float32")[0]


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge(interactions=True).fit(open_log(small_log(4, 200, 9, kind="float32")[0]))


def few(log):
    """A part of the log, for policies in Python."""
    return log.rows_before(1500)


@pytest.mark.parametrize("name", list(POLICIES))
def test_threads_batches_chunks_and_row_groups_do_not_change_a_bit(name, table, model, tmp_path, monkeypatch):
    def run(log, **options):
        return bits(drs.replay(few(log), POLICIES[name], HORIZON, model, q=0.05, **options))

    whole, groups = tmp_path / "whole.parquet", tmp_path / "groups.parquet"
    pq.write_table(table, whole)
    pq.write_table(table, groups, row_group_size=ROWS // 7 + 1)
    wanted = run(open_log(table), threads=1)
    assert run(open_log(whole), threads=3) == wanted
    assert run(open_log(whole, batch_size=77), threads=2) == wanted
    assert run(open_log(groups), threads=3) == wanted
    monkeypatch.setattr(offered, "FLAT_BYTES", 3000)
    monkeypatch.setattr(planning, "LEAST_CHUNK", 32)
    assert run(open_log(groups), threads=2) == wanted


def test_chunks_have_a_bound_on_their_candidates(table, monkeypatch):
    sizes = []
    chunk = offered.OfferedPreparation.chunk

    def seen(self, block, spaces):
        sizes.append((len(block), block.candidates.count, self.candidate_bytes))
        return chunk(self, block, spaces)

    monkeypatch.setattr(offered.OfferedPreparation, "chunk", seen)
    monkeypatch.setattr(offered, "FLAT_BYTES", 100)
    drs.replay(few(open_log(table)), POLICIES["greedy"], HORIZON, q=0.05)
    assert all(candidates * each <= 100 or events == 1 for events, candidates, each in sizes)
    assert max(events for events, *_ in sizes) > 1
    assert any(candidates * each > 100 for _, candidates, each in sizes)


def test_lanes_give_what_each_gives_alone(table, model):
    log = few(open_log(table))
    runs = drs.replay(log, POLICIES, HORIZON, model, q=[0.0, 0.1], seed=[0, 7], threads=3)
    assert len(runs) == 20
    for name, policy in POLICIES.items():
        alone = drs.replay(log, {name: policy}, HORIZON, model, q=0.1, seed=7, threads=1)
        assert bits(alone[name]) == bits(runs[name, 0.1, 7])


def test_the_default_grid_is_a_result_like_any_other(table, model):
    log = open_log(table)
    run = drs.replay(few(log), POLICIES["greedy"], 10, model)
    assert sorted(run.grid["bias"].to_pylist()) == [0.01, 0.02, 0.05, 0.1]
    assert math.isfinite(run.value)
    assert run.low < run.value < run.high
    again = drs.replay(few(log), POLICIES["greedy"], 10, model, threads=1)
    assert run.to_json() == again.to_json()
    assert "10 steps" in str(run)


def test_shards_are_replayed_apart_and_merged(table, tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 4)
    log = open_log(path)
    run = drs.replay(log, POLICIES["greedy"], HORIZON, q=0.05, shards=2, threads=2)
    halves = table.slice(0, ROWS // 2), table.slice(ROWS // 2)
    first = drs.replay(open_log(halves[0]), POLICIES["greedy"], HORIZON, q=0.05)
    values = run.replicates["average"].to_pylist()
    assert values[: first.complete] == first.replicates["average"].to_pylist()
    assert len(values) > first.complete
    if not PLAIN:
        with ProcessPoolExecutor(1) as pool:
            there = drs.replay(log, POLICIES["greedy"], HORIZON, q=0.05, shards=2, executor=pool)
        assert bits(there) == bits(run)


@pytest.mark.covers
def test_constant_multipliers_models_by_fold_clamps_and_propensities_of_a_policy(table):
    log = few(open_log(table))
    for method in ("rs", "dr-ns-wc"):
        run = drs.replay(log, POLICIES["greedy"], HORIZON, method=method)
        assert run.complete > 0
    model = drs.models.Ridge()
    by_fold = drs.replay(log, POLICIES["greedy"], HORIZON, model, crossfit=3, q=0.05)
    assert math.isfinite(by_fold.models.r2)
    assert "cross-fitted" in str(by_fold)
    same = drs.replay(log, POLICIES["greedy"], HORIZON, model, crossfit=3, q=0.05, clamp=(0.0, 0.47))
    assert 0 < same.models.clamped < 1
    assert same.value != by_fold.value
    uniform = drs.replay(log.without_propensities(), POLICIES["greedy"], HORIZON, q=0.05, propensity=P.Uniform())
    sizes = [len(items) for items in table["items"].to_pylist()]
    known = table.set_column(table.column_names.index("propensity"), "propensity", pa.array([1 / n for n in sizes]))
    wanted = drs.replay(few(open_log(known)), POLICIES["greedy"], HORIZON, q=0.05)
    assert bits(uniform) == bits(wanted)
    estimated = {"propensity": drs.models.Propensity(), "crossfit": 2}
    for method in ("dr-ns", "dr-ns-wc"):
        run = drs.replay(log.without_propensities(), POLICIES["greedy"], 10, method=method, **estimated)
        assert run.models.estimated_propensities
        assert 0 < run.models.least_propensity < 1
    forward = drs.replay(log, POLICIES["greedy"], 10, model, crossfit="forward:100")
    assert forward.models.unpredicted == 100


# Logs with known actions

ACTIONS, D, WIDTH = 4, 2, 3


class Items(P.Compiled):
    """A policy with known actions, whose features it carries: ε-greedy with weights that all actions share."""

    def __init__(self, items, epsilon, rate):
        self.items, self.epsilon, self.rate = items, epsilon, rate

    def initial_state(self, n_actions, n_features):
        weights = np.zeros(n_features + self.items.shape[1] + 1)
        return np.concatenate([[self.epsilon, self.rate, self.items.shape[1]], self.items.ravel(), weights])

    @staticmethod
    def probabilities(state, x, out):
        width = int(state[2])
        w = 3 + out.shape[0] * width
        for a in range(out.shape[0]):
            score = state[w + x.shape[0] + width]
            for j in range(x.shape[0]):
                score += state[w + j] * x[j]
            for j in range(width):
                score += state[w + x.shape[0] + j] * state[3 + a * width + j]
            out[a] = score
        top = out[0]
        for a in range(out.shape[0]):
            top = max(top, out[a])
        best = 0
        for a in range(out.shape[0]):
            best += out[a] == top
        for a in range(out.shape[0]):
            out[a] = state[0] / out.shape[0] + (out[a] == top) * (1.0 - state[0]) / best

    @staticmethod
    def update(state, x, action, reward):
        width = int(state[2])
        w = state.shape[0] - x.shape[0] - width - 1
        score = state[w + x.shape[0] + width]
        size = 1.0
        for j in range(x.shape[0]):
            score += state[w + j] * x[j]
            size += x[j] * x[j]
        for j in range(width):
            z = state[3 + action * width + j]
            score += state[w + x.shape[0] + j] * z
            size += z * z
        pace = state[1] * (reward - score) / (1.0 + state[1] * size)
        for j in range(x.shape[0]):
            state[w + j] += pace * x[j]
        for j in range(width):
            state[w + x.shape[0] + j] += pace * state[3 + action * width + j]
        state[w + x.shape[0] + width] += pace


class Rows(P.Compiled):
    """A policy with known actions that has weights for each of them, without an intercept: a softmax."""

    def initial_state(self, n_actions, n_features):
        return np.zeros(n_actions * n_features)

    @staticmethod
    def probabilities(state, x, out):
        total = 0.0
        for a in range(out.shape[0]):
            score = 0.0
            for j in range(x.shape[0]):
                score += state[a * x.shape[0] + j] * x[j]
            out[a] = np.exp(score)
            total += out[a]
        for a in range(out.shape[0]):
            out[a] /= total

    @staticmethod
    def update(state, x, action, reward):
        for j in range(x.shape[0]):
            state[action * x.shape[0] + j] += 0.1 * (reward - 0.4) * x[j]


class Products(P.CompiledShared):
    """`Rows` for items: weights of all products x_j z_i, without an intercept."""

    def initial_state(self, n_context, n_item_features):
        return np.zeros(n_item_features * n_context)

    @staticmethod
    def probabilities(state, x, Z, out):
        total = 0.0
        for a in range(out.shape[0]):
            score = 0.0
            for i in range(Z.shape[1]):
                for j in range(x.shape[0]):
                    score += state[i * x.shape[0] + j] * x[j] * Z[a, i]
            out[a] = np.exp(score)
            total += out[a]
        for a in range(out.shape[0]):
            out[a] /= total

    @staticmethod
    def update(state, x, z, reward):
        for i in range(z.shape[0]):
            for j in range(x.shape[0]):
                state[i * x.shape[0] + j] += 0.1 * (reward - 0.4) * x[j] * z[i]


def both(items, rows=ROWS // 2):
    """A log with known actions, and the same log with candidates: all of them, in every event."""
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            **{f"x{j}": rng.standard_normal(rows) for j in range(D)},
            "action": rng.integers(0, ACTIONS, rows),
            "reward": rng.choice([0.0, 1.0, 0.4], rows),
            "propensity": rng.choice([1.0, 0.5, 0.25, 0.9], rows),
            "rhat": list(rng.random((rows, ACTIONS))),
            "pi": list(rng.dirichlet(np.ones(ACTIONS), rows)),
            "items": [list(range(ACTIONS))] * rows,
            "z": [items.tolist()] * rows,
        }
    )
    context = [f"x{j}" for j in range(D)]
    return drs.Log(table, context=context, actions=ACTIONS), drs.Log(table, context=context, candidates=CANDIDATES)


ONE_HOT = np.eye(ACTIONS)
ITEMS = np.random.default_rng(6).standard_normal((ACTIONS, WIDTH))


@meeting(
    1,
    case=[
        (ONE_HOT, P.Column("pi"), P.Column("pi")),
        (ONE_HOT, P.Uniform(), P.Uniform()),
        (ONE_HOT, Rows(), Products()),  # weights by action
        (ITEMS, Items(ITEMS, 0.3, 0.1), P.EpsilonGreedy(0.3, learning_rate=0.1)),  # shared weights
    ],
    options=[{"q": 0.05}, {"bias": 0.05}, {"method": "rs"}, {"method": "dm", "q": 0.1}],
)
def test_a_log_with_known_actions_gives_the_same(case, options):
    items, known, offered = case
    dense, candidates = both(items)
    model = drs.models.Column("rhat")
    ref = drs.replay(dense, known, 6, model, **options)
    got = drs.replay(candidates, offered, 6, model, **options)
    assert got.complete == ref.complete > 1
    assert got.acceptance == ref.acceptance
    for name in ref.replicates.column_names:
        np.testing.assert_allclose(got.replicates[name], ref.replicates[name], rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(got.curve["reward"], ref.curve["reward"], rtol=1e-9)
    if isinstance(known, P.Column):
        assert repr(got.replicates.to_pydict()) == repr(ref.replicates.to_pydict())
