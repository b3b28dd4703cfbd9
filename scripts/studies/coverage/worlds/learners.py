"""Logging policies that learn while they log. They record the probabilities with which they draw their actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from scripts.studies.coverage.world import LOGGING, Floats, World
from scripts.studies.coverage.worlds.kinds import Kinds, always, clicks, largest

KINDS, FEATURES = 6, 3


@dataclass(frozen=True)
class Learner:
    """A rule that learns, in logs side by side, as each event depends on those before.

    rule   "linucb": a linear model for each action, with one feature for each of three coordinates.
           "greedy": the action with the largest mean so far.
           "thompson": an action of two, with about the probability that its mean is larger.
    least  The smallest probability of an action.
    """

    rule: str
    mean: Floats
    least: float
    width: float = 1.0  # of LinUCB

    def tables(self, rng: np.random.Generator, count: int, rows: int) -> Iterator[pa.Table]:
        kinds, actions = self.mean.shape
        places = np.random.default_rng(8).normal(size=(kinds, FEATURES)) / np.sqrt(FEATURES)
        state = _State.new(count, actions)
        each = np.arange(count)
        action = np.empty((rows, count), np.int64)
        reward, propensity = np.empty((2, rows, count))
        kind = rng.integers(0, kinds, (rows, count))
        chance, luck = rng.random((2, rows, count))
        for t in range(rows):
            x = places[kind[t]]
            p = self.least + (1 - actions * self.least) * self._wanted(state, x)
            a = np.minimum((p.cumsum(axis=1) < chance[t][:, None]).sum(axis=1), actions - 1)
            r = (luck[t] < self.mean[kind[t], a]).astype(float)
            action[t], reward[t], propensity[t] = a, r, p[each, a]
            state.learn(each, a, r, x if self.rule == "linucb" else None)
        for i in range(count):
            of_log = {"action": action[:, i], "reward": reward[:, i], "propensity": propensity[:, i]}
            yield pa.table({**of_log, "x0": kind[:, i].astype(np.float32)})

    def _wanted(self, state: _State, x: Floats) -> Floats:
        """Return what it would do without the smallest probability."""
        mean = state.wins / state.shown
        if self.rule == "thompson":
            variance = (mean * (1 - mean) / state.shown).sum(axis=1) + 1e-6
            second = ndtr((mean[:, 1] - mean[:, 0]) / np.sqrt(variance))
            return np.column_stack([1 - second, second])
        if self.rule == "linucb":
            ax = np.einsum("nkij,nj->nki", state.inverse, x)
            mean = np.einsum("nki,nki->nk", ax, state.sums)
            mean = mean + self.width * np.sqrt(np.einsum("nki,ni->nk", ax, x))
        return np.eye(mean.shape[1])[mean.argmax(axis=1)]


@dataclass
class _State:
    wins: Floats
    shown: Floats
    inverse: Floats
    sums: Floats

    @classmethod
    def new(cls, count: int, actions: int) -> _State:
        inverse = np.broadcast_to(np.eye(FEATURES), (count, actions, FEATURES, FEATURES)).copy()
        return cls(np.full((count, actions), 0.5), np.ones((count, actions)), inverse, np.zeros(inverse.shape[:-1]))

    def learn(self, each: Any, a: Any, r: Floats, x: Floats | None) -> None:
        self.wins[each, a] += r
        self.shown[each, a] += 1
        if x is not None:
            inverse = self.inverse[each, a]
            ax = np.einsum("nij,nj->ni", inverse, x)
            self.inverse[each, a] = (
                inverse - ax[:, :, None] * ax[:, None, :] / (1 + (ax * x).sum(axis=1))[:, None, None]
            )
            self.sums[each, a] += r[:, None] * x


def world(title: str, rule: str, rows: int, mean: Floats, least: float) -> World:
    kinds, actions = mean.shape
    other = {"best": largest(mean)} if kinds > 1 else {"always 1": always(1, kinds, actions)}
    policies = {**other, "always 0": always(0, kinds, actions)}
    of_kinds = Kinds(mean, np.full(mean.shape, 1 / actions), policies, clicks, np.full(mean.shape, 0.3))
    learner = Learner(rule, mean, least)
    found = of_kinds.world(f"{title}, {rows:,} rows", rows)
    truth = {name: value for name, value in found.truth.items() if name != LOGGING}  # it has no fixed value
    return World(
        found.title,
        truth,
        lambda rng, count: learner.tables(rng, count, rows),
        found.policies,
        roles=found.roles,
        more=found.more,
    )


LINEAR = np.random.default_rng(9).uniform(0.1, 0.5, (KINDS, 3))
EQUAL, GAP = np.full((1, 3), 0.3), np.array([[0.3, 0.35]])

WORLDS = {
    "linucb-300": world("LinUCB, ε = 0.1", "linucb", 300, LINEAR, 0.1 / 3),
    "linucb-1000": world("LinUCB, ε = 0.1", "linucb", 1_000, LINEAR, 0.1 / 3),
    "greedy-500": world("ε-greedy, ε = 0.15, equal actions", "greedy", 500, EQUAL, 0.05),
    "greedy-5000": world("ε-greedy, ε = 0.15, equal actions", "greedy", 5_000, EQUAL, 0.05),
    "thompson-500": world("Thompson, p at least 0.05", "thompson", 500, GAP, 0.05),
    "thompson-5000": world("Thompson, p at least 0.05", "thompson", 5_000, GAP, 0.05),
}
