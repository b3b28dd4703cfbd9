"""Checks of parameters: numbers within a range, whole numbers, names, estimators of scikit-learn."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from drstream.errors import DrstreamError, PolicyError, parameter, phrase, suggest


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
    """Check that a value is a finite number that is at least `low`, or above it, and at most `high`.

    who  The class whose parameter it is. Without one, it is a parameter of a function, and an option of a command.
    """
    found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (low < found if above else low <= found) or not found <= high or math.isinf(found):
        wanted = f"{'above' if above else 'at least'} {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
        what = "a finite number" if math.isinf(found) else "a number"
        raise error(f"{_named(name, value, who)} must be {what} {wanted}")
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
    """Check that a value is a whole number that is at least `low` and at most `high`."""
    if not is_whole(value) or not low <= value <= high:
        wanted = "of 64 bits" if low < -1 else f"of at least {low}"
        wanted += f" and at most {high}" if is_whole(value) and value > high else ""
        raise error(f"{_named(name, value, who)} must be a whole number {wanted}")
    return int(value)


def one_of(
    name: str, value: Any, names: Sequence[str], *, who: str = "", error: type[DrstreamError] = PolicyError
) -> str:
    """Check that a value is one of these names."""
    if not isinstance(value, str) or value not in names:
        raise error(f"{_named(name, value, who)}: {suggest(str(value), names)}")
    return value


def truth(name: str, value: Any, *, who: str = "", error: type[DrstreamError] = PolicyError) -> bool:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise error(f"{_named(name, value, who)} must be True or False")
    return value


def precision(value: Any) -> str | None:
    """Check the parameter precision=: None, for that of the contexts, or "float64"."""
    if value is not None and not (isinstance(value, str) and value == "float64"):
        by_contexts = phrase("None, which follows the type of the contexts,", "left out, to follow the contexts' type,")
        double = phrase('"float64"', "float64")
        raise DrstreamError(f"{parameter('precision', value)}: it must be {by_contexts} or {double}")
    return value


def _named(name: str, value: Any, who: str) -> str:
    return f"{who}: {name}={value!r}" if who else parameter(name, value)


def scikit_learn(module: str, who: str, error: type[DrstreamError]) -> Any:
    """Import a module of scikit-learn, which is an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise error(f"{who} needs scikit-learn, which is not installed: pip install drstream[sklearn]") from None


def check_estimator(estimator: Any, who: str, wanted: str, error: type[DrstreamError]) -> tuple[bool, bool]:
    """Check an estimator, and return whether it is a classifier and whether it is a regressor."""
    if isinstance(estimator, type):
        raise error(f"{who}: {estimator.__name__} is a class: pass an instance, {estimator.__name__}()")
    if not hasattr(estimator, "fit"):
        raise error(f"{who}: a {type(estimator).__name__} has no fit: pass a {wanted} of scikit-learn")
    base = scikit_learn("sklearn.base", who, error)
    try:
        return bool(base.is_classifier(estimator)), bool(base.is_regressor(estimator))
    except (AttributeError, TypeError):  # scikit-learn raises these for objects of other libraries
        return False, False


def is_regressor(estimator: Any) -> bool:
    """Whether an object is a regressor with the interface of scikit-learn. Without scikit-learn, there is none."""
    try:
        return bool(importlib.import_module("sklearn.base").is_regressor(estimator))
    except (ImportError, AttributeError, TypeError):  # the last two for objects of other libraries
        return False


def unfitted(estimator: Any) -> Any:
    """Return an unfitted estimator with the same parameters."""
    try:
        return importlib.import_module("sklearn.base").clone(estimator)
    except RuntimeError:  # scikit-learn refuses CatBoost's, which copy some parameters
        return type(estimator)(**copy.deepcopy(estimator.get_params(deep=False)))
