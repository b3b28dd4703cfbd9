"""What every method takes: a statistic, as a function of means over events, and the limits that the user gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    """

    sign: float
    kind: str
    weight: int | None
    score: Floats
    clicks: Floats | None = None
    share: Floats | None = None
    largest: float = math.nan
    spread: Spread | None = None


@dataclass(frozen=True)
class Groups:
    """Sums over groups of events: over buckets of hashed clusters or rows, or over stretches of time in order.

    count  Events (G,).
    sums   Sums of the variables (G, V).
    gram   Sums of the products x x' (G, V, V), for stretches of time only.
    """

    count: Floats
    sums: Floats
    gram: Floats | None = None


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
    """

    confidence: float
    reward_range: tuple[float, float] | None = None
    max_weight_bound: float | None = None
    seed: int = 0
    clustered: bool = False
    propensity_error: float | None = None
    constants: Constants = field(default_factory=Constants)


def total_score(sides: Sequence[Side]) -> Floats:
    """Return the coefficients (V,) of the score whose expectation is the statistic."""
    return np.sum([side.sign * side.score for side in sides], axis=0)
