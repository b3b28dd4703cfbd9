"""What a lane has found by the end of a shard, and how outcomes of shards merge."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drstream.replaying.snapshots import Recorded
from drstream.types import Floats, Ints

MEANS = ("mean_reward", "mean_weight", "mean_average", "mean_c")
CO_MOMENTS = {  # with the means of their two variables
    "m2_reward": ("mean_reward", "mean_reward"),
    "m2_weight": ("mean_weight", "mean_weight"),
    "co_moment": ("mean_reward", "mean_weight"),
    "m2_average": ("mean_average", "mean_average"),
}


@dataclass
class Outcome:
    """What a lane has found. It can be pickled. Outcomes of shards merge in the order of the log."""

    replicates: NDArray[np.void]  # kernels.lanes.REPLICATE
    shard: Ints  # of each replicate
    curve: NDArray[np.void]  # kernels.lanes.CURVE: complete replicates by bin of simulated time
    target: Floats  # of the bias mass, for each replicate; NaN if c followed a quantile or was constant
    events: int
    considered: int  # events, counted once for each lane that replayed them
    accepted: int
    violations: int
    left_over: int  # events of the incomplete tail
    steps_left_over: int
    cut_off: int  # replicates that the end of the log cut off
    rewards: tuple[float, float]  # the smallest and the largest
    largest_weight: float
    pilot_events: int  # of the pilot, which are not in `events`
    pilot_cut: bool  # whether a limit ended it before its steps were complete
    sketch_from: int | None  # row at which the exact tracker became a sketch
    interrupted: bool = False
    recorded: Recorded | None = None  # if snapshots were asked for and an event was accepted

    @classmethod
    def merge(cls, outcomes: list[Outcome]) -> Outcome:
        first, *others = outcomes
        for other in others:
            first = cls(
                replicates=np.concatenate([first.replicates, other.replicates]),
                shard=np.concatenate([first.shard, other.shard]),
                curve=_merge_curves(first.curve, len(first.replicates), other.curve, len(other.replicates)),
                target=np.concatenate([first.target, other.target]),
                events=first.events + other.events,
                considered=first.considered + other.considered,
                accepted=first.accepted + other.accepted,
                violations=first.violations + other.violations,
                left_over=first.left_over + other.left_over,
                steps_left_over=max(first.steps_left_over, other.steps_left_over),
                cut_off=first.cut_off + other.cut_off,
                rewards=(min(first.rewards[0], other.rewards[0]), max(first.rewards[1], other.rewards[1])),
                largest_weight=max(first.largest_weight, other.largest_weight),
                pilot_events=first.pilot_events + other.pilot_events,
                pilot_cut=first.pilot_cut or other.pilot_cut,
                sketch_from=other.sketch_from if first.sketch_from is None else first.sketch_from,
                interrupted=first.interrupted or other.interrupted,
            )
        return first

    @classmethod
    def pool(cls, outcomes: list[Outcome]) -> Outcome:
        """Merge the outcomes of lanes that replayed the same events. Events are those of the first, with its pilot."""
        first = outcomes[0]
        return replace(
            cls.merge(outcomes), events=first.events, left_over=first.left_over, pilot_events=first.pilot_events
        )


def _merge_curves(a: NDArray[np.void], n: int, b: NDArray[np.void], m: int) -> NDArray[np.void]:
    """Merge means and co-moments (Chan, Golub and LeVeque 1983), extremes and sums."""
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
    for total in ("all_mass", "all_importance"):
        out[total] = a[total] + b[total]
    return out
