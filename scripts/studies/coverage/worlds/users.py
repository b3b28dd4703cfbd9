"""Rows of the same user depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from scripts.studies.coverage.world import Floats, World, each
from scripts.studies.coverage.worlds.kinds import Kinds, always, clicks, drawn, lognormal

MOST = 200  # rows of a user
AMOUNTS = lognormal(1.0)


@dataclass(frozen=True)
class Users:
    """Users of very unequal sizes, zipf(1.6), or of the same size. Each has a rate of clicks of its own.

    sticky   Whether all rows of a user have the same action.
    revenue  Whether a click is a purchase, whose amount depends on the user.
    """

    users: int
    rate: float = 0.2
    size: int | None = None
    sticky: bool = True
    revenue: bool = False

    @property
    def kinds(self) -> Kinds:
        logging = np.tile([0.5, 0.3, 0.2], (2, 1))
        mean = self.rate * np.array([[0.8, 1.0, 1.2], [1.1, 1.0, 0.9]]) * (AMOUNTS.mean if self.revenue else 1)
        policies = {"first": always(0, 2, 3), "mixed": np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])}
        return Kinds(mean, logging, policies, clicks)

    def table(self, rng: np.random.Generator) -> pa.Table:
        kinds = self.kinds
        sizes = np.minimum(rng.zipf(1.6, self.users), MOST) if self.size is None else np.full(self.users, self.size)
        user = np.repeat(np.arange(self.users), sizes)
        of_user = rng.integers(0, 2, self.users)
        kind = of_user[user]
        mu = kinds.logging[kind]
        action = drawn(rng, kinds.logging[of_user])[user] if self.sticky else drawn(rng, mu)
        relative = 4 * rng.beta(1, 3, self.users)[user]  # the user's mean, relative to that of all
        mean = kinds.mean[kind, action]
        if self.revenue:
            bought = rng.random(len(user)) < mean / AMOUNTS.mean
            reward = bought * relative * AMOUNTS.draw(rng, len(user))
        else:
            reward = clicks(rng, mean * relative)
        p = mu[np.arange(len(user)), action]
        numbers: dict[str, Any] = {"action": action, "reward": reward, "propensity": p, "x0": kind.astype(np.float32)}
        order: Floats = rng.permutation(len(user))  # rows of a user do not stand together
        return pa.table({**{name: column[order] for name, column in numbers.items()}, "user_id": user[order]})

    def world(self, title: str, *, cluster: bool = True, **about: Any) -> World:
        asked = self.kinds.asked
        asked["more"] |= {"cluster": "user_id"} if cluster else {}
        return World(title, draw=each(self.table), **asked, **about)


def zipf(users: int, title: str, *, cluster: bool = True, **about: Any) -> World:
    return Users(users, **about).world(f"{users:,} users of sizes zipf(1.6), {title}", cluster=cluster)


WORLDS = {
    "users-40": zipf(40, "an action a user"),
    "users-150": zipf(150, "an action a user"),
    "users-1000": zipf(1_000, "an action a user"),
    "users-150-rows": zipf(150, "an action a row", sticky=False),
    "users-1000-rows": zipf(1_000, "an action a row", sticky=False),
    "users-150-rare": zipf(150, "an action a user, 2 % clicks", rate=0.02),
    "users-1000-rare": zipf(1_000, "an action a user, 2 % clicks", rate=0.02),
    "users-1000-revenue": zipf(1_000, "an action a user, 5 % buy", rate=0.05, revenue=True),
    "users-150-unsaid": zipf(150, "an action a user, no cluster=", cluster=False),
    "users-equal": Users(400, size=10).world("400 users with 10 rows each, an action a user", healthy=True),
    "users-few": Users(10, size=50).world("10 users with 50 rows each, an action a user"),
}
