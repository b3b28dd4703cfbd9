"""L-BFGS, and coordinates in which a problem is round, that is, its second derivatives are about the identity."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from functools import partial

import numpy as np
import scipy.linalg

from drstream.types import Floats

MEMORY, MOST_HALVINGS, ROUNDING = 10, 40, 1e-13  # rounding is relative to the objective


class Preconditioner:
    """Coordinates u in which the second derivatives, H = L L', are the identity: theta = L'⁻¹ u, for each action.

    `whole` matrices are factored in reverse order, with the intercept first. The rest of the factor is then about the
    features' means. Otherwise, only the diagonal of H is given.
    """

    def __init__(self, curvature: Floats, whole: bool) -> None:
        self.whole = whole
        diagonal = np.einsum("kii->ki", curvature) if whole else curvature
        diagonal[:] = np.where(diagonal > 0, diagonal, 1.0)  # flat directions are not scaled
        if whole:
            about_mean = diagonal[:, :-1] - curvature[:, -1, :-1] ** 2 / diagonal[:, -1:]
            rounding = 1e-15 * curvature.shape[1] * diagonal[:, :-1]
            diagonal[:, :-1] += 1e-8 * np.maximum(about_mean, 0) + rounding  # for collinear features
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


def lbfgs(x: Floats, tolerance: float, most: int) -> Generator[Floats, tuple[float, Floats], tuple[Floats, bool]]:
    """Minimise a convex function from x on (Nocedal, Wright 2006, algorithms 7.4 and 3.1).

    Yield points, and be sent the value and the gradient of the function there. So passes for several functions can be
    made at once. Return the last x, and whether its gradient is within the tolerance. SciPy's L-BFGS also handles
    bounds, and with 200,000 parameters that costs more than a pass over 30,000 sparse events.
    """
    value, gradient = yield x
    history: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(most):
        if np.abs(gradient).max(initial=0.0) <= tolerance:
            return x, True
        direction = -two_loop_recursion(gradient, history)
        slope = float(np.vdot(gradient, direction))
        step = 1.0
        for _ in range(MOST_HALVINGS):
            new_value, new_gradient = yield x + step * direction
            flat = abs(new_value - value) <= ROUNDING * abs(value)  # then the slopes decide
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
    """Return the gradient times the inverse second derivatives, as estimated from the history."""
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
