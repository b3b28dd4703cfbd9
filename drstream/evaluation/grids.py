"""Estimators whose limit is chosen from a grid in the same pass, by SLOPE (Su, Srinath, Krishnamurthy 2020).

A lower limit means smaller weights: less variance, more bias. SLOPE goes from no limit to lower and lower ones, as long
as the estimates agree with all earlier ones within their widths, and takes the last.

A choice from the data leaves a bias that no width shows. So the interval of the chosen estimate is that of the estimate
without a limit, extended to the chosen value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from drstream.evaluation.estimators import CAPPED, IMPORTANCE, SHRUNK, SWITCHED, Estimator, form_of

AUTO = "auto"
LIMITS = (math.inf, *(2.0**k for k in range(10, -1, -1)))  # of weights
SLACK = math.sqrt(6) - 1  # SLOPE's constant


@dataclass(frozen=True)
class Grid:
    """The forms of one estimator, from no limit to the lowest."""

    estimator: Estimator
    limits: tuple[float, ...]  # in the units of the parameter: a weight or, for shrinkage, its square
    forms: tuple[Estimator, ...]


def has_limit(estimator: Estimator) -> bool:
    return estimator.weight in (CAPPED, SHRUNK, SWITCHED)


def grid_of(estimator: Estimator) -> Grid:
    """Return an estimator with each limit of the grid."""
    weight = estimator.weight
    assert weight is not None
    limits = tuple(limit**2 for limit in LIMITS) if weight is SHRUNK else LIMITS
    forms = []
    for limit in limits:
        fixed = (0.0, limit) if weight is CAPPED else (limit,)
        name = f"@{limit:g}"
        limited = replace(weight, name=weight.name + name, fixed=fixed) if limit < math.inf else IMPORTANCE
        forms.append(form_of(estimator.name, estimator.name + name, limited))
    return Grid(estimator, limits, tuple(forms))


def expand(chosen: Sequence[Estimator]) -> list[Estimator]:
    """Return the estimators, with those that have a limit replaced by all of their forms."""
    found: list[Estimator] = []
    for estimator in chosen:
        found += grid_of(estimator).forms if has_limit(estimator) else (estimator,)
    return found


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
