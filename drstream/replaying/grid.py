"""Which targets of the bias mass to trust: simulations with growing targets, pooled as far as their bias is small.

A larger target accepts more events, so it has more replicates and less spread, but more bias. The bias is modelled as a
slope times the bias mass. Its slope is measured on all simulations, with a prior whose width comes from the learning
curve. Simulations are pooled in the order of their targets, up to where the estimated mean squared error is smallest.
The interval carries the measured bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drstream.intervals import t_score
from drstream.types import Floats

PRIOR = 0.5  # standard deviation of the slope, in ranges of the learning curve
PIECES = 8  # of the learning curve, whose range says how much was learned
MOST_SHARED = 0.99  # largest correlation that is believed
LEAST = 0.02  # smallest eigenvalue of a matrix of correlations that is believed: each of them is an estimate


def learned_range(curve: NDArray[np.void]) -> float:
    """The range of a learning curve (kernels.lanes.CURVE), in pieces of equal length."""
    pieces = min(PIECES, len(curve))
    starts = np.arange(pieces) * len(curve) // pieces
    sums = [np.add.reduceat(curve[name], starts) for name in ("mean_reward", "mean_weight")]
    rewards = sums[0] / sums[1]
    return float(rewards.max() - rewards.min())


@dataclass(frozen=True)
class Tried:
    """The complete replicates of one simulation of a grid."""

    averages: Floats  # V/C of each replicate
    mass: float  # measured bias mass


@dataclass(frozen=True)
class Shared:
    """What L simulations have in common."""

    noise: Floats  # (L, L) covariances of their averages that come from evaluating histories on the same events
    history: Floats  # (L, L) shares of the accepted events that are in the histories of both

    def of(self, used: list[int]) -> Shared:
        return Shared(self.noise[np.ix_(used, used)], self.history[np.ix_(used, used)])

    def covariances(self, variance: float, counts: Floats) -> tuple[Floats, Floats]:
        """Covariances of the averages of different simulations, if one replicate has this variance; 0 on the diagonal.

        They are parts: by the noise of the evaluation, and by the history. What is left of the variance without the
        noise comes from the history. It is common to two replicates as far as their histories have the same events.
        """
        largest = np.sqrt(np.outer(variance / counts, variance / counts))
        noise = np.clip(self.noise, 0.0, largest)
        own = np.maximum(variance / counts - np.diag(noise), 0.0)
        history = np.sqrt(np.outer(own, own)) * self.history
        for part in (noise, history):
            np.fill_diagonal(part, 0.0)
        most = MOST_SHARED * largest
        return np.minimum(noise, most), np.minimum(history, most - np.minimum(noise, most))


@dataclass(frozen=True)
class Choice:
    """The pooled estimate."""

    lanes: int  # how many simulations are pooled: the first ones
    value: float
    stderr: float  # with the uncertainty of the bias
    low: float
    high: float
    n: int  # replicates
    mass: float  # mean bias mass of the replicates
    slope: float  # change of the value for a bias mass of 1
    slope_error: float


def choose(tried: list[Tried], shared: Shared, learned: float, confidence: float) -> Choice:
    """Pool simulations, which come in the order of their targets.

    learned  Range of the learning curve.
    """
    used = [i for i, one in enumerate(tried) if len(one.averages)]
    counts = np.array([len(tried[i].averages) for i in used], float)
    means = np.array([math.fsum(tried[i].averages) / len(tried[i].averages) for i in used])
    masses = np.array([tried[i].mass for i in used])
    common = shared.of(used)
    if counts.sum() < 2:
        return _without_interval(used, means, counts, masses)
    spread = _spread([tried[i].averages for i in used], common)
    least = float(counts @ (np.diag(common.noise) * counts)) / counts.sum()  # the noise of the evaluation alone
    spread = replace(spread, variance=max(spread.variance, least))
    noise, history = common.covariances(spread.variance, counts)
    between = noise + history
    spread = replace(spread, freedom=spread.freedom / _alike(between, spread.variance / counts))
    if not np.isfinite(between).all() or not math.isfinite(spread.variance):
        return _without_interval(used, means, counts, masses)
    slope, slope_error = _slope(means, masses, np.diag(spread.variance / counts) + between, PRIOR * learned)
    found = [_pooled(means[:k], counts[:k], spread, noise[:k, :k], history[:k, :k]) for k in range(1, len(used) + 1)]
    pooled_mass = (counts * masses).cumsum() / counts.cumsum()
    errors = [
        one.variance + (slope**2 + slope_error**2) * mass**2 for one, mass in zip(found, pooled_mass, strict=True)
    ]
    best = int(np.argmin(errors))
    one, mass = found[best], float(pooled_mass[best])
    stderr = math.sqrt(one.variance + (slope_error * mass) ** 2)
    half = t_score(confidence, one.freedom) * stderr
    shift = -slope * mass
    return Choice(
        lanes=used[best] + 1,
        value=one.value,
        stderr=stderr,
        low=one.value - half + min(shift, 0.0),
        high=one.value + half + max(shift, 0.0),
        n=one.n,
        mass=mass,
        slope=slope,
        slope_error=slope_error,
    )


def _without_interval(used: list[int], means: Floats, counts: Floats, masses: Floats) -> Choice:
    """All replicates, if one of them is all there is, or if weights are too large for a variance."""
    n, unknown = counts.sum(), math.nan
    value, mass = float(counts @ means / n), float(counts @ masses / n)
    return Choice(used[-1] + 1, value, unknown, unknown, unknown, int(n), mass, unknown, unknown)


@dataclass(frozen=True)
class _Spread:
    variance: float  # of one replicate
    freedom: float


def _spread(replicates: list[Floats], shared: Shared) -> _Spread:
    """The variance of a replicate around the mean of its simulation, or around the common mean if there are too few."""
    counts = np.array([len(r) for r in replicates], float)
    values, n = np.concatenate(replicates), int(counts.sum())
    freedom = n - len(replicates)
    if freedom >= 2:
        return _Spread(math.fsum(float(((r - r.mean()) ** 2).sum()) for r in replicates) / freedom, freedom)
    # Events that simulations share make their replicates alike, which hides that part of the variance.
    around = float(values.var(ddof=1))
    hidden = float(counts @ sum(shared.covariances(around, counts)) @ counts) / (n * (n - 1))
    return _Spread(around + hidden, n - 1)


@dataclass(frozen=True)
class _Pool:
    value: float
    variance: float  # of the value, without bias
    freedom: float
    n: int


def _pooled(means: Floats, counts: Floats, spread: _Spread, noise: Floats, history: Floats) -> _Pool:
    """The mean of all replicates of some simulations."""
    n = int(counts.sum())
    measured = spread.variance / n + float(counts @ history @ counts) / n**2  # as well as the spread is
    known = float(counts @ noise @ counts) / n**2  # from many events
    more = ((measured + known) / measured) ** 2 if measured > 0 else math.inf  # Satterthwaite 1946
    return _Pool(float(counts @ means) / n, measured + known, spread.freedom * more, n)


def _alike(between: Floats, variances: Floats) -> float:
    """What divides the degrees of freedom of a pooled variance: 1 for independent simulations, L for copies.

    Variances of normal samples with correlation ρ have correlation ρ².
    """
    if not (variances > 0.0).all():
        return 1.0
    squares = (between / np.sqrt(np.outer(variances, variances))) ** 2
    return 1.0 + float(squares.sum()) / len(squares)


def _slope(means: Floats, masses: Floats, covariance: Floats, prior: float) -> tuple[float, float]:
    """The slope of the value in the bias mass by generalised least squares, and its standard deviation."""
    if not prior > 0.0:
        return 0.0, 0.0
    design = np.column_stack([np.ones(len(means)), masses])
    scale = np.sqrt(np.diag(covariance))
    if not (scale > 0.0).all():
        return 0.0, prior
    sizes, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    inverse = (axes / np.maximum(sizes, LEAST)) @ axes.T / np.outer(scale, scale)
    weighted = inverse @ design
    information = design.T @ weighted + np.diag([0.0, prior**-2])
    spread = np.linalg.inv(information)
    _, slope = spread @ (weighted.T @ means)
    return float(slope), math.sqrt(spread[1, 1])
