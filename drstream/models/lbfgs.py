"""L-BFGS, and the coordinates in which a problem is round."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.linalg

from drstream.types import Floats

MEMORY, MOST_HALVINGS, ROUNDING = 10, 40, 1e-13  # of L-BFGS


class Preconditioner:
    """Coordinates u in which the second derivatives, H = L L', are the identity: theta = L'⁻¹ u, for each action.

    Of whole matrices the rows are taken in reverse, the intercept first: what is left is about the features' means.
    """

    def __init__(self, curvature: Floats, whole: bool) -> None:
        self.whole = whole
        diagonal = np.einsum("kii->ki", curvature) if whole else curvature
        diagonal[:] = np.where(diagonal > 0, diagonal, 1.0)  # flat directions stay as they are
        if whole:
            about_mean = diagonal[:, :-1] - curvature[:, -1, :-1] ** 2 / diagonal[:, -1:]
            rounding = 1e-15 * curvature.shape[1] * diagonal[:, :-1]
            diagonal[:, :-1] += 1e-8 * np.maximum(about_mean, 0) + rounding  # for features that are collinear
        self.factor = np.linalg.cholesky(curvature[:, ::-1, ::-1]) if whole else np.sqrt(curvature)

    def into(self, theta: Floats) -> Floats:
        return np.einsum("kji,kj->ki", self.factor, theta[:, ::-1]) if self.whole else self.factor * theta

    def back(self, u: Floats) -> Floats:
        return self._solve(u, transposed=True)[:, ::-1] if self.whole else self._solve(u, transposed=True)

    def slope(self, gradient: Floats) -> Floats:
        return self._solve(gradient[:, ::-1] if self.whole else gradient, transposed=False)

    def _solve(self, right: Floats, transposed: bool) -> Floats:
        if not self.whole:
            return right / self.factor
        solve = partial(scipy.linalg.solve_triangular, lower=True, trans="T" if transposed else "N", check_finite=False)
        return np.array([solve(factor, row) for factor, row in zip(self.factor, right, strict=True)])


def lbfgs(at: Callable[[Floats], tuple[float, Floats]], x: Floats, tolerance: float, most: int) -> tuple[Floats, bool]:
    """Where the gradient of a convex function is within the tolerance (Nocedal, Wright 2006, algorithms 7.4 and 3.1).

    SciPy's has bounds to look after: 200,000 parameters cost it more than a pass over 30,000 sparse events.
    """
    value, gradient = at(x)
    history: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(most):
        if np.abs(gradient).max(initial=0.0) <= tolerance:
            return x, True
        direction = -two_loop_recursion(gradient, history)
        slope = float(np.vdot(gradient, direction))
        step = 1.0
        for _ in range(MOST_HALVINGS):
            new_value, new_gradient = at(x + step * direction)
            flat = abs(new_value - value) <= ROUNDING * abs(value)  # then the gradients decide
            new_slope = float(np.vdot(new_gradient, direction))
            if new_value <= value + 1e-4 * step * slope or (flat and abs(new_slope) <= abs(slope)):
                break
            step /= 2
        else:
            return x, False
        change = step * direction, new_gradient - gradient
        bend = float(np.vdot(*change))
        if bend > 0:
            history.append((*change, 1 / bend))
        x, value, gradient = x + change[0], new_value, new_gradient
    return x, False


def two_loop_recursion(gradient: Floats, history: deque[tuple[Floats, Floats, float]]) -> Floats:
    """The inverse second derivatives, as far as they are known, times the gradient."""
    out = gradient.copy()
    factors = []
    for change, bent, inverse in reversed(history):
        factors.append(inverse * float(np.vdot(change, out)))
        out -= factors[-1] * bent
    if history:
        _, bent, inverse = history[-1]
        out /= inverse * float(np.vdot(bent, bent))
    for (change, bent, inverse), factor in zip(history, reversed(factors), strict=True):
        out += (factor - inverse * float(np.vdot(bent, out))) * change
    return out
