"""What a lane has found at the end of a shard; outcomes of shards merge in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drstream.replaying.snapshots import Recorded
from drstream.types import Ints

MEANS = ("mean_reward", "mean_weight", "mean_average", "mean_c")
CO_MOMENTS = {  # of which means
    "m2_reward": ("mean_reward", "mean_reward"),
    "m2_weight": ("mean_weight", "mean_weight"),
    "co_moment": ("mean_reward", "mean_weight"),
    "m2_average": ("mean_average", "mean_average"),
}


@dataclass
class Outcome:
    """What a lane has found. It can be pickled, and outcomes of shards merge in order."""

    replicates: NDArray[np.void]  # kernels.replay.REPLICATE
    shard: Ints  # of each replicate
    curve: NDArray[np.void]  # kernels.replay.CURVE: complete replicates by bin of simulated time
    events: int
    accepted: int
    violations: int
    left_over: int  # events of the incomplete tail
    steps_left_over: int
    rewards: tuple[float, float]  # the least and the largest
    largest_weight: float
    sketch_from: int | None  # row at which the exact tracker became a sketch
    interrupted: bool = False
    recorded: Recorded | None = None  # where snapshots were asked for, and an event was accepted

    @classmethod
    def merge(cls, outcomes: list[Outcome]) -> Outcome:
        first, *others = outcomes
        for other in others:
            first = cls(
                replicates=np.concatenate([first.replicates, other.replicates]),
                shard=np.concatenate([first.shard, other.shard]),
                curve=_merge_curves(first.curve, len(first.replicates), other.curve, len(other.replicates)),
                events=first.events + other.events,
                accepted=first.accepted + other.accepted,
                violations=first.violations + other.violations,
                left_over=first.left_over + other.left_over,
                steps_left_over=max(first.steps_left_over, other.steps_left_over),
                rewards=(min(first.rewards[0], other.rewards[0]), max(first.rewards[1], other.rewards[1])),
                largest_weight=max(first.largest_weight, other.largest_weight),
                sketch_from=other.sketch_from if first.sketch_from is None else first.sketch_from,
                interrupted=first.interrupted or other.interrupted,
            )
        return first


def _merge_curves(a: NDArray[np.void], n: int, b: NDArray[np.void], m: int) -> NDArray[np.void]:
    """Means and co-moments as Chan, Golub and LeVeque (1983) merge them; extremes; sums."""
    if n == 0 or m == 0:
        return b if n == 0 else a
    out = a.copy()
    delta = {mean: b[mean] - a[mean] for mean in MEANS}
    for mean in MEANS:
        out[mean] = a[mean] + delta[mean] * (m / (n + m))
    for moment, (one, other) in CO_MOMENTS.items():
        out[moment] = a[moment] + b[moment]
        out[moment] += delta[one] * delta[other] * (n * m / (n + m))
    out["least_c"] = np.minimum(a["least_c"], b["least_c"])
    out["largest_c"] = np.maximum(a["largest_c"], b["largest_c"])
    out["all_mass"] = a["all_mass"] + b["all_mass"]
    return out
