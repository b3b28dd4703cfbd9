"""What every method should cover; and a few rows, skewed or heavy-tailed rewards, 100 actions, drift."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies.coverage.world import World, each
from scripts.studies.coverage.worlds.kinds import Kinds, Rewards, clicks, counts, largest, noise_t4, watch_time


def benign(rewards: Rewards = clicks, scale: float = 1.0, actions: int = 3) -> Kinds:
    rng = np.random.default_rng(1)
    mean = rng.uniform(0.1, 0.6, (8, actions)) * scale
    logging = 0.2 / actions + 0.8 * rng.dirichlet(np.full(actions, 2.0), 8)
    policies = {"best": largest(mean), "mixed": 0.1 / actions + 0.9 * rng.dirichlet(np.ones(actions), 8)}
    return Kinds(mean, logging, policies, rewards)


def minimal(rows: int) -> World:
    """Two actions, one policy, no context: as short as an example can be."""

    def draw(rng: np.random.Generator) -> pa.Table:
        action = rng.integers(0, 2, rows)
        reward = clicks(rng, np.where(action == 1, 0.06, 0.05))
        return pa.table({"action": action, "reward": reward, "propensity": np.full(rows, 0.5)})

    truth = {"one": 0.06, "logging": 0.055}
    title = f"two actions, p = 0.5, 5 % clicks, {rows:,} rows"
    return World(title, truth, each(draw), {"one": drs.policies.Constant(1)}, ("snips",), healthy=True)


def drifting(rows: int) -> World:
    """Rewards and the logging policy move through the log. The true value is that of the log's whole time."""
    of = np.linspace(0, 1, rows)
    mean = np.column_stack([0.2 + 0.2 * of, 0.4 - 0.2 * of])
    p = 0.2 + 0.6 * of

    def draw(rng: np.random.Generator) -> pa.Table:
        action = (rng.random(rows) < p).astype(np.int64)
        reward = clicks(rng, mean[np.arange(rows), action])
        x = np.zeros(rows, np.float32)
        return pa.table({"action": action, "reward": reward, "propensity": np.where(action, p, 1 - p), "x0": x})

    truth = {"first": mean[:, 0].mean(), "second": mean[:, 1].mean()}
    truth["logging"] = ((1 - p) * mean[:, 0] + p * mean[:, 1]).mean()
    policies = {"first": drs.policies.Constant(0), "second": drs.policies.Constant(1)}
    asked: dict[str, Any] = {"estimators": ("ips", "snips"), "roles": {"context": ["x0"]}}
    return World(f"rewards and logging policy drift, {rows:,} rows", truth, each(draw), policies, **asked)


WORLDS = {
    "benign-2000": benign().world("benign, 2,000 rows", 2_000, healthy=True, bound=15.0),
    "benign-20000": benign().world("benign, 20,000 rows", 20_000, healthy=True),
    "benign-50": benign().world("benign, 50 rows", 50),
    "benign-200": benign().world("benign, 200 rows", 200),
    "minimal-2000": minimal(2_000),
    "minimal-10000": minimal(10_000),
    "counts": benign(counts, 10.0).world("counts (negative binomial), 2,000 rows", 2_000, healthy=True),
    "watch-time": benign(watch_time, 60.0).world("watch time (gamma), 2,000 rows", 2_000, healthy=True),
    "noise-t4": benign(noise_t4).world("rewards with noise of t(4) and uneven scale, 2,000 rows", 2_000),
    "actions-100": benign(actions=100).world("100 actions, 20,000 rows", 20_000),
    "drift": drifting(5_000),
}
