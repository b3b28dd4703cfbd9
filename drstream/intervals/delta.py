"""The methods "normal" and "t": value ± a multiple of the standard error."""

from __future__ import annotations

from drstream.intervals import basic
from drstream.intervals.statistic import Limits, Statistic


def normal(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return value ± z stderr."""
    return basic.normal(statistic.value, stderr(statistic), limits.confidence)


def student(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return value ± t stderr with n - 1 degrees of freedom."""
    half = basic.t_score(limits.confidence, statistic.n - 1) * stderr(statistic)
    return statistic.value - half, statistic.value + half


def stderr(statistic: Statistic) -> float:
    return basic.standard_error(statistic.gradient, statistic.comoment, statistic.n)
