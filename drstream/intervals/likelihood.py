"""The empirical likelihood interval, with the Cressie-Read power -2, which is the Euclidean likelihood.

Karampatziakis, Langford and Mineiro 2020, "Empirical likelihood for contextual bandits". Consider all distributions
over the events of the log and one pseudo-event that have E w = 1. Some are about as likely as the likeliest. The bounds
are the least and the greatest E y of these. The pseudo-event stands for what the log may have missed. It is wherever in
the range of weights and scores it moves the bound most.

With N = n + 1 and the mean m and the covariance Σ (over N) of (w, y) with the pseudo-event, the likeliest distribution
with E (w, y) = μ = (1, v) has the statistic

    S(v) = N (m - μ)' Σ⁻¹ (m - μ),

and the bounds solve S(v) = S₀ + F, with S₀ the statistic without the condition on y, and F the quantile of the F
distribution with (1, n) degrees of freedom. S is a parabola in v, so they are the conditional mean of y given w = 1 and
a multiple of the conditional standard deviation.

If weights have no bound, the pseudo-event goes to infinity in a direction d. Then, with the mean m and covariance C of
the log alone, S(v) → N²/n min_t (m - μ - t d)' C⁻¹ (m - μ - t d) + N/n (by Sherman and Morrison). So d is free.

If events are clustered, buckets of clusters take the place of events, each divided by the mean number of its events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from drstream.intervals import needs
from drstream.intervals.basic import t_score
from drstream.intervals.ranges import corners, extremes, slopes, weights_of
from drstream.intervals.resampling import by_bucket
from drstream.intervals.statistic import UNDEFINED, Limits, Side, Statistic, total_score
from drstream.types import Floats

NAME = "likelihood"


class _Log(NamedTuple):
    """Means and covariances of the weights and the score, which is last."""

    n: int
    mean: Floats
    covariance: Floats


class _Parabola(NamedTuple):
    """S(v) = bottom + (v - vertex)² / width²."""

    bottom: float
    vertex: float
    width: float

    def root(self, level: float) -> float:
        """The smaller v with S(v) = level; infinite if there is none."""
        above = level - self.bottom
        return math.inf if above < 0 else self.vertex - self.width * math.sqrt(above)


def likelihood(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the bounds of the profile likelihood at the confidence level."""
    check(statistic.sides, limits)
    if not statistic.sides:
        return UNDEFINED
    if limits.clustered:
        of_buckets = by_bucket(statistic)
        if of_buckets is None:
            return UNDEFINED
        statistic = of_buckets
    quantile = t_score(limits.confidence, statistic.n) ** 2  # F with (1, n) degrees of freedom is the square of t
    mirrored = tuple(Side(-side.sign, side.kind, side.weight, side.score) for side in statistic.sides)
    return _lower(statistic, statistic.sides, limits, quantile), -_lower(statistic, mirrored, limits, quantile)


def check(sides: Sequence[Side], limits: Limits) -> None:
    needs.reward_range(NAME, limits)


def _lower(statistic: Statistic, sides: tuple[Side, ...], limits: Limits, quantile: float) -> float:
    variables = weights_of(sides)
    rows = np.vstack([np.eye(len(statistic.means))[variables], total_score(sides)])
    log = _Log(statistic.n, rows @ statistic.means, rows @ statistic.comoment @ rows.T / statistic.n)
    top = math.inf if limits.max_weight_bound is None else limits.max_weight_bound
    low, high = needs.reward_range(NAME, limits)
    found = {tuple(c.values()): _parabola(log, sides, c, low, high) for c in corners(sides, top)}
    likeliest = tuple(top if mean < 1 else 0.0 for mean in log.mean[:-1])
    level = found[likeliest].bottom + quantile
    return float(np.min([parabola.root(level) for parabola in found.values()]))


def _parabola(log: _Log, sides: Sequence[Side], corner: dict[int, float], low: float, high: float) -> _Parabola:
    """Return S with the pseudo-event at a corner of the weights' ranges, and its score as low as it can be."""
    ends = np.array(list(corner.values()))
    if np.isinf(ends).any():
        direction = {variable: float(math.isinf(end)) for variable, end in corner.items()}
        return _far(log, np.array([*direction.values(), slopes(sides, direction, low, high)[0]]))
    return _near(log, np.array([*ends, extremes(sides, corner, low, high)[0]]))


def _near(log: _Log, point: Floats) -> _Parabola:
    size, away = log.n + 1, point - log.mean
    mean = log.mean + away / size
    covariance = log.n / size * (log.covariance + np.outer(away, away) / size)
    return _profile(mean, covariance, np.ones(len(mean) - 1), size, 0.0, 0.0)


def _far(log: _Log, direction: Floats) -> _Parabola:
    """Eliminate the free direction d: subtract d_k times a weight that has d = 1 from each other variable k."""
    size, free = log.n + 1, int(np.argmax(direction[:-1]))
    rows = np.eye(len(direction))
    rows[:, free] -= direction
    rows = np.delete(rows, free, axis=0)
    rest = np.delete(direction, free)
    return _profile(
        rows @ log.mean, rows @ log.covariance @ rows.T, 1 - rest[:-1], size**2 / log.n, size / log.n, float(rest[-1])
    )


def _profile(
    mean: Floats, covariance: Floats, expected: Floats, scale: float, bottom: float, shift: float
) -> _Parabola:
    """Return scale (m - μ)' Σ⁻¹ (m - μ) + bottom as a function of v, with μ = (expected, v - shift)."""
    if not np.isfinite(covariance).all():
        return _Parabola(math.nan, math.nan, math.nan)
    within, between = covariance[:-1, :-1], covariance[:-1, -1]
    away = mean[:-1] - expected
    inverse = _inverse(within, 1e-6 * (1 + np.abs(mean[:-1])))
    variance = max(0.0, float(covariance[-1, -1] - between @ inverse @ between))
    return _Parabola(
        bottom + scale * float(away @ inverse @ away),
        shift + float(mean[-1] - between @ inverse @ away),
        math.sqrt(variance / scale),
    )


def _inverse(covariance: Floats, smallest: Floats) -> Floats:
    """Return the inverse of a covariance matrix. Variables that are constant or collinear have a tiny variance left.

    So a condition that holds by itself costs nothing, and one that cannot hold costs a lot.
    """
    if len(covariance) == 0:
        return covariance
    scale = np.maximum(np.sqrt(np.diag(covariance)), smallest)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return (vectors / np.maximum(values, 1e-12)) @ vectors.T / np.outer(scale, scale)
