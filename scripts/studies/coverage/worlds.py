"""The simulated worlds: logs whose true values are finite sums. To add a world, add an entry to `WORLDS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr

import drstream as drs
from drstream.intervals.statistic import Constants

Floats = NDArray[np.float64]
CLICKS = (0.0, 1.0)


@dataclass(frozen=True)
class World:
    """Events of a few kinds of context, to which a policy shows one of K actions.

    reward      Mean reward (C, K) for each kind of context and action.
    logging     Probabilities (C, K) of the logging policy.
    policies    Probabilities (C, K) of the policies to evaluate.
    predicted   Rewards (C, K) that the reward model predicts. It is a poor model.
    spread      None: rewards are 0 or 1. Otherwise rewards have a beta distribution with this many pseudo-events.
    range_told  Whether the caller of `evaluate` gives the range of continuous rewards.
    per_user    Rows of a user. All of them have the same context.
    effect      A user's mean reward is higher or lower by this.
    sticky      Whether all rows of a user have the same action.
    """

    title: str
    rows: int
    reward: Floats
    logging: Floats
    policies: Mapping[str, Floats]
    predicted: Floats
    spread: float | None = None
    range_told: bool = False
    per_user: int | None = None
    effect: float = 0.0
    sticky: bool = False
    logs: int = 1000

    adaptive = False

    @property
    def cluster(self) -> str | None:
        return None if self.per_user is None else "user"

    @property
    def max_weight(self) -> float:
        """The largest weight that any policy can have."""
        ratios = [np.divide(nu, self.logging, out=np.zeros_like(nu), where=nu > 0) for nu in self.policies.values()]
        return float(max(1.0, *(ratio.max() for ratio in ratios)))

    def value(self, policy: Floats) -> float:
        return float((policy * self.reward).sum(axis=1).mean())

    @property
    def truth(self) -> dict[str | None, float]:
        """The true value of each policy. That of the logging policy has the key None."""
        return {None: self.value(self.logging)} | {name: self.value(nu) for name, nu in self.policies.items()}

    def constants(self, policies: Sequence[str], estimator: str) -> Constants:
        """Return the true constants of Theorem 3.9, the largest over some policies."""
        model = self.predicted if estimator == "dr" else np.zeros_like(self.reward)
        noise = self.reward * (1 - self.reward) / (1.0 if self.spread is None else 1 + self.spread)
        errors = noise + (self.reward - model) ** 2
        chosen = [self.policies[name] for name in policies]
        return Constants(
            model_error=float(max((nu * errors).sum(axis=1).mean() for nu in chosen)),
            value_variance=float(max((nu * self.reward).sum(axis=1).var() for nu in chosen)),
            measured=False,
        )

    def tables(self, rng: np.random.Generator, count: int) -> list[pa.Table]:
        return [self.table(rng) for _ in range(count)]

    def table(self, rng: np.random.Generator) -> pa.Table:
        """Draw a log."""
        size = self.per_user or 1
        user = np.arange(self.rows) // size
        users = int(user[-1]) + 1
        kind = rng.integers(0, len(self.reward), users)[user]
        mu = self.logging[kind]
        u = rng.random(users)[user] if self.sticky else rng.random(self.rows)
        action = np.minimum((mu.cumsum(axis=1) < u[:, None]).sum(axis=1), mu.shape[1] - 1)
        mean = self.reward[kind, action]
        if self.effect:
            mean = mean + self.effect * rng.choice([-1.0, 1.0], users)[user]
        if self.spread is None:
            reward = (rng.random(self.rows) < mean).astype(float)
        else:
            reward = rng.beta(self.spread * mean, self.spread * (1 - mean))
        columns = {"action": action, "reward": reward, "propensity": mu[np.arange(self.rows), action]}
        return pa.table({**columns, "x0": kind.astype(np.float32), "user": user})

    def log(self, table: pa.Table) -> drs.Log:
        return drs.Log(table, context=["x0"], actions=self.reward.shape[1])

    @property
    def model(self) -> Any:
        return drs.models.from_function(_look_up(self.predicted))

    @property
    def named_policies(self) -> dict[str, Any]:
        return {name: _look_up(nu) for name, nu in self.policies.items()}


def _look_up(table: Floats) -> Any:
    return lambda X: table[np.asarray(X)[:, 0].astype(np.int64)]


@dataclass(frozen=True)
class Learner(World):
    """A logging policy that learns while it logs. It records the probabilities with which it draws its actions.

    rule  "greedy": it takes the action with the larger mean so far, and another one with probability `least`.
          "thompson": it takes an action with about the probability that its mean is larger, at least `least`.
    """

    rule: str = "greedy"
    least: float = 0.05

    adaptive = True

    @property
    def max_weight(self) -> float:
        return 1 / self.least

    @property
    def truth(self) -> dict[str | None, float]:
        """The logging policy has no fixed value."""
        return {name: self.value(nu) for name, nu in self.policies.items()}

    def tables(self, rng: np.random.Generator, count: int) -> list[pa.Table]:
        """Draw logs side by side, as each event depends on the ones before."""
        wins, shown = np.full((count, 2), 0.5), np.ones((count, 2))
        each = np.arange(count)
        action = np.empty((self.rows, count), np.int64)
        reward, propensity = np.empty((2, self.rows, count))
        chance, luck = rng.random((2, self.rows, count))
        for t in range(self.rows):
            p = self._second(wins, shown)
            a = (chance[t] < p).astype(np.int64)
            r = (luck[t] < self.reward[0, a]).astype(float)
            wins[each, a] += r
            shown[each, a] += 1
            action[t], reward[t], propensity[t] = a, r, np.where(a == 1, p, 1 - p)
        x = np.zeros(self.rows, np.float32)
        return [
            pa.table({"action": action[:, i], "reward": reward[:, i], "propensity": propensity[:, i], "x0": x})
            for i in range(count)
        ]

    def _second(self, wins: Floats, shown: Floats) -> Floats:
        """Return the probability of the second action."""
        mean = wins / shown
        if self.rule == "greedy":
            return np.where(mean[:, 1] > mean[:, 0], 1 - self.least, self.least)
        variance = (mean * (1 - mean) / shown).sum(axis=1) + 1e-6
        return np.clip(ndtr((mean[:, 1] - mean[:, 0]) / np.sqrt(variance)), self.least, 1 - self.least)


def _always(action: int, kinds: int, actions: int) -> Floats:
    policy = np.zeros((kinds, actions))
    policy[:, action] = 1.0
    return policy


def _choose(actions: Floats, of: int) -> Floats:
    return np.eye(of)[np.asarray(actions, np.int64)]


def _benign(rows: int, title: str) -> World:
    rng = np.random.default_rng(1)
    reward = rng.uniform(0.1, 0.6, (8, 3))
    logging = 0.2 / 3 + 0.8 * rng.dirichlet([2.0, 2.0, 2.0], 8)
    policies = {"best": _choose(reward.argmax(axis=1), 3), "mixed": 0.1 + 0.7 * rng.dirichlet([1.0, 1.0, 1.0], 8)}
    return World(title, rows, reward, logging, policies, 0.6 * reward + 0.1)


def _heavy(rows: int, title: str, **more: Any) -> World:
    """The policy's action has propensities from 0.002 to 0.5. The other policy takes a common action."""
    kinds, actions = 8, 3
    rng = np.random.default_rng(2)
    p = np.geomspace(0.002, 0.5, kinds)
    logging = np.column_stack([p, 0.7 * (1 - p), 0.3 * (1 - p)])
    reward = rng.uniform(0.1, 0.6, (kinds, actions))
    policies = {"rare": _always(0, kinds, actions), "common": _always(1, kinds, actions)}
    return World(title, rows, reward, logging, policies, np.full((kinds, actions), 0.3), **more)


def _clicks(title: str, rate: float, predicted: float, **more: Any) -> World:
    """Three policies. With a rate of 0.5 %, they have about 5, 1.7 and 0.6 clicks each."""
    logging = np.tile([0.3, 0.1, 0.035, 0.565], (2, 1))
    reward = np.full((2, 4), rate)
    policies = {f"always {a}": _always(a, 2, 4) for a in range(3)}
    return World(title, 3329, reward, logging, policies, np.full((2, 4), predicted), **more)


def _users(per_user: int, rows: int, *, sticky: bool = False) -> World:
    rng = np.random.default_rng(4)
    reward = rng.uniform(0.3, 0.6, (4, 3))
    logging = 0.2 / 3 + 0.8 * rng.dirichlet([3.0, 3.0, 3.0], 4)
    policies = {"best": _choose(reward.argmax(axis=1), 3), "mixed": 0.1 + 0.7 * rng.dirichlet([1.0, 1.0, 1.0], 4)}
    title = f"{rows // per_user:,} users with {per_user} row{'s' * (per_user > 1)} each"
    title += ", one action a user" if sticky else ""
    more: dict[str, Any] = {"per_user": per_user, "effect": 0.25, "sticky": sticky}
    return World(title, rows, reward, logging, policies, 0.6 * reward + 0.1, **more)


def _learner(title: str, rule: str, gap: float) -> Learner:
    reward = np.array([[0.3, 0.3 + gap]])
    policies = {"first": _always(0, 1, 2), "second": _always(1, 1, 2)}
    return Learner(title, 8192, reward, np.full((1, 2), 0.5), policies, np.array([[0.4, 0.2]]), rule=rule)


WORLDS: dict[str, World] = {
    "benign-2000": _benign(2_000, "benign, 2,000 rows"),
    "benign-20000": _benign(20_000, "benign, 20,000 rows"),
    "heavy-2000": _heavy(2_000, "heavy weights, 2,000 rows"),
    "heavy-20000": _heavy(20_000, "heavy weights, 20,000 rows"),
    "heavy-40000": _heavy(40_000, "heavy weights, 40,000 rows"),
    "heavy-60000": _heavy(60_000, "heavy weights, 60,000 rows"),
    "heavy-range": _heavy(5_000, "heavy weights, rewards in [0, 1], range given", spread=2.0, range_told=True),
    "heavy-no-range": _heavy(5_000, "heavy weights, rewards in [0, 1], no range given", spread=2.0),
    "rare-clicks": _clicks("rare clicks: 0.5 % of 3,329 rows", 0.005, 0.01),
    "rare-misses": _clicks("rare non-clicks: 0.5 % of 3,329 rows", 0.995, 0.98),
    "few-clicks": _clicks("few clicks: 5 % of 3,329 rows", 0.05, 0.1),
    "users-1": _users(1, 2_000),
    "users-10": _users(10, 4_000),
    "users-50": _users(50, 5_000),
    "users-500": _users(500, 20_000),
    "users-10-sticky": _users(10, 4_000, sticky=True),
    "users-50-sticky": _users(50, 5_000, sticky=True),
    "users-500-sticky": _users(500, 20_000, sticky=True),
    "users-few": _users(50, 250),
    "users-few-sticky": _users(50, 500, sticky=True),
    "users-clicks": _clicks("rare clicks, 333 users with 10 rows each", 0.005, 0.01, per_user=10, effect=0.004),
    "users-clicks-sticky": _clicks(
        "few clicks, 333 users with 10 rows each, one action a user", 0.05, 0.1, per_user=10, effect=0.045, sticky=True
    ),
    "users-heavy-sticky": _heavy(
        5_000, "heavy weights, 500 users with 10 rows each, one action a user", per_user=10, sticky=True
    ),
    "greedy": _learner("a logging policy that learns: ε-greedy", "greedy", 0.0),
    "thompson": _learner("a logging policy that learns: Thompson", "thompson", 0.03),
}
