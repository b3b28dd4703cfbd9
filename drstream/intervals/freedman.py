"""The paper's finite-sample bound, Theorem 3.9, in Freedman's own form. It allows for imperfect propensities.

Rewards and predictions are rescaled to [0, 1]; for IPS by the range of the rewards together with 0, as its model is 0.
With probability 1 - α, for n events and L = ln(2 / α),

    |estimate - value| <= δ_ϱ δ_Δ + D L / (3 n) + √((D L / (3 n))² + 2 v L / n),
    v = V_x[r*(x, ν)] + 2 δ_ϱ δ_Δ + E[z²],  E[z²] <= M ϱ_max e_r̂,  D = M + max(1, ϱ_max).

The paper has D = 1 + M, which fails where ϱ_max > 1, and a wider form of the deviation. The bound holds for independent
events, and for a logging policy that learns. Each constant is given by the user, measured from the log, or the largest
possible one:

    M       bound on the weights ν / μ̂              given: max_weight_bound=
    δ_ϱ     bound on |1 - ϱ|, ϱ = μ / μ̂             given: propensity_error=; else 0, as propensities are exact
    ϱ_max   bound on ϱ                              given, or 1 + δ_ϱ
    δ_Δ     bound on E_ν|Δ|, only if δ_ϱ > 0        given, or mean w |r - r̂| / (1 - δ_ϱ), or 1
    e_r̂     bound on E_ν[(r - r̂)²]                  given, or 1; E[z²] itself is measured instead
    V_x     variance of r*(x, ν)                    given, or min{V (1 - V), s² - E[z²] + mean w (r - r̂)²}, or 1/4

The mean of w |r - r̂| is E_ν[ϱ |r - r̂|], and ϱ >= 1 - δ_ϱ; hence the division. With the norms of Appendix C instead of
these suprema and means, the formula is the same. A bound with a measured constant is no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from drstream.intervals import needs
from drstream.intervals.statistic import REWARD, UNDEFINED, Limits, Side, Statistic

NAME = "freedman"
GUARANTEED, NOT_GUARANTEED, IF_INDEPENDENT = "guaranteed", "constants measured", "if events are independent"


class BoundConstant(NamedTuple):
    """A constant of the bound, and whether it was measured from the log."""

    value: float
    measured: bool = False


NONE = BoundConstant(0.0)


def freedman(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return the mean score ± the bound. The sides of a difference share the risk (a union bound)."""
    check(statistic.sides, limits)
    if not statistic.sides:
        return UNDEFINED
    log = math.log(2 * len(statistic.sides) / (1 - limits.confidence))
    mean = half = 0.0
    for side in statistic.sides:
        mean += side.sign * float(side.score @ statistic.means)
        half += _half(side, statistic, limits, log)
    return (mean - half, mean + half) if math.isfinite(half) else UNDEFINED


def _half(side: Side, statistic: Statistic, limits: Limits, log: float) -> float:
    found = _unit_constants(side, statistic, limits)
    error, ratio, most = _propensities(side, limits)
    bias = error * found["model_bias"].value
    variance = found["value_variance"].value + 2 * bias + found["second_moment"].value
    first = (most + max(1.0, ratio)) * log / (3 * statistic.n)
    return _range(side, limits)[1] * (bias + first + math.sqrt(first**2 + 2 * variance * log / statistic.n))


def measured_constants(statistics: Sequence[Statistic], limits: Limits) -> dict[str, float]:
    """Return the constants that were measured, in the units of the rewards: the largest of all statistics."""
    found: dict[str, float] = {}
    for statistic in statistics:
        for side in statistic.sides:
            scale = _range(side, limits)[1]
            for name, constant in _unit_constants(side, statistic, limits).items():
                if constant.measured:
                    value = constant.value * (scale if name == "model_bias" else scale**2)
                    found[name] = max(value, found.get(name, value))
    return found


def says(statistic: Statistic, limits: Limits) -> str:
    """Return what the method's name is followed by: whether the coverage is guaranteed."""
    if limits.clustered:
        return IF_INDEPENDENT
    if not statistic.sides:
        return ""
    return NOT_GUARANTEED if measured_constants([statistic], limits) else GUARANTEED


def _range(side: Side, limits: Limits) -> tuple[float, float]:
    """Return the low end and the length of the range that rewards, and the model, are rescaled from."""
    low, high = needs.reward_range(NAME, limits)
    if side.kind == REWARD:
        low, high = min(low, 0.0), max(high, 0.0)
    return low, high - low


def _propensities(side: Side, limits: Limits) -> tuple[float, float, float]:
    """Return δ_ϱ, ϱ_max and M."""
    if side.weight is None:
        return 0.0, 0.0, 0.0
    error, ratio = limits.propensity_error or 0.0, limits.constants.max_ratio
    return error, 1 + error if ratio is None else ratio, needs.weight_bound(NAME, [side], limits)


def _unit_constants(side: Side, statistic: Statistic, limits: Limits) -> dict[str, BoundConstant]:
    """Return δ_Δ, E[z²] and V_x of a side for rewards in [0, 1]."""
    told = limits.constants
    if side.weight is None:  # the mean of predictions, or of rewards: only their variance counts
        spread = min(0.25, _variance(side, statistic, limits)) if told.measured else 0.25
        return {"model_bias": NONE, "second_moment": NONE, "value_variance": BoundConstant(spread, told.measured)}
    error, ratio, most = _propensities(side, limits)
    bias = _model_bias(side, limits, error)
    return {
        "model_bias": bias,
        "second_moment": _second_moment(side, limits, most * ratio),
        "value_variance": _value_variance(side, statistic, limits, error * bias.value),
    }


def _model_bias(side: Side, limits: Limits, error: float) -> BoundConstant:
    """δ_Δ"""
    told, scale = limits.constants, _range(side, limits)[1]
    if error == 0:
        return NONE
    if told.model_bias is not None:
        return BoundConstant(told.model_bias / scale)
    if side.spread is None or not told.measured:
        return BoundConstant(1.0)
    absolute, squared = side.spread.absolute / scale / (1 - error), side.spread.squared / scale**2 / (1 - error)
    return BoundConstant(min(1.0, absolute, math.sqrt(squared)), True)


def _second_moment(side: Side, limits: Limits, factor: float) -> BoundConstant:
    """E[z²], or its bound: `factor`, M ϱ_max, times e_r̂."""
    told, scale = limits.constants, _range(side, limits)[1]
    if told.model_error is not None:
        return BoundConstant(factor * told.model_error / scale**2)
    if side.spread is None or not told.measured:
        return BoundConstant(factor)
    return BoundConstant(side.spread.second / scale**2, True)


def _value_variance(side: Side, statistic: Statistic, limits: Limits, bias: float) -> BoundConstant:
    """V_x[r*(x, ν)]. The value itself is known up to the bias of wrong propensities only."""
    told, (low, scale) = limits.constants, _range(side, limits)
    if told.value_variance is not None:
        return BoundConstant(told.value_variance / scale**2)
    if side.spread is None or not told.measured:
        return BoundConstant(0.25)
    value = (float(side.score @ statistic.means) - low) / scale
    nearest = min(max(0.5, value - bias), value + bias)
    most = max(0.0, nearest * (1 - nearest))
    if bias == 0:
        rest = (side.spread.squared - side.spread.second) / scale**2
        most = min(most, max(0.0, _variance(side, statistic, limits) + rest))
    return BoundConstant(most, True)


def _variance(side: Side, statistic: Statistic, limits: Limits) -> float:
    if statistic.n < 2:
        return math.inf
    scale = _range(side, limits)[1]
    return max(0.0, float(side.score @ statistic.comoment @ side.score)) / (statistic.n - 1) / scale**2


def check(sides: Sequence[Side], limits: Limits) -> None:
    needs.reward_range(NAME, limits)
    needs.weight_bound(NAME, sides, limits)
