"""What a lane has to say at the end of a shard; outcomes of shards merge in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drstream.kernels import replay as kernels
from drstream.models.calibration import Calibration
from drstream.replaying.snapshots import Recorded
from drstream.types import Floats, Ints


@dataclass
class Sums:
    """What is summed over the events read, whatever the lane."""

    skipped: Counter[str]  # bad rows by reason
    calibration: Calibration

    def merge(self, other: Sums) -> None:
        self.skipped += other.skipped
        self.calibration.merge(other.calibration)


@dataclass
class Outcome:
    """What a lane has to say at the end of a shard. It can be pickled, and outcomes of shards merge in order."""

    replicates: NDArray[np.void]
    shard: Ints  # of each replicate
    curve: Floats  # of all replicates: rows of kernels.replay from MEAN_REWARD on
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


def _merge_curves(a: Floats, n: int, b: Floats, m: int) -> Floats:
    """Means and co-moments as Chan, Golub and LeVeque (1983) merge them; extremes; sums."""
    if n == 0 or m == 0:
        return b if n == 0 else a
    k, start = kernels, kernels.MEAN_REWARD
    delta = b - a
    out = a + b  # of what is summed
    for mean in (k.MEAN_REWARD, k.MEAN_WEIGHT, k.MEAN_AVERAGE, k.MEAN_C):
        out[mean - start] = a[mean - start] + delta[mean - start] * (m / (n + m))
    for moment, one, other in (
        (k.M2_REWARD, k.MEAN_REWARD, k.MEAN_REWARD),
        (k.M2_WEIGHT, k.MEAN_WEIGHT, k.MEAN_WEIGHT),
        (k.CO_MOMENT, k.MEAN_REWARD, k.MEAN_WEIGHT),
        (k.M2_AVERAGE, k.MEAN_AVERAGE, k.MEAN_AVERAGE),
    ):
        out[moment - start] += delta[one - start] * delta[other - start] * (n * m / (n + m))
    out[k.LEAST_C - start] = np.minimum(a[k.LEAST_C - start], b[k.LEAST_C - start])
    out[k.LARGEST_C - start] = np.maximum(a[k.LARGEST_C - start], b[k.LARGEST_C - start])
    return out
