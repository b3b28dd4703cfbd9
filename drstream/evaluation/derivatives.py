"""Derivatives of estimators by the means that they are functions of.

An estimator of this package is smooth, and takes complex numbers: the imaginary part of f(m + i h) is h f'(m), without
the cancellation of a difference, for any small h (Squire and Trapp 1998). A function of the user's own may refuse
complex numbers, or drop their imaginary part, as abs does. Then central differences are taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drstream.types import Floats

TINY = 1e-20  # imaginary step, as a part of a mean
STEP = 6e-6  # of central differences: the cube root of a rounding error
CLOSE = 1e-6  # how far both may be apart


def gradient(function: Callable[[Any], Any], means: Floats, places: Sequence[int], *, checked: bool) -> Floats:
    """Return the derivatives by the means at these places. Not `checked`: the function is known to be smooth."""
    size = np.abs(means[places])
    size = np.where(size > 0, size, max(1.0, float(size.max(initial=0.0))))
    with np.errstate(all="ignore"):
        if not checked:
            return _complex(function, means, places, TINY * size)
        central = _central(function, means, places, STEP * size)
        rounding = 1e-8 * abs(float(function(means))) / size
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)
                found = _complex(function, means, places, TINY * size)
        except (TypeError, ValueError, np.exceptions.ComplexWarning):
            return central
        return found if (np.abs(found - central) <= CLOSE * np.abs(central) + rounding).all() else central


def _complex(function: Callable[[Any], Any], means: Floats, places: Sequence[int], steps: Floats) -> Floats:
    out = np.empty(len(places))
    for i, place in enumerate(places):
        point = means.astype(complex)
        point[place] += 1j * steps[i]
        out[i] = np.imag(function(point)) / steps[i]
    return out


def _central(function: Callable[[Any], Any], means: Floats, places: Sequence[int], steps: Floats) -> Floats:
    out = np.empty(len(places))
    for i, place in enumerate(places):
        ends = []
        for sign in (1, -1):
            point = means.copy()
            point[place] += sign * steps[i]
            ends.append(float(function(point)))
        out[i] = (ends[0] - ends[1]) / (2 * steps[i])
    return out
