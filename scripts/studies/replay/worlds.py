"""The cells of the study: worlds, logging policies, learners and horizons; and the logs that are simulated."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import drstream as drs
from drstream.types import Floats

FEATURES = 5
ACTIONS = (3, 10, 20, 50)
HORIZONS = (100, 500, 1000)
LOGGERS = ("uniform", "softmax", "epsilon-greedy")
EXPLORATION = 0.3  # of the ε-greedy logging policy
WORLD_SEED = 100  # of the world with K actions: this + K. Other worlds served to choose the method's constants


class Tally:
    """A policy in Python: the action with the best mean reward so far, looked up every ten updates; or a random one."""

    def __init__(self, n_actions: int) -> None:
        self.n_actions = n_actions

    def reset(self) -> None:
        self.sums, self.counts = np.full(self.n_actions, 0.5), np.ones(self.n_actions)
        self.updates = self.version = self.best = 0

    def probabilities(self, X: Any) -> Floats:
        out = np.full((len(X), self.n_actions), 0.2 / self.n_actions)
        out[:, self.best] += 0.8
        return out

    def update(self, x: Any, action: int, reward: float) -> None:
        self.sums[action] += reward
        self.counts[action] += 1
        self.updates += 1
        if self.updates % 10 == 0:
            self.best = int(np.argmax(self.sums / self.counts))
            self.version += 1


def learners(n_actions: int) -> dict[str, Any]:
    return {
        "LinUCB": drs.policies.LinUCB(),
        "EpsilonGreedy": drs.policies.EpsilonGreedy(),
        "UCB1": drs.policies.UCB1(),
        "SquareCB": drs.policies.SquareCB(),
        "Python": Tally(n_actions),
    }


class Cell(NamedTuple):
    actions: int
    horizon: int
    logger: str

    @property
    def rows(self) -> int:
        """About ten replicates of a deterministic policy under uniform logging, if that is not too many."""
        return min(max(10 * self.horizon * self.actions, 20_000), 300_000)


CELLS = [Cell(*cell) for cell in itertools.product(ACTIONS, HORIZONS, LOGGERS)]


def world_of(n_actions: int) -> drs.synth.World:
    return drs.synth.World(n_actions=n_actions, n_features=FEATURES, seed=WORLD_SEED + n_actions)


def propensities(world: drs.synth.World, logger: str) -> Floats:
    """The logging policy's probabilities for each kind of user."""
    assert world.kinds is not None
    if logger == "softmax":
        return world.logging(world.kinds)
    if logger == "uniform":
        return np.full((len(world.kinds), world.n_actions), 1 / world.n_actions)
    scores = np.asarray(world.kinds, np.float64) @ world.habit.T
    mu = np.full(scores.shape, EXPLORATION / world.n_actions)
    mu[np.arange(len(mu)), scores.argmax(axis=1)] += 1 - EXPLORATION
    return mu


def table(world: drs.synth.World, logger: str, rows: int, seed: int) -> pa.Table:
    assert world.kinds is not None
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(world.kinds), size=rows, p=world.frequency)
    mu = propensities(world, logger)[kind]
    action = np.minimum((mu.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1), world.n_actions - 1)
    reward = (rng.random(rows) < world.reward(world.kinds)[kind, action]).astype(np.float64)
    columns = {"action": action.astype(np.int32), "reward": reward, "propensity": mu[np.arange(rows), action]}
    return pa.table({**columns, **{f"x{j}": world.kinds[kind, j] for j in range(world.n_features)}})
