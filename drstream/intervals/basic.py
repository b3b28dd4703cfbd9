"""Standard errors by the delta method, and intervals by the normal and by Student's t distribution."""

from __future__ import annotations

import math
from numbers import Real
from statistics import NormalDist

import numpy as np

from drstream.errors import DrstreamError, parameter
from drstream.types import Floats

EPSILON = 2.0**-52


def standard_error(gradient: Floats, comoment: Floats, n: int) -> float:
    """Return the standard error of a smooth function of means over n events; NaN for n < 2.

    It is computed from the function's gradient and the co-moments. It is never smaller than rounding errors may be.
    Otherwise, a difference between policies in the last digits would seem certain.
    """
    if n < 2:
        return math.nan
    used = np.flatnonzero(gradient)  # so that the bits do not depend on what else is in the group
    gradient, comoment = gradient[used], comoment[np.ix_(used, used)]
    with np.errstate(all="ignore"):  # weights of 1e200 and more give inf or NaN, which the result shows
        variance = float(gradient @ comoment @ gradient)
        rounding = 4 * EPSILON * float(np.abs(gradient) @ np.abs(comoment) @ np.abs(gradient))
    if math.isnan(variance):
        return math.nan
    return math.sqrt(max(variance, rounding) / (n - 1) / n)


def normal(value: float, stderr: float, confidence: float) -> tuple[float, float]:
    """Return the bounds of the interval value ± z stderr."""
    half = z_score(confidence) * stderr
    return value - half, value + half


def student(values: Floats, confidence: float) -> tuple[float, float, float, float]:
    """Return the mean of independent values, its standard error and its t interval, which are NaN for one value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, math.nan, math.nan, math.nan
    stderr = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = t_score(confidence, n - 1) * stderr
    return mean, stderr, mean - half, mean + half


def t_score(confidence: float, freedom: float) -> float:
    """Return the half-width of a t interval, in standard errors.

    >>> round(t_score(0.95, 9), 4)
    2.2622
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def z_score(confidence: float) -> float:
    """Return the half-width of a normal interval, in standard errors.

    >>> round(z_score(0.95), 4)
    1.96
    """
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise DrstreamError(f"{parameter('confidence', confidence)}: it must lie between 0 and 1, e.g. 0.95")
    return NormalDist().inv_cdf((1 + float(confidence)) / 2)
