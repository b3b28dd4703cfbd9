"""Logistic regressions of the reward."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drstream.errors import ModelError
from drstream.models import descent
from drstream.models.linear import LinearModel
from drstream.models.trained import open_log

Floats = NDArray[np.float64]


class Logistic(LinearModel):
    """r̂(x, a) = 1 / (1 + exp(-w_a . x - b_a)), a logistic regression for each action, of rewards in [0, 1].

    Minimises C Σ log-loss + |w|² / 2; objective and names are scikit-learn's. It streams: one look at actions and
    rewards, one pass that takes a sample, and then six or seven on a dense log much longer than that, some dozens on a
    short or sparse one, over memory if the contexts fit. The same result for any number of threads. An action that was
    never logged is predicted at the mean reward of all events.
    """

    def __init__(self, C: float = 1.0, fit_intercept: bool = True) -> None:
        self.C, self.fit_intercept = positive("Logistic", C), fit_intercept

    def fit(self, log: Any, *, threads: int | None = None, executor: Any = None, progress: Any = False) -> Self:
        log = open_log(log).without_propensities()
        how = {"threads": threads, "executor": executor, "progress": progress}
        found = descent.solve(log, "Logistic", choice=False, penalty=1 / self.C, intercept=self.fit_intercept, **how)
        self.remember(log, found.events, found.rewards[:2], found.skipped)
        self.coef_, self.intercept_ = found.coef, found.intercept
        self.n_passes_ = found.passes
        return self

    def link(self, scores: Floats) -> None:
        from drstream.kernels.logistic import logistic  # compiled only for such models

        logistic(scores.reshape(-1))


def positive(who: str, C: Any) -> float:
    if not isinstance(C, int | float | np.number) or not 0 < C < np.inf:
        raise ModelError(f"{who}: C={C!r} must be a positive number")
    return float(C)
