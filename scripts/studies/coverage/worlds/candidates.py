"""Items to choose from that differ from event to event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax

import drstream as drs
from scripts.studies.coverage.world import LOGGING, Floats, World, each
from scripts.studies.coverage.worlds.kinds import Rewards, clicks, drawn, lognormal

CATALOGUE, SETS, MOST, KINDS = 50, 16, 8, 4
_RNG = np.random.default_rng(13)
ITEMS = _RNG.normal(size=(CATALOGUE, 3)).astype(np.float32)
USERS = _RNG.normal(size=(KINDS, 2)).astype(np.float32)
TASTE = np.array([[1.0, -0.5, 0.0], [0.0, 0.8, -1.0]])
SIZES = _RNG.integers(2, MOST + 1, SETS)
OFFERED = np.array([_RNG.choice(CATALOGUE, MOST, replace=False) for _ in range(SETS)])  # the first SIZES of each row
OPEN = np.arange(MOST) < SIZES[:, None]
TABLE = pa.table({"item": np.arange(CATALOGUE), **{f"z{i}": ITEMS[:, i] for i in range(3)}})


def chosen(scores: Floats) -> Floats:
    """Softmax over the candidates, by kind of user, set, and candidate."""
    found: Floats = softmax(np.where(OPEN, scores, -np.inf), axis=2)
    return found


def world(title: str, rows: int, shift: float = 0.0, amounts: Any = None, **about: Any) -> World:
    liked = np.einsum("kx,xz,smz->ksm", USERS, TASTE, ITEMS[OFFERED])
    mean = expit(liked + shift)
    rewards: Rewards = clicks if amounts is None else amounts
    mean = mean if amounts is None else mean * amounts.mean
    of_first = np.broadcast_to(ITEMS[OFFERED][:, :, 0], liked.shape)
    logging = chosen(0.7 * of_first)
    probabilities = {"taste": chosen(1.5 * liked), "uniform": chosen(np.zeros(liked.shape)), LOGGING: logging}
    policies = {"taste": drs.policies.Softmax(np.zeros(5), interactions=1.5 * TASTE), "uniform": drs.policies.Uniform()}
    ends = np.concatenate([[0], np.cumsum(SIZES)])
    flat = OFFERED[OPEN]

    def draw(rng: np.random.Generator) -> pa.Table:
        kind, offered = rng.integers(0, KINDS, rows), rng.integers(0, SETS, rows)
        mu = logging[kind, offered]
        taken = np.minimum(drawn(rng, mu), SIZES[offered] - 1)
        sizes = SIZES[offered]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        items = flat[np.repeat(ends[offered], sizes) + within]
        return pa.table(
            {
                "items": pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(items)),
                "action": OFFERED[offered, taken],
                "reward": rewards(rng, mean[kind, offered, taken]),
                "propensity": mu[np.arange(rows), taken],
                **{f"x{i}": USERS[kind, i] for i in range(2)},
            }
        )

    features = drs.Items(TABLE, id="item", features=["z0", "z1", "z2"])
    return World(
        f"candidates, {title}, {rows:,} rows",
        {name: float((p * np.where(OPEN, mean, 0)).sum(axis=2).mean()) for name, p in probabilities.items()},
        each(draw),
        policies,
        roles={"context": ["x0", "x1"], "candidates": drs.Candidates(ids="items", features=features, action_is="id")},
        **about,
    )


PLAIN: dict[str, Any] = {"estimators": ("ips", "snips")}
FITTED: dict[str, Any] = {"more": {"model": drs.models.Ridge(), "crossfit": 2}}

WORLDS = {
    "candidates-2000": world("clicks", 2_000, **FITTED),
    "candidates-20000": world("clicks", 20_000, healthy=True, **PLAIN),
    "candidates-rare": world("1 % clicks", 5_000, -4.9, **PLAIN),
    "candidates-revenue": world("5 % buy, lognormal(3, 1)", 10_000, -3.2, lognormal(1.0), **PLAIN),
}
