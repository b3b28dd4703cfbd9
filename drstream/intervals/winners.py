"""Several estimates at once: the best of them after the choice, bands for all of them, and ratios of two of them.

All of it is in standard errors, and knows estimates by their values and covariances alone. Whoever calls it turns
standard errors into bounds by the method that suits each estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from drstream.types import Floats

SEED, MOST_DRAWS, NUMBERS = 0, 1 << 15, 1 << 21  # of simulated maxima: fewer of them for more than 64 estimates
SAME = 1e-12  # of the variance: two estimates that differ by no more than this are one
FARTHEST = 1e9  # ratios beyond it are taken as infinite


class AfterChoice(NamedTuple):
    """Where the truth is, in standard errors from the estimate that was chosen."""

    low: float
    middle: float  # the truth is below it half of the time
    high: float


def correlations(covariance: Floats) -> Floats:
    """Return the correlations of some estimates; 0 for one that does not vary.

    >>> correlations(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.outer(spread, spread)
    found = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
    np.fill_diagonal(found, 1.0)
    return np.clip(found, -1.0, 1.0)


def critical(correlation: Floats, confidence: float) -> float:
    """Return the sup-t critical value: the quantile of the largest |z| of some correlated normal variables.

    Bands of so many standard errors hold all of them at once (Montiel Olea and Plagborg-Møller 2019). It is a quantile
    of simulated maxima, with a fixed seed: 16,384 or more of them. It is never below that of one estimate.

    >>> round(critical(np.ones((1, 1)), 0.95), 3), round(critical(np.ones((3, 3)), 0.95), 2)
    (1.96, 1.96)
    """
    from scipy.special import ndtri

    single = float(ndtri((1 + confidence) / 2))
    if len(correlation) < 2:
        return single
    scales, axes = np.linalg.eigh(correlation)
    used = scales > SAME * len(correlation)
    factor = axes[:, used] * np.sqrt(scales[used])
    draw, size = np.random.default_rng(SEED), len(correlation)
    left = max(min(MOST_DRAWS, NUMBERS // size), 1 << 14)
    largest = []
    while left > 0:
        rows = min(left, 1 << 12)
        z = draw.standard_normal((rows, factor.shape[1])) @ factor.T
        largest.append(np.abs(z, out=z).max(axis=1))
        left -= rows
    return max(single, float(np.quantile(np.concatenate(largest), confidence)))


def after_choice(
    values: Floats, covariance: Floats, chosen: int, with_target: Floats, spread: float, reach: float, confidence: float
) -> AfterChoice:
    """Return the hybrid interval of Andrews, Kitagawa and McCloskey (2024) for a target of the best estimate.

    Given what is independent of it, the target's estimate is a normal variable that is cut off where another estimate
    would have been the best. The conditional interval inverts that distribution. Alone, it is very wide if two
    estimates are nearly the same. So it is made at the level (α - β) / (1 - β) within the projection bound of level β.

    values       The estimates (K,) by which the best one was chosen.
    covariance   Of these (K, K).
    with_target  The covariance of each with the target's estimate (K,): the best one itself, or a difference to it.
    spread       The standard error of the target's estimate.
    reach        How far the projection bound reaches: the critical value, at 1 - β, of the targets of all estimates.
    """
    alpha, beta = 1 - confidence, share_of_projection(confidence)
    below, above = _cuts(values, covariance, chosen, with_target, spread)
    tail = (alpha - beta) / (1 - beta) / 2
    low, middle, high = (_inverted(share, below, above, reach) for share in (1 - tail, 0.5, tail))
    return AfterChoice(low, middle, high)


def share_of_projection(confidence: float) -> float:
    """Return β, the level of the projection bound, for which the authors recommend α / 10."""
    return (1 - confidence) / 10


def _cuts(values: Floats, covariance: Floats, chosen: int, with_target: Floats, spread: float) -> tuple[float, float]:
    """Return how far the target's estimate could fall and rise, in standard errors, without another one being best.

    If it moves by t standard errors, the others follow with their slopes: k catches up at
    t = (x_k - x_j) spread / (c_j - c_k), with c the covariances with the target's estimate.
    """
    behind = values - values[chosen]
    variances = np.diag(covariance)
    apart = variances + variances[chosen] - 2 * covariance[chosen] > SAME * (variances + variances[chosen])
    gains = (with_target[chosen] - with_target) / spread
    falls, rises = apart & (gains > 0), apart & (gains < 0)
    return (
        float(np.max(behind[falls] / gains[falls], initial=-math.inf)),
        float(np.min(behind[rises] / gains[rises], initial=math.inf)),
    )


def _inverted(share: float, below: float, above: float, reach: float) -> float:
    """Return the truth, in standard errors from the estimate, at which a smaller estimate has this probability."""
    from scipy.special import ndtr

    def probability(truth: float) -> float:
        low, at, high = max(below - truth, -reach), -truth, min(above - truth, reach)
        if low > 0:  # in the upper tail, differences of the other tail are exact
            low, at, high = -low, -at, -high
        width = ndtr(high) - ndtr(low)
        return float((ndtr(at) - ndtr(low)) / width) if width else float(truth < 0)

    least, most = -reach, reach  # it falls from 1 to 0 between these
    while most - least > 1e-9:
        middle = (least + most) / 2
        least, most = (middle, most) if probability(middle) > share else (least, middle)
    return (least + most) / 2


def ratio_bounds(
    bounds: Callable[[float], tuple[float, float]], ratio: float, sign: float, least: float
) -> tuple[float, float]:
    """Return Fieller's (1954) interval of a ratio a / b: all q at which the interval of a - q b has 0 in it.

    bounds  Computes the interval of a - q b. It may have any form: with a normal one, this is Fieller's formula.
    ratio   The estimate a / b.
    sign    That of b, if the interval of b excludes 0. Otherwise 0: then large ratios cannot be excluded.
    least   The smallest ratio that is possible.
    """
    if math.isnan(sum(bounds(ratio))):
        return math.nan, math.nan
    if not sign and math.isinf(least):
        return -math.inf, math.inf

    def beyond(q: float) -> float:
        """Positive if q is excluded, on the side of the ratio where it lies."""
        low, high = bounds(q)
        return low if (q < ratio) == (sign >= 0) else -high

    low = _edge(beyond, ratio, -1.0, least)
    return low, _edge(beyond, ratio, 1.0, math.inf) if sign else math.inf


def _edge(beyond: Callable[[float], float], ratio: float, way: float, end: float) -> float:
    """Return the first ratio, this way, that is excluded; the end if there is none."""
    from scipy.optimize import brentq

    inside, step = ratio, max(abs(ratio), 1e-9) / 64
    while True:
        outside = ratio + way * step
        last = way * (outside - end) >= 0
        outside = end if last else outside
        if math.isinf(outside) or abs(outside) > FARTHEST * max(abs(ratio), 1.0):
            return way * math.inf
        if beyond(outside) > 0:
            return float(brentq(beyond, inside, outside, xtol=1e-12 * max(abs(ratio), 1e-9), rtol=1e-12))
        if last:
            return end
        inside, step = outside, 2 * step
