"""Few rows have a purchase, and amounts are skewed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies.coverage.world import World, each
from scripts.studies.coverage.worlds.kinds import Amounts, Kinds, always, lognormal, pareto, prices, refunds

CAP = 10_000.0


def shop(amounts: Amounts, rate: float = 0.05) -> Kinds:
    """Three offers: the policy "second" always makes one, and "mixed" prefers another for each kind of customer."""
    rng = np.random.default_rng(5)
    mean = rate * rng.uniform(0.6, 1.4, (4, 3)) * amounts.mean
    logging = 0.3 / 3 + 0.7 * rng.dirichlet([3.0, 3.0, 3.0], 4)
    policies = {"second": always(1, 4, 3), "mixed": 0.1 / 3 + 0.9 * rng.dirichlet([1.0, 1.0, 1.0], 4)}
    return Kinds(mean, logging, policies, amounts)


def world(title: str, amounts: Amounts, rows: int, rate: float = 0.05, **about: Any) -> World:
    return shop(amounts, rate).world(f"{rate:.0%} buy, {title}, {rows:,} rows", rows, **about)


def minimal(amounts: Amounts, title: str, rows: int) -> World:
    """Two actions, one policy, no context."""

    def draw(rng: np.random.Generator) -> pa.Table:
        reward = amounts(rng, np.full(rows, 0.05 * amounts.mean))
        return pa.table({"action": rng.integers(0, 2, rows), "reward": reward, "propensity": np.full(rows, 0.5)})

    truth = dict.fromkeys(["one", "logging"], 0.05 * amounts.mean)
    title = f"two actions, p = 0.5, 5 % buy, {title}, {rows:,} rows"
    return World(title, truth, each(draw), {"one": drs.policies.Constant(1)}, ("snips",))


def within(low: float, high: float) -> Mapping[str, Any]:
    return {"more": {"reward_range": (low, high)}}


SUBSCRIPTIONS = prices([9.99, 19.99, 49.99, 199.0], [0.6, 0.25, 0.1, 0.05])
CAPPED = f"at most {CAP:,.0f}, range given"

WORLDS = {
    "ln1-2000": world("lognormal(3, 1)", lognormal(1.0), 2_000),
    "ln1-20000": world("lognormal(3, 1)", lognormal(1.0), 20_000),
    "ln15-2000": world("lognormal(3, 1.5)", lognormal(1.5), 2_000),
    "ln15-20000": world("lognormal(3, 1.5)", lognormal(1.5), 20_000),
    "ln15-2000-range": world(f"lognormal(3, 1.5), {CAPPED}", lognormal(1.5, CAP), 2_000, **within(0, CAP)),
    "ln15-20000-range": world(f"lognormal(3, 1.5), {CAPPED}", lognormal(1.5, CAP), 20_000, **within(0, CAP)),
    "ln2-20000": world("lognormal(3, 2)", lognormal(2.0), 20_000),
    "pareto22-2000-range": world(f"Pareto(2.2), {CAPPED}", pareto(2.2, CAP), 2_000, **within(0, CAP)),
    "pareto22-20000": world("Pareto(2.2)", pareto(2.2), 20_000),
    "pareto16-20000": world("Pareto(1.6), which has no variance", pareto(1.6), 20_000),
    "refunds-2000": world("lognormal(3, 1), a tenth of them refunds", refunds(lognormal(1.0)), 2_000),
    "one-percent-20000": world("lognormal(3, 1)", lognormal(1.0), 20_000, 0.01),
    "subscriptions-2000": world("subscriptions of 9.99 to 199", SUBSCRIPTIONS, 2_000),
    "minimal-ln15-2000": minimal(lognormal(1.5), "lognormal(3, 1.5)", 2_000),
    "minimal-ln15-10000": minimal(lognormal(1.5), "lognormal(3, 1.5)", 10_000),
}
