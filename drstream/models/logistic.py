"""Logistic regressions of the reward."""

from __future__ import annotations

from drstream.kernels.logistic import logistic
from drstream.kernels.observe import LOGISTIC
from drstream.models.linear import LinearModel
from drstream.models.logistic_fit import Regression
from drstream.types import Floats


class Logistic(Regression, LinearModel):
    """r̂(x, a) = 1 / (1 + exp(-w_a . x - b_a)), a logistic regression for each action, of rewards in [0, 1].

    It minimises C Σ log-loss + |w|² / 2. Objective and names are scikit-learn's. On a log of candidates, there is one
    regression, as that of `Ridge`, which also says what interactions are.

    The fit streams. A first pass reads actions and rewards, and a second pass takes a sample. A dense log that is much
    longer than the sample then takes six or seven more passes. A short or sparse log takes some dozens. Contexts that
    fit into memory are decoded only once. The result is the same for any number of threads. The prediction for an
    action that was never logged is the mean reward of all events.
    """

    choice = False
    linked = LOGISTIC

    def __init__(self, C: float = 1.0, fit_intercept: bool = True, *, interactions: bool = False) -> None:
        super().__init__(C, fit_intercept)
        self.interactions = bool(interactions)

    def link(self, scores: Floats) -> None:
        logistic(scores.reshape(-1))
