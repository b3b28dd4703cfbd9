"""Whoever compares many policies looks at the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from scripts.studies.coverage.world import BEST, World
from scripts.studies.coverage.worlds.kinds import Kinds, Rewards, always, clicks, lognormal


def arms(title: str, count: int, rows: int, rates: Any, rewards: Rewards = clicks) -> World:
    """Each policy always takes an action of its own."""
    policies = {f"always {a}": always(a, 1, count) for a in range(count)}
    mean = np.broadcast_to(rates, (1, count))
    kinds = Kinds(mean, np.full((1, count), 1 / count), policies, rewards)
    return kinds.world(f"{title}, {rows:,} rows", rows, asks=BEST, **about_many(count))


def about_many(count: int) -> dict[str, Any]:
    """Bands of 20 policies take 0.2 s, so there are fewer logs and estimators."""
    return {"estimators": ("ips", "snips")} if count < 20 else {"estimators": ("snips",), "logs": 500}


def alike(count: int, rows: int) -> World:
    """Policies that mostly take the same action in each of 20 kinds of contexts, so their estimates are correlated."""
    rng = np.random.default_rng(7)
    mean = np.full((20, 4), 0.2)
    common = rng.integers(0, 4, 20)
    policies = {}
    for j in range(count):
        own = np.where(rng.random(20) < 0.7, common, rng.integers(0, 4, 20))
        policies[f"policy {j}"] = np.eye(4)[own]
    kinds = Kinds(mean, np.full((20, 4), 0.25), policies, clicks)
    title = f"{count} equal policies that mostly agree, {rows:,} rows"
    return kinds.world(title, rows, asks=BEST, **about_many(count))


BETTER = np.array([0.2] * 19 + [0.26])
STEPS = np.linspace(0.15, 0.25, 10)
AMOUNTS = lognormal(1.0)

WORLDS = {
    "winners-5": arms("5 equal policies", 5, 2_000, 0.2),
    "winners-20": arms("20 equal policies", 20, 10_000, 0.2),
    "winners-better": arms("one of 20 policies is better", 20, 10_000, BETTER),
    "winners-steps": arms("10 policies, each a bit better", 10, 5_000, STEPS),
    "winners-alike": alike(20, 5_000),
    "winners-rare": arms("10 equal policies, 1 % clicks", 10, 20_000, 0.01),
    "winners-revenue": arms("10 equal policies, 5 % buy, lognormal(3, 1)", 10, 20_000, 0.05 * AMOUNTS.mean, AMOUNTS),
}
