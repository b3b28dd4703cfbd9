"""The gamma interval, for few clicks and for a few large weights (Fay and Feuer 1997).

IPS is a weighted sum of clicks. If clicks are few, such a sum is skewed: it cannot be much smaller than it is, but it
could easily be larger. Fay and Feuer give bounds for a weighted sum of Poisson counts. With y the sum, v the sum of its
squared parts, and m the largest part that one more click could add, they are quantiles of gamma distributions with the
mean and variance

    y, v  for the lower bound, and  y + m, v + m²  for the upper bound.

The largest part is the largest weight of the log, or the bound on the weights if there is one, times the range of the
rewards. An estimator that is more than a sum of clicks has a rest, e.g. r̂(x, ν) - w r̂(x, a) for DR. The rest has a normal
interval. The distances of the bounds of all parts are added up like standard errors, with their correlations (Zou and
Donner 2008: the method of variance estimates recovery). If there are few events without a click, the sum is over these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from drstream.intervals import needs
from drstream.intervals.basic import z_score
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
    low, high = needs.reward_range(NAME, limits)
    clicks = [side for side in statistic.sides if side.clicks is not None]
    if not clicks or np.isnan(statistic.gradient).any():
        return UNDEFINED
    sums = _Sums(statistic, limits)
    parts = [_clicks(side, statistic, sums, low, high, limits) for side in clicks]
    rest = statistic.gradient - np.sum([part.score for part in parts], axis=0)
    half = z_score(limits.confidence) * math.sqrt(max(float(rest @ sums.covariance @ rest), 0.0))
    parts.append(Part(rest, half, half))
    correlation = sums.correlations([part.score for part in parts])
    below, above = (np.array([part[side] for part in parts]) for side in (1, 2))
    return (
        statistic.value - math.sqrt(max(float(below @ correlation @ below), 0.0)),
        statistic.value + math.sqrt(max(float(above @ correlation @ above), 0.0)),
    )


def check(sides: Sequence[Side], limits: Limits) -> None:
    """Check that the range of the rewards is given."""
    needs.reward_range(NAME, limits)


class _Sums:
    """Second moments of the variables over independent units: events or, for clustered ones, buckets of clusters."""

    def __init__(self, statistic: Statistic, limits: Limits) -> None:
        n, means = statistic.n, statistic.means
        self.buckets = statistic.buckets if limits.clustered else None
        if self.buckets is None:
            self.squares = (statistic.comoment + n * np.outer(means, means)) / n**2
            self.covariance = statistic.comoment / n / (n - 1)
        else:
            sums = self.buckets.sums
            used = int(np.count_nonzero(self.buckets.count))
            centred = sums - np.outer(self.buckets.count, means)
            self.squares = sums.T @ sums / n**2
            self.covariance = centred.T @ centred * (used / max(used - 1, 1)) / n**2

    def correlations(self, scores: Sequence[Floats]) -> Floats:
        """Return the correlations of the means of some scores; 0 for a score that does not vary."""
        matrix = np.array(scores)
        covariance = matrix @ self.covariance @ matrix.T
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.outer(spread, spread)
        found = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
        np.fill_diagonal(found, 1.0)
        return np.clip(found, -1.0, 1.0)


def _clicks(side: Side, statistic: Statistic, sums: _Sums, low: float, high: float, limits: Limits) -> Part:
    """Return the part of a side that is a weighted sum of clicks or, if these are fewer, of their absence."""
    assert side.clicks is not None
    n, means = statistic.n, statistic.means
    one = np.zeros(len(means))
    if side.weight is None:
        return _baseline(side, statistic, sums, low, high)
    one[side.weight] = 1.0
    factor = float(statistic.gradient @ side.share)
    with_click, without = side.clicks - low * one, high * one - side.clicks
    parts = [(factor, with_click), (-factor, without)]
    factor, score = min(parts, key=lambda part: _number(part[1], means, sums))
    largest = side.largest if limits.max_weight_bound is None else limits.max_weight_bound
    if sums.buckets is not None:
        largest = max(largest, float(sums.buckets.sums[:, side.weight].max()))
    y, v = float(score @ means), float(score @ sums.squares @ score)
    below, above = _distances(y, v, largest * (high - low) / n, limits.confidence)
    if factor < 0:
        below, above = above, below
    return Part(factor * score, abs(factor) * below, abs(factor) * above)


def _baseline(side: Side, statistic: Statistic, sums: _Sums, low: float, high: float) -> Part:
    """The logging policy's mean reward has as many clicks as the log: a normal interval will do."""
    return Part(np.zeros(len(statistic.means)), 0.0, 0.0)


def _number(score: Floats, means: Floats, sums: _Sums) -> float:
    """Return the effective number of events in a weighted sum."""
    squares = float(score @ sums.squares @ score)
    return float(score @ means) ** 2 / squares if squares > 0 else 0.0


def _distances(y: float, v: float, m: float, confidence: float) -> tuple[float, float]:
    """Return how far the bounds of Fay and Feuer are from y, whose parts have the sum of squares v."""
    from scipy.special import gammaincinv

    tail = (1 - confidence) / 2
    low = gammaincinv(y**2 / v, tail) * v / y if y > 0 and v > 0 else 0.0
    high = gammaincinv((y + m) ** 2 / (v + m**2), 1 - tail) * (v + m**2) / (y + m) if y + m > 0 else 0.0
    return max(y - float(low), 0.0), max(float(high) - y, 0.0)
