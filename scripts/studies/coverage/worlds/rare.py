"""Few clicks carry the estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import drstream as drs
from scripts.studies.coverage.world import LOGGING, World, each
from scripts.studies.coverage.worlds.kinds import Kinds, always, clicks


def expected(number: int, rate: float = 0.005) -> World:
    """The first two of five actions, each with a propensity of 0.2, have so many clicks, and as many."""
    rows = round(number / (0.2 * rate))
    policies = {f"always {a}": always(a, 2, 5) for a in range(2)}
    kinds = Kinds(np.full((2, 5), rate), np.full((2, 5), 0.2), policies, clicks, np.full((2, 5), 2 * rate))
    return kinds.world(f"{number} clicks expected, {rows:,} rows", rows, bound=5.0)


def misses() -> World:
    """Few rows have no click."""
    logging = np.tile([0.3, 0.1, 0.035, 0.565], (2, 1))
    policies = {f"always {a}": always(a, 2, 4) for a in range(3)}
    kinds = Kinds(np.full((2, 4), 0.995), logging, policies, clicks, np.full((2, 4), 0.98))
    return kinds.world("0.5 % non-clicks, 3,329 rows", 3_329)


def ten_actions(rows: int) -> World:
    """Nothing but the log's own columns: two clicks expected for each action in 2,000 rows."""

    def draw(rng: np.random.Generator) -> pa.Table:
        action = rng.integers(0, 10, rows)
        return pa.table(
            {"action": action, "reward": clicks(rng, np.full(rows, 0.01)), "propensity": np.full(rows, 0.1)}
        )

    policies: dict[str, Any] = {f"always {a}": drs.policies.Constant(a) for a in range(2)}
    truth = dict.fromkeys([*policies, LOGGING], 0.01)
    return World(f"1 % clicks, ten actions, {rows:,} rows", truth, each(draw), policies, ("ips", "snips"))


WORLDS = {
    "clicks-3": expected(3),
    "clicks-5": expected(5),
    "clicks-10": expected(10),
    "clicks-20": expected(20),
    "non-clicks": misses(),
    "ten-actions-2000": ten_actions(2_000),
    "ten-actions-20000": ten_actions(20_000),
}
