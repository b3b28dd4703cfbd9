"""Intervals by resampling buckets of events: the delete-a-group jackknife and the Poisson bootstrap.

Events of one cluster share a bucket. So the intervals hold if events of one cluster depend on each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from drstream.intervals.basic import t_score, z_score
from drstream.intervals.statistic import UNDEFINED, Groups, Limits, Statistic, Tails, tails_of
from drstream.types import Floats

REPLICATES = 200

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio: consecutive counters land far apart
_CDF = np.cumsum([math.exp(-1) / math.factorial(m) for m in range(19)])  # of Poisson(1); beyond is under 2^-53


@dataclass(frozen=True)
class Jackknife:
    """What the values without one bucket each say: a standard error, and tails."""

    stderr: float
    tails: Tails


def jackknife(statistic: Statistic) -> Jackknife | None:
    """Leave out one bucket at a time; None with fewer than two buckets that have events, or if they all agree.

    Var = (G - 1) / G Σ_g (θ_(g) - mean θ_(.))², and θ_(g) is the value without the events of bucket g (Efron and Stein
    1981; Kott 2001). For cluster-robust variances, this is CR3.
    """
    groups = filled(statistic)
    if groups is None:
        return None
    size = len(groups.count)
    with np.errstate(all="ignore"):
        means = (groups.sums.sum(axis=0) - groups.sums) / (groups.count.sum() - groups.count)[:, None]
        values = _values(statistic, means)
        away = values.mean() - values
        stderr = math.sqrt((size - 1) / size / groups.times) * float(np.linalg.norm(away))
        found = tails_of(away, float(np.abs(values).max()), groups.times, 0.0)
        if found is None:
            return None
        return Jackknife(stderr, replace(found, turn=statistic.turn()))


def sizes_freedom(statistic: Statistic) -> float:
    """Degrees of freedom of a variance over clusters, from the sizes of the buckets that hold them.

    If events were independent, a bucket of n events and weight W would have a share v of the variance in proportion to
    W² / n / (1 - h), with h its share of all weights: leaving out a large one moves the value by more. The degrees are
    (Σ v)² / Σ v² (Satterthwaite), those of the side that has fewest.
    """
    groups = filled(statistic)
    if groups is None:
        return math.nan
    weights = [groups.count if side.weight is None else groups.sums[:, side.weight] for side in statistic.sides]
    found = []
    for weight in weights or [groups.count]:
        total = float(weight.sum())
        shares = np.clip(weight / total if total > 0 else weight, 0.0, 1.0 - 1e-6)
        found.append(effective_number(weight**2 / groups.count / (1 - shares)))
    return max(min(found) * groups.times, 1.0)


def effective_number(weights: Floats) -> float:
    """Return (Σ W)² / Σ W², which is the number of weights if all are the same.

    >>> effective_number(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    largest = float(np.abs(weights).max(initial=0.0))  # a made-up state may have any numbers
    if not largest > 0:
        return 0.0
    if math.isinf(largest):
        return 1.0
    scaled = weights / largest
    return float(scaled.sum()) ** 2 / float((scaled**2).sum())


def flat(statistic: Statistic) -> bool:
    """Whether all events say the same about an estimate, though it is no difference between a policy and itself."""
    if filled(statistic) is None or statistic.tails is not None:
        return False
    return len(statistic.sides) < 2 or any(statistic.tails_of(side.score) is None for side in statistic.sides)


def by_bucket(statistic: Statistic) -> Statistic | None:
    """Return the statistic with buckets in the place of events, for methods that need independent events."""
    groups = filled(statistic)
    if groups is None:
        return None
    scores = groups.sums / groups.count.mean()
    away = scores - scores.mean(axis=0)
    return replace(statistic, n=round(len(scores) * groups.times), comoment=away.T @ away * groups.times)


def jackknife_stderr(statistic: Statistic) -> float:
    """The standard error by the jackknife; NaN with fewer than two buckets that have events."""
    if filled(statistic) is None:
        return math.nan
    found = jackknife(statistic)
    return 0.0 if found is None else found.stderr


def bootstrap(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the percentiles of the Poisson bootstrap over buckets, moved away from the median for small samples.

    With few buckets G, plain percentiles are too close: by √((G - 1) / G) and by z instead of t (Hesterberg 2015,
    "expanded percentiles"). Beyond 98 %, percentiles of 200 replicates are mostly noise. So higher levels move those of
    98 % further. In simulated logs of 300 to 2,000 events with skewed weights, 95 % intervals covered 94.3 % on
    average (92.0 to 95.2 in 16 settings, in logs other than those it was chosen by). Plain percentiles
    covered 93.0 %, and value ± t standard errors of the replicates 93.7 %.
    """
    groups = filled(statistic)
    if groups is None or flat(statistic):
        return UNDEFINED
    values, size = replicates(statistic, limits.seed), len(groups.count)
    if len(values) < 2:
        return UNDEFINED
    level = min(limits.confidence, 0.98)
    # Weibull's quantiles, k / (B + 1) for the k-th smallest value, are not biased inwards
    low, median, high = np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2], method="weibull")
    wider = t_score(limits.confidence, size - 1) / z_score(level) * math.sqrt(size / (size - 1))
    return float(median + wider * (low - median)), float(median + wider * (high - median))


def replicates(statistic: Statistic, seed: int) -> Floats:
    """Return the values of the replicates that are defined: every bucket counts Poisson(1) times."""
    assert statistic.buckets is not None
    times = draws(seed, len(statistic.buckets.count))
    with np.errstate(all="ignore"):  # a replicate without events is NaN
        means = (times @ statistic.buckets.sums) / (times @ statistic.buckets.count)[:, None]
        values = _values(statistic, means)
    return values[np.isfinite(values)]


@lru_cache(maxsize=4)  # the estimates of one result share their draws
def draws(seed: int, buckets: int) -> Floats:
    """Return how often bucket g counts in replicate b (B, G). It is a function of (seed, g, b) alone.

    The generator is counter-based: the finalizer of SplitMix64 (Steele, Lea and Flood 2014) hashes the seed, then the
    bucket, then the replicate. The upper 53 bits are a uniform number. The inverse of the distribution function turns
    it into a Poisson number.
    """
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        key = _mix(np.array([seed % 2**64], np.uint64) + _GOLDEN)
        bucket = _mix(key + np.arange(1, buckets + 1, dtype=np.uint64) * _GOLDEN)
        replicate = np.arange(1, REPLICATES + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(bucket[None, :] + replicate[:, None])
    found = np.searchsorted(_CDF, (bits >> np.uint64(11)) * 2.0**-53, side="right").astype(float)
    found.flags.writeable = False
    return found


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def filled(statistic: Statistic) -> Groups | None:
    """The buckets that have events; None if the interval is undefined."""
    groups = statistic.buckets
    if groups is None or np.isnan(statistic.gradient).any():  # no event has weight: no interval, not one of width 0
        return None
    used = groups.count > 0
    return replace(groups, count=groups.count[used], sums=groups.sums[used]) if used.sum() > 1 else None


def _values(statistic: Statistic, means: Floats) -> Floats:
    """Return the value at each row of means: all at once, or one by one if the estimator cannot do it at once."""
    first = float(statistic.at(means[0]))
    try:
        found = np.asarray(statistic.at(means.T), float)
    except (TypeError, ValueError, IndexError):  # e.g. an estimator of the user's own that compares means with `if`
        found = np.zeros(0)
    if found.shape == (len(means),) and (found[0] == first or math.isnan(first)):
        return found
    return np.array([statistic.at(row) for row in means], float)
