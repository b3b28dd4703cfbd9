"""Estimators whose limit is chosen from a grid in the same pass.

A lower limit of the weights means less variance, and more bias. There are two rules:

lambda_="auto"            SLOPE (Su, Srinath, Krishnamurthy 2020) goes from no limit to lower and lower ones, as long as
                          the estimates agree with all earlier ones within their widths, and takes the last.
cap="auto", floor="auto"  The smallest risk, bias² + variance, both measured. The bias of a limit is the mean of
                          (w - w₀)(r - r̂). It is taken as large as it may be: its distance from 0, plus its standard
                          error. Without this, noise that a limit happens to remove would count as a gain.

A choice from the data leaves a bias that no width shows. So the interval of the chosen estimate is that of the estimate
without a limit, extended to the chosen value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drstream.evaluation.estimators import CAPPED, IMPORTANCE, SHRUNK, SWITCHED, Estimator, form_of
from drstream.evaluation.explanation import cut_bias
from drstream.evaluation.statistics import Statistics
from drstream.intervals.statistic import Statistic
from drstream.results import Estimate

LAMBDA, CAP, FLOOR = "lambda_", "cap", "floor"  # parameters that can be "auto"
LIMITS = (math.inf, *(2.0**k for k in range(10, -1, -1)))  # of weights
FLOORS = (0.0, *(2.0**-k for k in range(10, 0, -1)))  # of propensities
SLACK = math.sqrt(6) - 1  # SLOPE's constant
CAREFUL = 1.0  # standard errors that are added to a measured bias


@dataclass(frozen=True)
class Grid:
    """The forms of one estimator, from no limit to the lowest."""

    estimator: Estimator
    limits: tuple[float, ...]  # in the units of the parameter: a weight, for shrinkage its square, or a propensity
    forms: tuple[Estimator, ...]
    parameter: str  # that is "auto"

    @property
    def measures_bias(self) -> bool:
        """Whether the limit is chosen by the measured bias and variance, and not by SLOPE."""
        return self.parameter != LAMBDA


def has_limit(estimator: Estimator, parameter: str) -> bool:
    return estimator.weight in ((CAPPED, SHRUNK, SWITCHED) if parameter == LAMBDA else (CAPPED,))


def chosen_by(parameter: str | None) -> frozenset[str]:
    """The limits that are chosen if a parameter is "auto"."""
    return frozenset({LAMBDA, CAP} if parameter == LAMBDA else {parameter} if parameter else ())


def grid_of(estimator: Estimator, parameter: str) -> Grid:
    """Return an estimator with each limit of the grid."""
    weight = estimator.weight
    assert weight is not None
    limits = FLOORS if parameter == FLOOR else LIMITS
    if weight is SHRUNK:
        limits = tuple(limit**2 for limit in limits)
    forms = []
    for limit in limits:
        fixed: tuple[float, ...] = (limit,)
        if weight is CAPPED:
            fixed = (limit, math.inf, 1.0) if parameter == FLOOR else (0.0, limit, 1.0)
        name = f"@{limit:g}"
        limited = replace(weight, name=weight.name + name, fixed=fixed) if limit != limits[0] else IMPORTANCE
        forms.append(form_of(estimator.name, estimator.name + name, limited))
    return Grid(estimator, limits, tuple(forms), parameter)


def expand(chosen: Sequence[Estimator], parameter: str | None) -> list[Estimator]:
    """Return the estimators, with those that have a limit replaced by all of their forms."""
    found: list[Estimator] = []
    for estimator in chosen:
        forms = grid_of(estimator, parameter).forms if parameter and has_limit(estimator, parameter) else (estimator,)
        found += forms
    return found


def choose(grid: Grid, sums: Statistics, j: int, stderr: Callable[[Statistic], float], score: float) -> int:
    """Return the place in the grid of the limit that suits policy j. Widths are `score` standard errors."""
    statistics = [sums.value(j, form) for form in grid.forms]
    stderrs = list(map(stderr, statistics))
    if grid.measures_bias:
        return least_risk([risk(cut_bias(sums, j, form), s) for form, s in zip(grid.forms, stderrs, strict=True)])
    return slope([s.value for s in statistics], [score * s for s in stderrs])


def rows(grid: Grid, sums: Statistics, j: int, estimates: Sequence[Estimate], chosen: int) -> list[dict[str, Any]]:
    """Return one row for each limit of policy j, with its estimate; for a cap or a floor also with bias and risk."""
    found = []
    for i, (limit, form, e) in enumerate(zip(grid.limits, grid.forms, estimates, strict=True)):
        row = {grid.parameter.rstrip("_"): limit, "value": e.value, "stderr": e.stderr, "low": e.low, "high": e.high}
        if grid.measures_bias:
            bias = cut_bias(sums, j, form)
            row |= {"bias": bias[0], "bias_stderr": bias[1], "risk": risk(bias, e.stderr)}
        found.append({**row, "chosen": i == chosen})
    return found


def risk(bias: tuple[float, float], stderr: float) -> float:
    """Return bias² + variance of an estimate; the bias, with its standard error, is as large as it may be.

    >>> risk((0.0, 0.0), 3.0), risk((-1.0, 3.0), 3.0)
    (9.0, 25.0)
    """
    return (abs(bias[0]) + CAREFUL * bias[1]) ** 2 + stderr**2


def least_risk(risks: Sequence[float]) -> int:
    """Return the place of the smallest risk; of equal ones, the first. Undefined risks do not count.

    >>> least_risk([2.0, 1.0, 1.0, float("nan")])
    1
    """
    return min(range(len(risks)), key=lambda i: math.inf if math.isnan(risks[i]) else risks[i])


def slope(values: Sequence[float], widths: Sequence[float]) -> int:
    """Return the index that SLOPE chooses, given estimates and half-widths in order of falling variance.

    >>> slope([0.50, 0.49, 0.30], [0.10, 0.05, 0.01])
    1
    """
    chosen = 0
    for i in range(1, len(values)):
        agrees = all(abs(values[i] - values[j]) <= widths[i] + SLACK * widths[j] for j in range(i))
        if not agrees:
            break
        chosen = i
    return chosen


def extended(estimate: Estimate, unlimited: Estimate) -> Estimate:
    """The estimate with the intervals of the one without a limit, extended to its value."""
    value = estimate.value
    wider = {name: (min(low, value), max(high, value)) for name, (low, high) in unlimited.intervals.items()}
    low, high = next(iter(wider.values()), (math.nan, math.nan))
    return replace(estimate, low=low, high=high, intervals=wider, method=unlimited.method)
