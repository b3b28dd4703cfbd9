"""Worlds of events of a few kinds, so that true values are finite sums; and what rewards can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

import drstream as drs
from scripts.studies.coverage.world import LOGGING, Floats, World, each

Rewards = Callable[[np.random.Generator, Floats], Floats]  # rewards of these means


@dataclass(frozen=True)
class Kinds:
    """Events of a few kinds of context, to which a policy shows one of K actions.

    mean       Mean reward (C, K) for each kind of context and action.
    logging    Probabilities (C, K) of the logging policy.
    policies   Probabilities (C, K) of the policies to evaluate.
    rewards    Draws rewards of given means.
    predicted  Rewards (C, K) that the reward model predicts; a poor model by default.
    """

    mean: Floats
    logging: Floats
    policies: Mapping[str, Floats]
    rewards: Rewards
    predicted: Floats | None = None

    @property
    def truth(self) -> dict[str, float]:
        policies = {**self.policies, LOGGING: self.logging}
        return {name: float((nu * self.mean).sum(axis=1).mean()) for name, nu in policies.items()}

    def table(self, rng: np.random.Generator, rows: int) -> pa.Table:
        kind = rng.integers(0, len(self.mean), rows)
        mu = self.logging[kind]
        action = drawn(rng, mu)
        reward = self.rewards(rng, self.mean[kind, action])
        p = mu[np.arange(rows), action]
        return pa.table({"action": action, "reward": reward, "propensity": p, "x0": kind.astype(np.float32)})

    @property
    def asked(self) -> dict[str, Any]:
        """What a world of these events asks: all of it but its logs."""
        predicted = 0.6 * self.mean + 0.3 * self.mean.mean() if self.predicted is None else self.predicted
        return {
            "truth": self.truth,
            "policies": {name: look_up(nu) for name, nu in self.policies.items()},
            "roles": {"context": ["x0"], "actions": self.mean.shape[1]},
            "more": {"model": drs.models.from_function(look_up(predicted))},
        }

    def world(self, title: str, rows: int, *, more: Mapping[str, Any] | None = None, **about: Any) -> World:
        asked = self.asked
        asked["more"] |= more or {}
        return World(title, draw=each(lambda rng: self.table(rng, rows)), **asked, **about)


def drawn(rng: np.random.Generator, probabilities: Floats) -> Any:
    """Draw an action for each row of probabilities."""
    u = rng.random(len(probabilities))[:, None]
    return np.minimum((probabilities.cumsum(axis=1) < u).sum(axis=1), probabilities.shape[1] - 1)


def look_up(table: Floats) -> Any:
    return lambda X: table[np.asarray(X)[:, 0].astype(np.int64)]


def always(action: int, kinds: int, actions: int) -> Floats:
    policy = np.zeros((kinds, actions))
    policy[:, action] = 1.0
    return policy


def largest(scores: Floats) -> Floats:
    return np.eye(scores.shape[1])[scores.argmax(axis=1)]


# What rewards can be


def clicks(rng: np.random.Generator, mean: Floats) -> Floats:
    return (rng.random(mean.shape) < mean).astype(float)


def beta(rng: np.random.Generator, mean: Floats) -> Floats:
    """In [0, 1], and mostly near the ends."""
    return rng.beta(2 * mean, 2 * (1 - mean))


def counts(rng: np.random.Generator, mean: Floats) -> Floats:
    return rng.negative_binomial(0.3, 0.3 / (0.3 + mean)).astype(float)


def watch_time(rng: np.random.Generator, mean: Floats) -> Floats:
    return rng.gamma(0.5, 2 * mean)


def noise_t4(rng: np.random.Generator, mean: Floats) -> Floats:
    """Both tails are heavy."""
    return mean + np.exp(1.2 * rng.standard_normal(mean.shape)) * rng.standard_t(4, mean.shape)


@dataclass(frozen=True)
class Amounts:
    """What buyers pay. A mean reward is the probability to buy times the mean amount.

    mean  The mean amount.
    draw  Draws some amounts.
    """

    mean: float
    draw: Callable[[np.random.Generator, int], Floats]

    def __call__(self, rng: np.random.Generator, mean: Floats) -> Floats:
        return (rng.random(mean.shape) < mean / self.mean) * self.draw(rng, len(mean))


def lognormal(spread: float, most: float = np.inf, center: float = 3.0) -> Amounts:
    """exp(normal), and not more than `most`."""
    mean = np.exp(center + spread**2 / 2)
    if np.isfinite(most):
        z = (np.log(most) - center) / spread
        mean = mean * ndtr(z - spread) + most * ndtr(-z)
    return Amounts(float(mean), lambda rng, n: np.minimum(np.exp(center + spread * rng.standard_normal(n)), most))


def pareto(index: float, most: float = np.inf) -> Amounts:
    """From 10 to `most`; without a variance below an index of 2."""
    mean = 10 * (1 + (1 - (most / 10) ** (1 - index)) / (index - 1))
    return Amounts(mean, lambda rng, n: np.minimum(10 * (1 - rng.random(n)) ** (-1 / index), most))


def refunds(of: Amounts, share: float = 0.1) -> Amounts:
    return Amounts(
        of.mean * (1 - 2 * share), lambda rng, n: of.draw(rng, n) * np.where(rng.random(n) < share, -1.0, 1.0)
    )


def prices(amounts: list[float], shares: list[float]) -> Amounts:
    return Amounts(float(np.dot(amounts, shares)), lambda rng, n: rng.choice(amounts, n, p=shares))
