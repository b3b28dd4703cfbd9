"""Estimators whose limit is chosen from a grid in the same pass.

A lower limit of the weights means less variance, and more bias. SLOPE (Su, Srinath, Krishnamurthy 2020) goes from no
limit to lower and lower ones, as long as the estimates agree with all earlier ones within their widths, and takes the
last.

A choice from the data leaves a bias that no width shows. So the interval of the chosen estimate is that of the estimate
without a limit, extended to the chosen value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drstream.evaluation.estimators import CAPPED, IMPORTANCE, SHRUNK, SWITCHED, Estimator, form_of
from drstream.evaluation.statistics import Statistics
from drstream.intervals.statistic import Statistic
from drstream.results import Estimate

LAMBDA, CAP, FLOOR = "lambda_", "cap", "floor"  # parameters that can be "auto"
LIMITS = (math.inf, *(2.0**k for k in range(10, -1, -1)))  # of weights
FLOORS = (0.0, *(2.0**-k for k in range(10, 0, -1)))  # of propensities
SLACK = math.sqrt(6) - 1  # SLOPE's constant


@dataclass(frozen=True)
class Grid:
    """The forms of one estimator, from no limit to the lowest."""

    estimator: Estimator
    limits: tuple[float, ...]  # in the units of the parameter: a weight, for shrinkage its square, or a propensity
    forms: tuple[Estimator, ...]
    parameter: str  # that is "auto"


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
    return slope([s.value for s in statistics], [score * stderr(s) for s in statistics])


def rows(grid: Grid, estimates: Sequence[Estimate], chosen: int) -> list[dict[str, Any]]:
    """Return one row for each limit, with its estimate."""
    name, shown = grid.parameter.rstrip("_"), ("value", "stderr", "low", "high")
    return [
        {name: limit, **{field: getattr(e, field) for field in shown}, "chosen": i == chosen}
        for i, (limit, e) in enumerate(zip(grid.limits, estimates, strict=True))
    ]


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
