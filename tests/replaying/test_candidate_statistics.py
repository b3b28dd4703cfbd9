"""Replays on candidates beside true online runs of the same policy, in a simulated world with fixed seeds.

The truth is the mean over true runs: the world draws a context and a set of items, the policy chooses one, the world
rewards it. "Agree" is: within 4 standard errors, those of the replay and of the truth together. They are at most 2 % of
the truth.
"""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs

pytestmark = pytest.mark.slow

HORIZON, ROWS, RUNS = 30, 120_000, 3000
FLOOR, LEAST, MOST = 0.15, 2, 4  # of the logging policy; smallest and largest number of candidates
P = drs.policies
LEARNERS = {
    "epsilon-greedy": P.EpsilonGreedy(0.2, learning_rate=0.3, interactions=True),
    "linucb": P.LinUCB(0.5, interactions=True),
}


class World:
    """Users of eight kinds, a catalogue of ten items, and a reward that depends on products of their features."""

    def __init__(self):
        rng = np.random.default_rng(5)
        self.kinds, self.items = rng.standard_normal((8, 2)), rng.standard_normal((10, 2))
        self.taste, self.habit = 1.5 * rng.standard_normal((2, 2)), rng.standard_normal((2, 2))

    def draw(self, rows, seed):
        """Kinds of users, catalogue numbers of as many candidates as an event may have, and how many it has."""
        rng = np.random.default_rng(seed)
        sets = rng.random((rows, len(self.items))).argsort(axis=1)[:, :MOST]
        return rng.integers(0, len(self.kinds), rows), sets, rng.integers(LEAST, MOST + 1, rows)

    def reward(self, X, Z):
        """The probability (n, m) of a click."""
        return 1 / (1 + np.exp(0.5 - np.einsum("ni,ij,nmj->nm", X, self.taste, Z)))

    def log(self, rows, seed):
        kinds, sets, sizes = self.draw(rows, seed)
        rng = np.random.default_rng(seed + 1)
        X, Z, there = self.kinds[kinds], self.items[sets], np.arange(MOST) < sizes[:, None]
        scores = np.where(there, np.exp(np.einsum("ni,ij,nmj->nm", X, self.habit, Z)), 0.0)
        mu = np.where(there, FLOOR + (1 - FLOOR * sizes[:, None]) * scores / scores.sum(axis=1, keepdims=True), 0.0)
        action = np.minimum((mu.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1), sizes - 1)
        chosen = np.arange(rows), action
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        features = pa.FixedSizeListArray.from_arrays(Z[there].ravel(), 2)
        table = pa.table(
            {
                "x0": X[:, 0],
                "x1": X[:, 1],
                "z": pa.ListArray.from_arrays(starts, features),
                "action": action,
                "reward": (rng.random(rows) < self.reward(X, Z)[chosen]).astype(float),
                "propensity": mu[chosen],
            }
        )
        return drs.Log(table, candidates=drs.Candidates(features="z"))

    def online(self, policy, log):
        """Cumulative rewards of true runs."""
        bound = policy.bind_to(log, "policy")
        probabilities, update = bound.functions("policy")
        initial = bound.initial_state(2, 2)
        kinds, sets, sizes = self.draw(RUNS * HORIZON, 100)
        X, Z = self.kinds[kinds], self.items[sets]
        chance, draws = self.reward(X, Z), np.random.default_rng(101).random((RUNS * HORIZON, 2))
        rewards, out = np.empty(RUNS * HORIZON), np.empty(MOST)
        for i in range(RUNS * HORIZON):
            state = initial.copy() if i % HORIZON == 0 else state  # noqa: F821
            z, pi = Z[i, : sizes[i]], out[: sizes[i]]
            probabilities(state, X[i], z, pi)
            k = min(int(np.searchsorted(pi.cumsum(), draws[i, 0], side="right")), sizes[i] - 1)
            rewards[i] = draws[i, 1] < chance[i, k]
            update(state, X[i], z[k], rewards[i])
        return rewards.reshape(RUNS, HORIZON).sum(axis=1)


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def log(world):
    return world.log(ROWS, 1)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_replays_agree_with_true_online_runs(world, log, name):
    policy = LEARNERS[name]
    totals = world.online(policy, log)
    truth, error = totals.mean(), totals.std(ddof=1) / np.sqrt(RUNS)

    def wrong(X, Z, starts):  # a reward model need not be right
        sizes = np.diff(starts)
        right = 1 / (1 + np.exp(0.5 - np.einsum("ni,ij,nj->n", np.repeat(X, sizes, axis=0), world.taste, Z)))
        return 0.5 * right + 0.2

    model = drs.models.from_function(wrong)
    for options in ({"method": "rs"}, {"method": "dr-ns-wc"}, {"method": "dr-ns-wc", "model": model}):
        run = drs.replay(log, policy, HORIZON, c=FLOOR, **options)
        each = run.replicates["cumulative"].to_numpy()
        combined = np.hypot(each.std(ddof=1) / np.sqrt(len(each)), error)
        assert combined < 0.02 * truth
        assert abs(run.cumulative - truth) < 4 * combined, (options, run.cumulative, truth, combined)
    usual = drs.replay(log, policy, HORIZON, model)  # twice its 95 % interval is about 4 standard errors
    assert abs(usual.value - truth / HORIZON) < usual.high - usual.low + 4 * error / HORIZON
    assert usual.high - usual.low < 0.05 * usual.value
    uniform = drs.evaluate(log, P.Uniform(), estimators="ips")["ips"]
    assert truth / HORIZON > uniform.value + 10 * uniform.stderr  # it learns, or nothing would be shown


def test_a_fixed_policy_agrees_with_evaluate(log):
    policy = P.Softmax([0.0, 0.0, 1.0, -1.0], interactions=[[1.0, 0.5], [-0.5, 1.0]])
    dr = drs.evaluate(log, policy, drs.models.Ridge(interactions=True), ["dr"], crossfit=2)["dr"]
    run = drs.replay(log, policy, HORIZON, drs.models.Ridge(interactions=True), crossfit=2, method="dr-ns-wc", c=FLOOR)
    assert run.stderr < 0.01 * dr.value
    assert abs(run.value - dr.value) < 4 * np.hypot(run.stderr, dr.stderr)
