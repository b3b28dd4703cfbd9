"""Heavy importance weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies.coverage.world import World, each
from scripts.studies.coverage.worlds.kinds import Kinds, Rewards, always, beta, clicks


def heavy(rows: int, title: str, rewards: Rewards = clicks, **more: Any) -> World:
    """The policy's action has propensities from 0.002 to 0.5. The other policy takes a common action."""
    kinds, actions = 8, 3
    p = np.geomspace(0.002, 0.5, kinds)
    logging = np.column_stack([p, 0.7 * (1 - p), 0.3 * (1 - p)])
    mean = np.random.default_rng(2).uniform(0.1, 0.6, (kinds, actions))
    policies = {"rare": always(0, kinds, actions), "common": always(1, kinds, actions)}
    return Kinds(mean, logging, policies, rewards, np.full((kinds, actions), 0.3)).world(title, rows, **more)


def lognormal_weights(rows: int, spread: float, rate: float) -> World:
    """The policy's probabilities stand in a column. Weights are exp(normal), and have a mean of 1."""

    def draw(rng: np.random.Generator) -> pa.Table:
        w = np.exp(spread * rng.standard_normal(rows) - spread**2 / 2)
        p = 1 / (20 * np.maximum(w, 0.05))
        reward = clicks(rng, np.full(rows, rate))
        return pa.table({"action": rng.integers(0, 20, rows), "reward": reward, "propensity": p, "new": w * p})

    title = f"{rate:.0%} clicks, weights exp(normal({spread:g})), {rows:,} rows"
    truth = {"new": rate, "logging": rate}
    return World(title, truth, each(draw), {"new": drs.policies.Column("new")}, ("ips", "snips"))


WORLDS = {
    "heavy-2000": heavy(2_000, "weights up to 500, 2,000 rows", bound=500.0),
    "heavy-20000": heavy(20_000, "weights up to 500, 20,000 rows"),
    "heavy-60000": heavy(60_000, "weights up to 500, 60,000 rows", logs=500),
    "heavy-no-range": heavy(5_000, "weights up to 500, rewards in [0, 1], 5,000 rows", beta),
    "heavy-range": heavy(
        5_000, "weights up to 500, rewards in [0, 1], range given, 5,000 rows", beta, more={"reward_range": (0.0, 1.0)}
    ),
    "lognormal-07": lognormal_weights(5_000, 0.7, 0.01),
    "lognormal-15": lognormal_weights(50_000, 1.5, 0.01),
}
