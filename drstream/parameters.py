"""Checks of parameters: numbers within a range, whole numbers, estimators of scikit-learn."""

from __future__ import annotations

import importlib
import math
from numbers import Integral, Real
from typing import Any

from drstream.errors import DrstreamError, PolicyError, parameter


def is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def number(
    name: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    above: bool = False,
    who: str = "",
    error: type[DrstreamError] = PolicyError,
) -> float:
    """A finite number that is at least `low`, or above it, and at most `high`."""
    found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (low < found if above else low <= found) or not found <= high or math.isinf(found):
        wanted = f"{'above' if above else 'at least'} {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
        raise error(f"{_of(who)}{parameter(name, value)} must be a number {wanted}")
    return found


def whole(
    name: str,
    value: Any,
    low: int = 1,
    high: int = 2**63 - 1,
    *,
    who: str = "",
    error: type[DrstreamError] = PolicyError,
) -> int:
    """A whole number that is at least `low`."""
    if not is_whole(value) or not low <= value <= high:
        wanted = "of 64 bits" if low < -1 else f"of at least {low}"
        raise error(f"{_of(who)}{parameter(name, value)} must be a whole number {wanted}")
    return int(value)


def _of(who: str) -> str:
    return f"{who}: " if who else ""


def scikit_learn(module: str, who: str, error: type[DrstreamError]) -> Any:
    """A module of scikit-learn, which is an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise error(f"{who} needs scikit-learn, which is not installed: pip install drstream[sklearn]") from None


def check_estimator(estimator: Any, who: str, wanted: str, error: type[DrstreamError]) -> tuple[bool, bool]:
    """Whether an estimator of scikit-learn is a classifier, and whether it is a regressor."""
    if isinstance(estimator, type):
        raise error(f"{who}: {estimator.__name__} is a class: pass an instance, {estimator.__name__}()")
    if not hasattr(estimator, "fit"):
        raise error(f"{who}: a {type(estimator).__name__} has no fit: pass a {wanted} of scikit-learn")
    base = scikit_learn("sklearn.base", who, error)
    try:
        return bool(base.is_classifier(estimator)), bool(base.is_regressor(estimator))
    except (AttributeError, TypeError):  # what a class that is not of scikit-learn's kind gets from it
        return False, False
