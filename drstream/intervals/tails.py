"""The default interval: wider than a normal one where estimates are skewed, or where few events carry them.

It is the hull of two intervals. Hall's (1992) inverts a cubic of the studentised estimate, which takes away its
skewness: both bounds move to the side where large amounts may not have occurred yet. If tails are heavy on both sides,
the skewness of a sample says little. So the second interval is Student's t, whose degrees of freedom are the number of
events that carry the estimate, (Σ e²)² / Σ e⁴, with e the influence of an event.

Sums by bucket of hashed rows are enough for both. Over G buckets, Σ e³ has the same expectation as over events, and
Σ e⁴ has 3 (Σ e²)² / G more.

Few clicks are a case of their own. Three clicks do not tell how large the weight of a fourth one would be, and a log
without a click has no variance at all. There, a gamma interval covers (`gamma.py`). Between 2 and 4 carriers, one
interval changes into the other.

With clusters, influences are those of a jackknife over buckets of clusters (`resampling.py`), and the sizes of the
clusters give the degrees of freedom.
"""

from __future__ import annotations

import math

import numpy as np

from drstream.intervals import basic
from drstream.intervals.gamma import gamma
from drstream.intervals.resampling import filled, flat, jackknife, sizes_freedom
from drstream.intervals.statistic import UNDEFINED, Limits, Statistic, Tails

NAME = "tails"
FEW, ENOUGH = 2.0, 4.0  # carriers: with fewer, intervals of clicks are gamma intervals; with more, they are not
LEAST_FREEDOM = 1.5  # degrees of freedom of a single carrier
FLAT = 1e-9  # a smaller skewness is none


def tails(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the hull of Hall's interval and Student's t; for few clicks, a gamma interval."""
    if limits.clustered:
        return cluster(statistic, limits)
    found = statistic.tails
    if found is None:
        return _without_variance(statistic, limits)
    stderr = basic.standard_error(statistic.gradient, statistic.comoment, statistic.n)
    units = float(statistic.n - 1)
    bounds = hull(statistic.value, stderr, found, units, min(found.carriers, units), limits.confidence)
    return _with_gamma(bounds, statistic, limits)


def cluster(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """The same from a jackknife over buckets of clusters, whose t has the degrees of freedom of the clusters' sizes.

    There is no gamma interval for few clicks: one more click of the largest cluster would make it many times as wide.
    """
    found = jackknife(statistic)
    if found is None:
        return _without_variance(statistic, limits)
    freedom = sizes_freedom(statistic)
    return hull(statistic.value, found.stderr, found.tails, freedom, freedom, limits.confidence)


def hull(
    value: float, stderr: float, found: Tails, freedom: float, freedom_of_t: float, confidence: float
) -> tuple[float, float]:
    """The hull of Hall's interval, with quantiles of Student's t, and of Student's t itself."""
    half = basic.t_score(confidence, max(freedom_of_t, LEAST_FREEDOM)) * stderr
    low, high = hall(value, stderr, found, basic.t_score(confidence, max(freedom, LEAST_FREEDOM)))
    return min(low, value - half), max(high, value + half)


def hall(value: float, stderr: float, found: Tails, score: float) -> tuple[float, float]:
    """Hall's interval with the quantiles ± score.

    With T the studentised estimate, k its skewness and d the turn of a function of means, T + a T² + a² T³ / 3 + b is
    nearly normal, where a = k / 3 + d / 2. For a mean d = 0 and b = k / 6. For a ratio, half of its turn and its bias
    cancel, so b = k / 6, too.
    """
    curve, shift = found.skewness / 3 + found.turn / 2, found.skewness / 6

    def studentised(normal: float) -> float:
        if abs(curve) < FLAT:
            return normal - shift
        return (float(np.cbrt(1 + 3 * curve * (normal - shift))) - 1) / curve

    return value - stderr * studentised(score), value - stderr * studentised(-score)


def _with_gamma(bounds: tuple[float, float], statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """The bounds, or between them and a gamma interval, if few clicks carry the estimate."""
    if not limits.clicks or not statistic.sides:
        return bounds
    carriers = few_clicks(statistic)
    share = min(max((ENOUGH - carriers) / (ENOUGH - FEW), 0.0), 1.0)
    if share == 0.0:
        return bounds
    low, high = gamma(statistic, limits)
    if math.isnan(low):
        return bounds
    return (1 - share) * bounds[0] + share * low, (1 - share) * bounds[1] + share * high


def carried_by(statistic: Statistic) -> float:
    """The number of events, or clusters, that carry an estimate; 0 if it does not vary."""
    found = statistic.tails
    return 0.0 if found is None else found.carriers


def few_clicks(statistic: Statistic) -> float:
    """The number of buckets that carry the estimate, or the clicks or other events of one of its sides, if fewer."""
    found = [statistic.tails]
    for side in statistic.sides:
        if side.clicks is not None:
            found.append(statistic.tails_of(side.clicks))
            if side.weight is not None:
                without = -side.clicks
                without[side.weight] += 1.0
                found.append(statistic.tails_of(without))
    return min(0.0 if one is None else one.carriers for one in found)


def _without_variance(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """The bounds of an estimate that does not vary over the log: no width of 0, as the next event may differ."""
    if filled(statistic) is None:
        return UNDEFINED
    if not flat(statistic):  # two policies that are the same: their difference is 0, whatever the log
        stderr = basic.standard_error(statistic.gradient, statistic.comoment, statistic.n)
        return basic.normal(statistic.value, stderr, limits.confidence)
    if limits.reward_range is None or not statistic.sides:
        return UNDEFINED
    return gamma(statistic, limits)
