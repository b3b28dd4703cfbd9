"""Logistic regressions of the reward."""

from __future__ import annotations

from drstream.kernels.logistic import logistic
from drstream.models.linear import LinearModel
from drstream.models.regression import Regression
from drstream.types import Floats


class Logistic(Regression, LinearModel):
    """r̂(x, a) = 1 / (1 + exp(-w_a . x - b_a)), a logistic regression for each action, of rewards in [0, 1].

    Minimises C Σ log-loss + |w|² / 2; objective and names are scikit-learn's. It streams: one look at actions and
    rewards, one pass that takes a sample, and then six or seven on a dense log much longer than that, some dozens on a
    short or sparse one, over memory if the contexts fit. The same result for any number of threads. An action that was
    never logged is predicted at the mean reward of all events.
    """

    choice = False

    def __init__(self, C: float = 1.0, fit_intercept: bool = True) -> None:
        super().__init__(C, fit_intercept)

    def link(self, scores: Floats) -> None:
        logistic(scores.reshape(-1))
