"""Lists of items, whose positions were filled independently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies.coverage.world import LOGGING, Floats, World, each
from scripts.studies.coverage.worlds.kinds import lognormal

ITEMS, AMOUNTS = 5, lognormal(1.0)
WHATEVER = ("rips", "iips", "pi", "ips", "snips")  # right if positions do not matter to each other
IN_ORDER = ("rips", "ips", "snips")  # right if users go from top to bottom


def lists(columns: dict[str, Any]) -> pa.Table:
    """Columns (n, L) as lists."""

    def of(values: Any) -> pa.Array:
        ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel()))

    return pa.table({name: of(values) for name, values in columns.items()})


def world(
    title: str,
    rows: int,
    length: int = 3,
    *,
    scale: float = 1.0,
    cascade: bool = False,
    revenue: bool = False,
    **about: Any,
) -> World:
    """With a cascade, users stop at their first click; else they look at each position less than at the one above."""
    rng = np.random.default_rng(12)
    appeal = scale * np.array([0.35, 0.1, 0.2, 0.15, 0.05])
    seen = 1 / np.arange(1, length + 1) ** 0.5
    old: Floats = 0.4 / ITEMS + 0.6 * rng.dirichlet(np.full(ITEMS, 2.0), length)
    new: Floats = 0.2 / ITEMS + 0.8 * rng.dirichlet(np.ones(ITEMS), length)
    positions = np.arange(length)

    def value(policy: Floats) -> float:
        mean = policy @ appeal
        if cascade:
            return float((mean * np.cumprod([1, *(1 - mean[:-1])])).sum())
        return float((mean * seen).sum()) * (AMOUNTS.mean if revenue else 1.0)

    def draw(rng: np.random.Generator) -> pa.Table:
        u = rng.random((rows, length, 1))
        shown = np.minimum((old.cumsum(axis=1)[None] < u).sum(axis=2), ITEMS - 1)
        luck = rng.random((rows, length)) < appeal[shown] * (1.0 if cascade else seen)
        reward = luck.astype(float)
        if cascade:
            reward *= np.cumsum(reward, axis=1) <= 1
        if revenue:
            reward *= AMOUNTS.draw(rng, rows * length).reshape(rows, length)
        columns = {"items": shown, "reward": reward, "propensity": old[positions, shown], "new": new[positions, shown]}
        return lists(columns)

    return World(
        f"lists of {length}, {title}, {rows:,} rows",
        {"new": value(new), LOGGING: value(old)},
        each(draw),
        {"new": drs.policies.Column("new")},
        IN_ORDER if cascade else WHATEVER,
        roles={"action": "items", "positions": "independent"},
        **about,
    )


WORLDS = {
    "lists": world("positions do not matter to each other", 5_000, healthy=True),
    "lists-cascade": world("users stop at a click", 5_000, cascade=True),
    "lists-long": world("positions do not matter to each other", 5_000, 5),
    "lists-rare": world("few clicks", 5_000, scale=0.05),
    "lists-revenue": world("5 % buy", 10_000, scale=0.2, revenue=True),
}
