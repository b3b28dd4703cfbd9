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


def narrowing_log(rows, seed, every=100):
    """A table of an ε-greedy learner that explores less and less, and the value of action 0, which is the worse one.

    Users are of two kinds. Those of kind 1 like action 0 less, and get it less often. The learner is told of rewards
    after every `every` events.
    """
    rng = np.random.default_rng(seed)
    likes = np.array([[0.6, 0.7], [0.1, 0.8]])
    kind = rng.integers(0, 2, rows)
    count, total = np.ones((2, 2)), np.full((2, 2), 0.5)
    pieces = []
    for start in range(0, rows, every):
        who = kind[start : start + every]
        epsilon = 0.5 ** min(start / rows * 6, 5.5) * np.array([1.0, 0.4])[who]
        mu = np.repeat(epsilon[:, None] / 2, 2, axis=1)
        mu[np.arange(len(who)), (total / count).argmax(axis=1)[who]] += 1 - epsilon
        action = (rng.random(len(who)) >= mu[:, 0]).astype(np.int32)
        reward = (rng.random(len(who)) < likes[who, action]).astype(float)
        np.add.at(count, (who, action), 1)
        np.add.at(total, (who, action), reward)
        pieces.append((action, reward, mu[np.arange(len(who)), action], mu))
    action, reward, propensity, mu = (np.concatenate(column) for column in zip(*pieces, strict=True))
    columns = {"action": action, "reward": reward, "propensity": propensity, "x0": kind.astype(float)}
    lists = pa.FixedSizeListArray.from_arrays(pa.array(mu.reshape(-1)), 2)
    return pa.table({**columns, "mu": lists}), float(likes[:, 0].mean())
