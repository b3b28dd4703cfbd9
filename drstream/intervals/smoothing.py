"""Logarithmic smoothing and implicit exploration: guaranteed intervals of w r that need no bound of the weights.

For terms x >= 0 of independent events, or of events whose expectation given the earlier ones is v, the product of
(1 + λ x) / (1 + λ v) has the expectation 1. So, by Markov's inequality, with probability 1 - δ

    v >= (exp(mean of ln(1 + λ x) - ln(1 / δ) / n) - 1) / λ,

for any λ > 0 that was fixed ahead of the data (Sakhi, Aouali, Alquier and Chopin 2024, corollary 4). Implicit
exploration replaces w = ν / p by ν / (p + γ), γ = λ / 2. As x / (1 + x / 2) <= ln(1 + x), the mean of such terms minus
ln(1 / δ) / (λ n) is a lower bound, too (Neu 2015), if rewards are at most 1.

With rewards scaled to 0 to 1, x = w r gives a lower bound of the value. As the weights have the mean 1, x = w (1 - r)
gives one of 1 minus the value. λ = 1 / √n, with n the number of rows of the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from drstream.intervals import needs
from drstream.intervals.bernstein import bernstein
from drstream.intervals.statistic import UNDEFINED, Limits, Side, Statistic

LS, IX = "ls", "ix"
Bounds = Callable[[Side, float, Limits], tuple[float, float]]  # of a value, at ln(1 / δ) / n


def logarithmic(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the bounds by logarithmic smoothing."""
    return _combined(statistic, limits, _of_logarithms)


def exploring(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the bounds by implicit exploration."""
    return _combined(statistic, limits, _of_exploration)


def check(sides: Sequence[Side], limits: Limits) -> None:
    needs.reward_range(LS, limits)


def _combined(statistic: Statistic, limits: Limits, of: Bounds) -> tuple[float, float]:
    """Return the bounds of a sum of values, each of which misses with its share of the probability.

    The bounds are about the policies' values. They are extended to the estimate, which may be another one of these.
    """
    ends, low, high = needs.reward_range(LS, limits), 0.0, 0.0
    share = (1 - limits.confidence) / max(len(statistic.sides), 1)
    for side in statistic.sides:
        if side.weight is None:  # a bounded mean
            alone = replace(statistic, sides=(replace(side, sign=1.0),))
            found = np.array(bernstein(alone, replace(limits, confidence=1 - share)))
        else:
            found = ends[0] + (ends[1] - ends[0]) * np.clip(of(side, math.log(2 / share) / statistic.n, limits), 0, 1)
        if not found[0] <= found[1]:  # unknown, or weights with another mean than 1
            return UNDEFINED
        of_side = np.sort(side.sign * found)
        low, high = low + of_side[0], high + of_side[1]
    return (float(min(low, statistic.value)), float(max(high, statistic.value))) if statistic.sides else UNDEFINED


def _of_logarithms(side: Side, penalty: float, limits: Limits) -> tuple[float, float]:
    if side.smooth is None or not limits.smoothing:
        return UNDEFINED
    low, high = (math.expm1(mean - penalty) / limits.smoothing for mean in (side.smooth.gain, side.smooth.loss))
    return low, 1 - high


def _of_exploration(side: Side, penalty: float, limits: Limits) -> tuple[float, float]:
    if side.explored is None or not limits.smoothing:
        return UNDEFINED
    least, most = needs.reward_range(IX, limits)
    weight, reward = side.explored.weight, side.explored.reward
    gain, loss = (reward - least * weight) / (most - least), (most * weight - reward) / (most - least)
    return gain - penalty / limits.smoothing, 1 - loss + penalty / limits.smoothing
