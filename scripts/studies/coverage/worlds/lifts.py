"""By how many percent a policy is better: a ratio whose base is an estimate, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scripts.studies.coverage.world import LIFT, World
from scripts.studies.coverage.worlds.benign import benign
from scripts.studies.coverage.worlds.kinds import Kinds, always, clicks, lognormal
from scripts.studies.coverage.worlds.revenue import shop
from scripts.studies.coverage.worlds.users import Users


def few(number: int) -> World:
    """Few clicks of the base, and a lift of 50 %."""
    mean = np.tile([0.015, 0.01, 0.01, 0.01], (2, 1))
    policies = {f"always {a}": always(a, 2, 4) for a in range(2)}
    kinds = Kinds(mean, np.full((2, 4), 0.25), policies, clicks)
    return kinds.world(f"lifts, {number} clicks expected of the base", number * 400, asks=LIFT)


WORLDS = {
    "lift-clicks": benign().world("lifts, benign, 2,000 rows", 2_000, asks=LIFT),
    "lift-rare": few(20),
    "lift-revenue": shop(lognormal(1.0)).world("lifts, 5 % buy, lognormal(3, 1), 20,000 rows", 20_000, asks=LIFT),
    "lift-users": replace(Users(400, size=10).world("lifts, 400 users with 10 rows each"), asks=LIFT),
}
