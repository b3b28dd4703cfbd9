"""Intervals from merged states: the delta method and the normal distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError


def standard_error(gradient: NDArray[np.float64], comoment: NDArray[np.float64], n: int) -> float:
    """Of a smooth function of means over n events, from its gradient and the co-moments; NaN for n < 2."""
    if n < 2:
        return math.nan
    variance = float(gradient @ comoment @ gradient) / (n - 1)
    return math.sqrt(max(variance, 0.0) / n) if not math.isnan(variance) else math.nan


def normal(value: float, stderr: float, confidence: float) -> tuple[float, float]:
    """The interval value ± z stderr."""
    half = z_score(confidence) * stderr
    return value - half, value + half


def z_score(confidence: float) -> float:
    """
    >>> round(z_score(0.95), 4)
    1.96
    """
    if not 0 < confidence < 1:
        raise DrstreamError(f"confidence={confidence}: it must lie between 0 and 1, e.g. 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)
