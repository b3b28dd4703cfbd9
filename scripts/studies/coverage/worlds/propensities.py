"""Logs without propensities: a model estimates them. It is right, or lacks a covariate or a product of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax

import drstream as drs
from scripts.studies.coverage.world import LOGGING, Floats, World, each
from scripts.studies.coverage.worlds.kinds import clicks, drawn

KINDS, FEATURES, ACTIONS = 64, 3, 3
_RNG = np.random.default_rng(11)
_SEEN, _THIRD = _RNG.normal(size=(16, 2)), np.array([[-1.5], [-0.5], [0.5], [1.5]])  # independent of each other
PLACES = np.hstack([np.repeat(_SEEN, 4, axis=0), np.tile(_THIRD, (16, 1))]).astype(np.float32)  # contexts
HABIT = 0.6 * _RNG.normal(size=(ACTIONS, FEATURES))
TASTE = 0.5 * _RNG.normal(size=(ACTIONS, FEATURES))
HABIT[:, 2] = TASTE[:, 2] = [0.8, -0.8, 0.0]  # the third covariate decides about actions and about rewards
TARGET = _RNG.normal(size=(ACTIONS, 2))


def world(title: str, rows: int, *, seen: int = FEATURES, product: float = 0.0, **about: Any) -> World:
    """The model sees the first covariates. The logging policy may depend on a product, which no model has."""
    scores = PLACES @ HABIT.T
    scores[:, 0] += product * PLACES[:, 0] * PLACES[:, 1]
    logging: Floats = softmax(scores, axis=1)
    mean: Floats = expit(PLACES @ TASTE.T - 1 + product * np.outer(PLACES[:, 0] * PLACES[:, 1], [1, 0, 0]))
    weights = np.pad(TARGET, ((0, 0), (0, seen - 2)))
    new: Floats = softmax(PLACES[:, :2] @ TARGET.T, axis=1)
    truth = {"new": (new * mean).sum(axis=1).mean(), "always 0": mean[:, 0].mean()}
    truth[LOGGING] = (logging * mean).sum(axis=1).mean()

    def draw(rng: np.random.Generator) -> pa.Table:
        kind = rng.integers(0, KINDS, rows)
        action = drawn(rng, logging[kind])
        features = {f"x{i}": PLACES[kind, i] for i in range(seen)}
        return pa.table({"action": action, "reward": clicks(rng, mean[kind, action]), **features})

    return World(
        f"{title}, {rows:,} rows",
        {name: float(value) for name, value in truth.items()},
        each(draw),
        {"new": drs.policies.Softmax(weights), "always 0": drs.policies.Constant(0)},
        roles={"context": [f"x{i}" for i in range(seen)], "propensity": None, "actions": ACTIONS},
        more={"propensity": drs.models.Propensity(), "model": drs.models.Ridge(), "crossfit": 3},
        **about,
    )


WORLDS = {
    "right-2000": world("right propensity model", 2_000),
    "right-20000": world("right propensity model", 20_000),
    "omitted-2000": world("a covariate is in no column", 2_000, seen=2),
    "omitted-20000": world("a covariate is in no column", 20_000, seen=2),
    "product-2000": world("propensity model lacks a product", 2_000, product=0.8),
    "product-20000": world("propensity model lacks a product", 20_000, product=0.8),
}
