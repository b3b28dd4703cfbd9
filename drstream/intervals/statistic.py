"""What every method takes: a statistic, as a function of means over events, and the limits that the user gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from drstream.types import Floats

REWARD, ROBUST, PREDICTED, BASELINE = KINDS = ("reward", "robust", "predicted", "baseline")
UNDEFINED = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Spread:
    """How far rewards are from the model, r - r̂; for IPS from 0. Means over the log."""

    second: float  # z² = w² (r - r̂)²
    squared: float  # w (r - r̂)²
    absolute: float  # w |r - r̂|


@dataclass(frozen=True)
class Smooth:
    """Logarithmic smoothing: means over the log of ln(1 + λ w y), with λ that of `Limits`."""

    gain: float  # y = r, with rewards scaled to 0 to 1
    loss: float  # y = 1 - r


@dataclass(frozen=True)
class Exploring:
    """Implicit exploration: means over the log with the weight ν / (p + λ/2)."""

    weight: float
    reward: float  # weight times reward


@dataclass(frozen=True)
class Side:
    """One of the values that a statistic is a difference of.

    sign    +1 or -1.
    kind    What the score of an event is: "reward": w r; "robust": r̂(x, ν) + w (r - r̂(x, a)); "predicted": r̂(x, ν);
            "baseline": r.
    weight  Index of the variable w, whose expectation is 1; None without a weight.
    score   Coefficients (V,): the score of an event is score @ x, and its expectation is the policy's value.
    clicks  Coefficients (V,) of the rewards with their weights, w r; None if unknown.
    share   Coefficients (V,) that pick from a gradient how much of these is in the statistic.
    largest The largest weight in the log.
    spread  How far rewards are from the model; None if it was not gathered.
    smooth, explored
            Means of smoothed terms, for the methods of this name; None if they were not gathered.
    """

    sign: float
    kind: str
    weight: int | None
    score: Floats
    clicks: Floats | None = None
    share: Floats | None = None
    largest: float = math.nan
    spread: Spread | None = None
    smooth: Smooth | None = None
    explored: Exploring | None = None


@dataclass(frozen=True)
class Groups:
    """Sums over groups of events: over buckets of hashed clusters or rows, or over stretches of time in order.

    count  Events (G,).
    sums   Sums of the variables (G, V).
    gram   Sums of the products x x' (G, V, V), for stretches of time only.
    times  How often each group counts: more than once in a forecast for more events like these.
    """

    count: Floats
    sums: Floats
    gram: Floats | None = None
    times: float = 1.0


@dataclass(frozen=True)
class Tails:
    """How far an estimate is from normal.

    skewness  Σ e³ / (Σ e²)^1.5, with e the influences: that of the estimate. Its square is at most 1 / carriers.
    carriers  (Σ e²)² / Σ e⁴: so many events with the same influence would have these tails.
    turn      How much a function of means bends along its own direction, over one standard error: its gradient changes
              by so many times itself.
    """

    skewness: float
    carriers: float
    turn: float = 0.0


NOTHING = 1e-26  # of the squares of what is summed up: a smaller sum of squares is rounding
STEP = 0.1  # standard errors, for a second difference


def tails_of(influences: Floats, scale: float, times: float, turn: float) -> Tails | None:
    """The tails of an estimate with these influences of buckets; None if they are all 0, up to rounding.

    scale  What influences would be if nothing cancelled.
    """
    largest = float(np.abs(influences).max(initial=0.0))
    if not largest > math.sqrt(NOTHING) * scale:
        return None
    squares = (influences / largest) ** 2
    second, third, fourth = (float(x.sum()) for x in (squares, squares * influences / largest, squares**2))
    size = len(influences)
    few = max(fourth / second**2 - 3 / size, 0.0) + 1 / size  # a bucket of many events is close to normal
    return Tails(third / second**1.5 / math.sqrt(times), times / few, turn)


@dataclass(frozen=True)
class Statistic:
    """An estimate, or a difference of two, as a function of the means of V variables over n events.

    comoment   Σ (x - mean)(y - mean) (V, V).
    gradient   Derivative of the value by each mean (V,); NaN if no event has weight.
    at         Computes the value at other means (V,). Given the means of G samples (V, G), most estimators compute G
               values at once.
    sides      Empty if the estimator has no score of events; methods that need one give NaN.
    buckets    For methods that resample.
    stretches  For the method that is valid at any time.
    """

    value: float
    n: int
    means: Floats
    comoment: Floats
    gradient: Floats
    at: Callable[[Floats], Any]
    sides: tuple[Side, ...] = ()
    buckets: Groups | None = None
    stretches: Groups | None = None

    @cached_property
    def tails(self) -> Tails | None:
        """How far it is from normal; None if it does not vary, or if there are no buckets."""
        found = self.tails_of(self.gradient)
        if found is None:
            return None
        return replace(found, turn=self.turn())

    def tails_of(self, gradient: Floats) -> Tails | None:
        """The same for another linear function of the means."""
        groups = self.buckets
        if groups is None or np.isnan(gradient).any():
            return None
        used = np.flatnonzero(gradient)
        with np.errstate(all="ignore"):
            parts = [groups.sums[:, v] * gradient[v] for v in used]
            centre = sum(float(self.means[v] * gradient[v]) for v in used)
            influences = _total(parts, groups.count) - groups.count * centre
            scale = float(_total([np.abs(part) for part in parts], groups.count).max(initial=0.0))
        return tails_of(influences[groups.count > 0], scale, groups.times, 0.0)

    def turn(self) -> float:
        """How much the function bends along its own direction: see `Tails`."""
        groups = self.buckets
        assert groups is not None
        used, n = np.flatnonzero(self.gradient), float(groups.count.sum())
        direction = np.zeros(len(self.means))
        with np.errstate(all="ignore"):  # weights of 1e155 and more have infinite squares
            away = {v: groups.sums[:, v] - groups.count * self.means[v] for v in used}
            influences = _total([away[v] * self.gradient[v] for v in used], groups.count)
            stderr = math.sqrt(float((influences**2).sum())) / n / math.sqrt(groups.times)
            if not 0 < stderr < math.inf:
                return 0.0
            for v in used:
                direction[v] = float((away[v] * influences).sum()) / n**2 / groups.times / stderr
            ends = self.at(self.means + STEP * direction) + self.at(self.means - STEP * direction)
            found = float(ends - 2 * self.at(self.means)) / STEP**2 / stderr
        return found if abs(found) < 1 else 0.0  # undefined, or no function that a second difference could describe


def _total(parts: Sequence[Floats], like: Floats) -> Floats:
    """The sum of some arrays, one after the other: a product of matrices may add in another order, with other bits."""
    found = np.zeros(len(like))
    for part in parts:
        found += part
    return found


@dataclass(frozen=True)
class Constants:
    """What the user knows about a model and a policy, for interval="freedman". It must hold for all that is evaluated.

    model_bias      Bound on E_ν|r̂(x, a) - r*(x, a)|, the mean error of the model. The model of IPS is 0.
    model_error     Bound on E_ν[(r - r̂(x, a))²].
    value_variance  Bound on the variance of r*(x, ν) over contexts.
    max_ratio       Bound on ϱ, the true propensity divided by the one that is used; 1 + propensity_error if not given.
    measured        Whether constants that are not given are measured from the log. Otherwise they are as large as the
                    range of the rewards allows, and the coverage is guaranteed.
    """

    model_bias: float | None = None
    model_error: float | None = None
    value_variance: float | None = None
    max_ratio: float | None = None
    measured: bool = True


@dataclass(frozen=True)
class Limits:
    """The confidence level, and what the user knows about the log.

    reward_range      The smallest and the largest possible reward.
    max_weight_bound  An upper bound on the weights w.
    seed              Random seed of the bootstrap.
    clustered         Whether buckets hold clusters, whose events depend on each other.
    propensity_error  How wrong propensities may be: |1 - ϱ|, ϱ = μ / μ̂, is at most this. None: they are exact.
    constants         For the method "freedman".
    clicks            Whether all rewards of the log are 0 or 1.
    smoothing         λ, for methods that smooth the terms w r.
    """

    confidence: float
    reward_range: tuple[float, float] | None = None
    max_weight_bound: float | None = None
    seed: int = 0
    clustered: bool = False
    propensity_error: float | None = None
    constants: Constants = field(default_factory=Constants)
    clicks: bool = False
    smoothing: float = 0.0


def total_score(sides: Sequence[Side]) -> Floats:
    """Return the coefficients (V,) of the score whose expectation is the statistic."""
    return np.sum([side.sign * side.score for side in sides], axis=0)
