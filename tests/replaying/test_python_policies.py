"""Policies in Python: when they are asked, what they see, and scikit-learn models that are trained again."""

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.replaying import lanes
from tests.helpers import naive_replay
from tests.helpers.logs import world
from tests.helpers.replays import agree, as_events, bits, small_log

# Python policies


class Counting(naive_replay.EpsilonGreedy):
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
    ref, accepted, counts = naive_replay.replay(events, None, drs.uniforms(0, 0, 2000), naive, 40, 0.1, 1.0, "dr-ns")
    agree(run, ref, counts, 40)
    assert lazy.calls < len(accepted) / 4 + run.complete + run.events / lanes.LEAST_AHEAD
    assert naive.calls == run.events


def test_a_policy_without_version_is_asked_after_every_acceptance():
    class NoVersion(naive_replay.UCB1):
        def reset(self):
            super().reset()
            del self.version

        def update(self, x, action, reward):
            self.learn(x, action, reward)
            self.n += 1

    log = drs.Log(small_log(2, 1000, 3, 1), actions=3, context=["x0"])
    wanted = drs.replay(log, naive_replay.UCB1(3, 1), 20, q=0.1)
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
    drs.replay(drs.Log(table), Look(), 3, q=0.01)
    assert seen == ["reset", ([1.0], 1, 1.0), ([2.0], 0, 2.0), ([3.0], 1, 3.0), "reset"]


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
    ref, _, counts = naive_replay.replay(
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
