"""The methods. Each is one entry of `ALL`; nothing else in the package knows its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from drstream import parameters
from drstream.errors import DrstreamError, parameter, suggest
from drstream.intervals import (
    anytime,
    basic,
    bernstein,
    freedman,
    gamma,
    likelihood,
    needs,
    resampling,
    smoothing,
    tails,
)
from drstream.intervals.needs import check_range
from drstream.intervals.statistic import UNDEFINED, Limits, Side, Statistic

__all__ = ["ALL", "Method", "check_needs", "check_range", "check_statistic", "choose", "interval", "p_value"]


CLUSTER = "cluster"
SMALLEST_P = 1e-12  # smaller p-values are not told apart


@dataclass(frozen=True)
class Method:
    """A way to compute the bounds of an interval.

    bounds  Computes the bounds.
    needs   What it needs, of "reward_range", "max_weight_bound" and "cluster", which the user gives, and "buckets" and
            "stretches", which the engine gathers; "spread", which the engine gathers, says that the bounds allow for
            propensity_error=.
    about   One sentence for help texts.
    by_event
            Whether it takes events for independent, whatever clusters they are in.
    check   Checks that the limits suffice for some sides, and raises an error otherwise.
    says    Returns words about some bounds, which follow the name of the method.
    """

    name: str
    bounds: Callable[[Statistic, Limits], tuple[float, float]]
    needs: frozenset[str] = frozenset()
    about: str = ""
    check: Callable[[Sequence[Side], Limits], None] | None = None
    says: Callable[[Statistic, Limits], str] | None = None
    by_event: bool = False


def normal(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return value ± z standard errors; with clusters, those of a jackknife over clusters."""
    if resampling.flat(statistic):
        return UNDEFINED
    if limits.clustered:
        stderr = resampling.jackknife_stderr(statistic)
    else:
        stderr = basic.standard_error(statistic.gradient, statistic.comoment, statistic.n)
    return basic.normal(statistic.value, stderr, limits.confidence)


ALL: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            tails.NAME,
            tails.tails,
            frozenset({"buckets"}),
            "the default: allows for skewed estimates, heavy tails, few events and few clicks",
        ),
        Method("normal", normal, about="value ± z standard errors, over clusters if there are any; for large logs"),
        Method(
            "bootstrap",
            resampling.bootstrap,
            frozenset({"buckets"}),
            "percentiles of a Poisson bootstrap, over clusters if there is a cluster column",
        ),
        Method(
            CLUSTER,
            tails.cluster,
            frozenset({"cluster", "buckets"}),
            "a jackknife over clusters, for events of one user that depend on each other; the default with cluster=",
        ),
        Method(
            bernstein.NAME,
            bernstein.bernstein,
            frozenset({"reward_range", "max_weight_bound"}),
            "empirical Bernstein bound: guaranteed coverage for independent events, and wide",
            bernstein.check,
            by_event=True,
        ),
        Method(
            freedman.NAME,
            freedman.freedman,
            frozenset({"reward_range", "max_weight_bound", "spread"}),
            "the paper's finite-sample bound: guaranteed coverage if its constants are given, also if propensities err",
            freedman.check,
            freedman.says,
            by_event=True,
        ),
        Method(
            anytime.NAME,
            anytime.anytime,
            frozenset({"reward_range", "stretches"}),
            "confidence sequence: guaranteed coverage at all times at once, also if the logging policy learns",
            anytime.check,
            by_event=True,
        ),
        Method(
            likelihood.NAME,
            likelihood.likelihood,
            frozenset({"reward_range"}),
            "empirical likelihood, over clusters if there are any: allows for all weights that the log may have missed",
            likelihood.check,
        ),
        Method(
            gamma.NAME,
            gamma.gamma,
            frozenset({"reward_range"}),
            "weighted sum of clicks, over clusters if there is a cluster column: for few clicks or a few large weights",
            gamma.check,
        ),
        Method(
            smoothing.LS,
            smoothing.logarithmic,
            frozenset({"reward_range", "smooth"}),
            "logarithmic smoothing: guaranteed coverage for independent events without a bound of the weights",
            smoothing.check,
            by_event=True,
        ),
        Method(
            smoothing.IX,
            smoothing.exploring,
            frozenset({"reward_range", "explored"}),
            "implicit exploration: the same, a little wider",
            smoothing.check,
            by_event=True,
        ),
    )
}


def choose(names: str | Sequence[str]) -> list[Method]:
    """Return methods by their names, each once.

    >>> [method.name for method in choose(["normal", "cluster"])]
    ['normal', 'cluster']
    """
    wanted = list(names) if isinstance(names, list | tuple) else [str(names)]
    for name in wanted:
        if name not in ALL:
            raise DrstreamError(f"{parameter('interval', name)}: no such interval; {suggest(str(name), ALL)}")
    return [ALL[name] for name in dict.fromkeys(wanted)]


def check_needs(method: Method, reward_range: Any, max_weight_bound: Any, cluster: Any) -> None:
    """Check that the user gave what a method needs, and that it makes sense."""
    if check_range(reward_range) is None and "reward_range" in method.needs:
        raise needs.missing_range(method.name)
    if max_weight_bound is not None:
        parameters.number("max_weight_bound", max_weight_bound, 1.0, error=DrstreamError)
    elif "max_weight_bound" in method.needs:
        raise needs.missing_bound(method.name)
    if cluster is None and "cluster" in method.needs:
        raise needs.missing_cluster(method.name)


def check_statistic(method: Method, statistic: Statistic, limits: Limits) -> None:
    """Check that the limits suffice for a statistic: some sides need a bound on the weights, and others do not."""
    if method.check is not None and statistic.sides:
        method.check(statistic.sides, limits)


def interval(method: Method, statistic: Statistic, limits: Limits, bias: float = 0.0) -> tuple[float, float]:
    """Return the bounds of an interval, within the range of the rewards; NaN if undefined, or if it misses that range.

    bias  How far the statistic may be off by wrong propensities. Methods that allow for these themselves leave it out.
    """
    if math.isnan(statistic.value) or statistic.n < 2:
        return UNDEFINED
    with np.errstate(all="ignore"):  # weights of 1e200 and more give inf or NaN, which the bounds show
        low, high = method.bounds(statistic, limits)
    if math.isnan(low) or math.isnan(high):
        return UNDEFINED
    if "spread" not in method.needs:
        low, high = low - bias, high + bias
    if math.isnan(low) or limits.reward_range is None or not statistic.sides:
        return float(low), float(high)
    least, most = _possible(statistic.sides, *limits.reward_range)
    if low > most or high < least:
        return UNDEFINED
    return float(min(max(low, least), most)), float(min(max(high, least), most))


def p_value(method: Method, statistic: Statistic, limits: Limits, bias: float = 0.0) -> float:
    """Return the p-value of a difference: the smallest α at which its 1 - α interval excludes 0."""
    if math.isnan(statistic.value) or math.isnan(interval(method, statistic, limits, bias)[0]):
        return math.nan

    def excludes(log_alpha: float) -> bool:
        low, high = interval(method, statistic, replace(limits, confidence=1 - math.exp(log_alpha)), bias)
        return low > 0 or high < 0

    # by bisection: where bounds end is no function that has an inverse
    least, most = math.log(SMALLEST_P), math.log1p(-1e-9)
    if excludes(least):
        return SMALLEST_P
    if not excludes(most):
        return 1.0
    while most - least > 1e-4:
        middle = (least + most) / 2
        least, most = (least, middle) if excludes(middle) else (middle, most)
    return math.exp(most)


def _possible(sides: Sequence[Side], low: float, high: float) -> tuple[float, float]:
    """Return the range of a value, or of a difference."""
    ends = [sorted((side.sign * low, side.sign * high)) for side in sides]
    return sum(end[0] for end in ends), sum(end[1] for end in ends)
