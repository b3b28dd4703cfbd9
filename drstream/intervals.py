"""Intervals: from merged states by the delta method and the normal distribution, from replicates by Student's t."""

from __future__ import annotations

import math
from numbers import Real
from statistics import NormalDist

import numpy as np

from drstream.errors import DrstreamError, parameter
from drstream.types import Floats

EPSILON = 2.0**-52


def standard_error(gradient: Floats, comoment: Floats, n: int) -> float:
    """Of a smooth function of means over n events, from its gradient and the co-moments; NaN for n < 2.

    Never less than what rounding may hide: of policies that differ in the last digits, the difference is not certain.
    """
    if n < 2:
        return math.nan
    with np.errstate(all="ignore"):  # weights of 1e200 and more: infinite or undefined, and said so
        variance = float(gradient @ comoment @ gradient)
        rounding = 4 * EPSILON * float(np.abs(gradient) @ np.abs(comoment) @ np.abs(gradient))
    if math.isnan(variance):
        return math.nan
    return math.sqrt(max(variance, rounding) / (n - 1) / n)


def normal(value: float, stderr: float, confidence: float) -> tuple[float, float]:
    """The interval value ± z stderr."""
    half = z_score(confidence) * stderr
    return value - half, value + half


def student(values: Floats, confidence: float) -> tuple[float, float, float, float]:
    """The mean of independent values, its standard error and t interval; one value alone has none."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, math.nan, math.nan, math.nan
    stderr = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = t_score(confidence, n - 1) * stderr
    return mean, stderr, mean - half, mean + half


def t_score(confidence: float, freedom: float) -> float:
    """
    >>> round(t_score(0.95, 9), 4)
    2.2622
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def z_score(confidence: float) -> float:
    """
    >>> round(z_score(0.95), 4)
    1.96
    """
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise DrstreamError(f"{parameter('confidence', confidence)}: it must lie between 0 and 1, e.g. 0.95")
    return NormalDist().inv_cdf((1 + float(confidence)) / 2)
