"""Logs whose logging policy learned as it went: an ε-greedy learner for each kind of user."""

import numpy as np
import pyarrow as pa

REWARDS = (0.3, 0.5)  # of the two actions, for every kind of user


def learned_log(kinds, visits, epsilon, seed):
    """A table in the order of time. In each round, every kind of user comes once; its context is one-hot.

    For each kind, the logger takes the action with the larger mean reward so far (0.5 if unknown), and any action with
    probability epsilon. `mu` has the propensities of both actions.
    """
    rng = np.random.default_rng(seed)
    who, count, total = np.arange(kinds), np.zeros((kinds, 2)), np.zeros((kinds, 2))
    rounds = []
    for _ in range(visits):
        mean = np.where(count > 0, total / np.maximum(count, 1), 0.5)
        mu = np.full((kinds, 2), epsilon / 2)
        mu[who, mean.argmax(axis=1)] += 1 - epsilon
        action = (rng.random(kinds) >= mu[:, 0]).astype(np.int32)
        reward = (rng.random(kinds) < np.array(REWARDS)[action]).astype(float)
        count[who, action] += 1
        total[who, action] += reward
        rounds.append((action, reward, mu[who, action], mu))
    action, reward, propensity, mu = (np.concatenate(column) for column in zip(*rounds, strict=True))
    contexts = np.tile(np.eye(kinds, dtype=np.float32), (visits, 1)).reshape(-1)
    x = pa.FixedSizeListArray.from_arrays(pa.array(contexts), kinds)
    columns = {"action": action, "reward": reward, "propensity": propensity}
    return pa.table({**columns, "mu": pa.FixedSizeListArray.from_arrays(pa.array(mu.reshape(-1)), 2), "x": x})
