"""The gamma interval, for few clicks and for a few large weights (Fay and Feuer 1997).

IPS is a weighted sum of clicks. If clicks are few, such a sum is skewed: it cannot be much smaller than it is, but it
could easily be larger. Fay and Feuer give bounds for a weighted sum of Poisson counts. With y the sum, v the sum of its
squared parts, and m the largest part that one more click could add, they are quantiles of gamma distributions with the
mean and variance

    y, v  for the lower bound, and  y + m, v + m²  for the upper bound.

The largest part is the largest weight of the log, or the bound on the weights if there is one, times the range of the
rewards.

Other estimators are, to first order, c₁ Σ w (r - low) + c₂ Σ w (high - r) and a rest: SNIPS has no rest, and that of DR
is r̂(x, ν) and what of w r̂(x, a) does not go with w. Both sums have gamma bounds, and the rest a normal interval. The
distances of the bounds of all parts are added up like standard errors, with their correlations (Zou and Donner 2008,
the method of variance estimates recovery).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from drstream.intervals import needs
from drstream.intervals.basic import standard_error, z_score
from drstream.intervals.resampling import by_bucket
from drstream.intervals.statistic import UNDEFINED, Limits, Side, Statistic
from drstream.types import Floats

NAME = "gamma"


class Part(NamedTuple):
    """A part of the statistic: coefficients (V,) of its mean, and the distances of its bounds from it."""

    score: Floats
    below: float
    above: float


def gamma(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the bounds of the gamma interval; NaN if no side of the statistic has clicks."""
    ends = needs.reward_range(NAME, limits)
    sides = [side for side in statistic.sides if side.clicks is not None]
    units = by_bucket(statistic) if limits.clustered else statistic
    if not sides or units is None or np.isnan(statistic.gradient).any():
        return UNDEFINED
    parts = []
    for side, slope in zip(sides, _slopes(sides, units), strict=True):
        largest = _largest(side, statistic, limits)
        parts += [_part(*sum_, units, largest, ends, limits) for sum_ in _weighted_sums(side, slope, units, *ends)]
    rest = statistic.gradient - np.sum([part.score for part in parts], axis=0)
    half = z_score(limits.confidence) * standard_error(rest, units.comoment, units.n)
    parts.append(Part(rest, half, half))
    correlation = _correlations(np.array([part.score for part in parts]), units.comoment)
    below, above = (np.array([part[place] for part in parts]) for place in (1, 2))
    return (
        statistic.value - math.sqrt(max(float(below @ correlation @ below), 0.0)),
        statistic.value + math.sqrt(max(float(above @ correlation @ above), 0.0)),
    )


def check(sides: Sequence[Side], limits: Limits) -> None:
    """Check that the range of the rewards is given."""
    needs.reward_range(NAME, limits)


def _largest(side: Side, statistic: Statistic, limits: Limits) -> float:
    """Return the largest weight that a unit, an event or a bucket of clusters, could have."""
    largest = side.largest if limits.max_weight_bound is None or side.weight is None else limits.max_weight_bound
    groups = statistic.buckets
    if limits.clustered and groups is not None:
        filled = groups.count > 0
        weights = groups.count if side.weight is None else groups.sums[:, side.weight]
        return float(weights.max()) / float(groups.count[filled].mean())
    return largest


def _factor(side: Side, units: Statistic) -> float:
    """Return how much of a side's w r is in the statistic."""
    assert side.share is not None
    return float(units.gradient @ side.share)


def _slopes(sides: Sequence[Side], units: Statistic) -> list[float]:
    """Return how much of each side's weight is in the statistic beside its w r, by a regression on the weights."""
    rest = units.gradient - sum(_factor(side, units) * side.clicks for side in sides if side.clicks is not None)
    weights = [side.weight for side in sides if side.weight is not None]
    covariance = units.comoment[np.ix_(weights, weights)]
    known = np.isfinite(covariance).all()  # squares of weights of 1e155 and more are infinite
    inverse = np.linalg.pinv(covariance) if known else np.full_like(covariance, np.nan)
    found = dict(zip(weights, inverse @ (units.comoment @ rest)[weights], strict=True))
    return [0.0 if side.weight is None else float(found[side.weight]) for side in sides]


Sum = tuple[float, Floats, float]  # how much of it is in the statistic, coefficients (V,), and a constant


def _weighted_sums(side: Side, slope: float, units: Statistic, low: float, high: float) -> list[Sum]:
    """Return the sums of w (r - low) and of w (high - r) that a side consists of."""
    assert side.clicks is not None
    factor = _factor(side, units)
    if side.weight is None:  # all weights are 1, so one sum tells the other: the one of fewer events
        sums = [(factor, side.clicks, -low), (-factor, -side.clicks, high)]
        return [min(sums, key=lambda sum_: _effective(*_moments(sum_[1], sum_[2], units)))]
    weight = np.zeros(len(units.means))
    weight[side.weight] = 1.0
    both = (factor * low + slope) / (high - low)
    return [(factor + both, side.clicks - low * weight, 0.0), (both, high * weight - side.clicks, 0.0)]


def _part(
    factor: float,
    score: Floats,
    offset: float,
    units: Statistic,
    largest: float,
    ends: tuple[float, float],
    limits: Limits,
) -> Part:
    y, v = _moments(score, offset, units)
    below, above = _distances(y, v, largest * (ends[1] - ends[0]) / units.n, limits.confidence)
    if factor < 0:
        below, above = above, below
    return Part(factor * score, abs(factor) * below, abs(factor) * above)


def _moments(score: Floats, offset: float, units: Statistic) -> tuple[float, float]:
    """Return the mean of a score, and the sum of squares that belongs to it."""
    y = max(float(score @ units.means) + offset, 0.0)
    return y, max(float(score @ units.comoment @ score), 0.0) / units.n**2 + y * y / units.n


def _effective(y: float, v: float) -> float:
    """Return the effective number of units in a weighted sum."""
    return y / v * y if v > 0 else 0.0


def _correlations(scores: Floats, comoment: Floats) -> Floats:
    """Return the correlations of the means of some scores; 0 for a score that does not vary."""
    covariance = scores @ comoment @ scores.T
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(spread, spread)
    found = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1.0, 1.0)


def _distances(y: float, v: float, m: float, confidence: float) -> tuple[float, float]:
    """Return how far the bounds of Fay and Feuer are from y, whose parts have the sum of squares v."""
    from scipy.special import gammaincinv

    tail = (1 - confidence) / 2
    low = gammaincinv(y / v * y, tail) * v / y if y > 0 else 0.0
    high = gammaincinv((y + m) / (v + m * m) * (y + m), 1 - tail) * (v + m * m) / (y + m) if y + m > 0 else 0.0
    return max(y - float(low), 0.0), max(float(high) - y, 0.0)
