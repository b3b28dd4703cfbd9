"""The runs of direct loss minimisation: the steps of each, and when it stops.

A run has weights θ (K, d + 1), with the intercepts last. Each pass over the data scores the weights `theta` of every
run, with the ε of the run. Then `hear` tells the run what the pass has found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from drstream.types import Floats

Found = tuple[float, Floats, float]  # what a pass finds for a run: loss, move, margin
FIRST_STEP = 0.1  # of a run that backtracks, as a share of the weights
LARGEST_STEP = 0.5
GROWTH = 1.3  # of the step after a success
FIRST_SHARE = 1.0  # ε at first, as a share of the mean margin


class Run:
    """One run: the weights of the next pass, and the best weights so far."""

    def __init__(self, theta: Floats, epochs: int) -> None:
        self.theta = self.best = theta
        self.most = epochs
        self.loss = math.inf  # of the best weights
        self.first_loss = math.nan  # of the weights at the start
        self.epsilon = 0.0  # of the next pass
        self.epochs = 0
        self.converged = False
        self.needs_margin = False  # in the next pass

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def hear(self, loss: float, move: Floats, margin: float) -> None:
        """Learn from a pass with the present weights.

        loss    Their mean loss.
        move    The mean over events of x [a = a₁] - x [a = a₂].
        margin  The mean difference between the largest score and the second; 0 unless a run needs it.
        """
        self.first_loss = loss if math.isnan(self.first_loss) else self.first_loss
        self._hear(loss, move, margin)

    def _hear(self, loss: float, move: Floats, margin: float) -> None:
        raise NotImplementedError


class Decaying(Run):
    """Appendix D: every step is taken, and the learning rate decays. After the last epoch, one more pass scores θ."""

    def __init__(self, theta: Floats, epochs: int, epsilon: float, rate: float, decay: float, tolerance: float) -> None:
        super().__init__(theta, epochs)
        self.epsilon, self.rate, self.decay, self.tolerance = epsilon, rate, decay, tolerance
        self._scored = False

    @property
    def done(self) -> bool:
        return self.converged or self._scored

    def _hear(self, loss: float, move: Floats, margin: float) -> None:
        if loss < self.loss:
            self.loss, self.best = loss, self.theta
        self._scored = self.epochs == self.most
        if not self._scored:
            self.epochs += 1
            step = self.rate * self.epochs**-self.decay * move
            size = _norm(self.theta)
            self.converged = (_norm(step) / size if size else math.inf) <= self.tolerance
            self.theta = self.theta + step


class Backtracking(Run):
    """Only steps that reduce the loss are taken. A failed step is undone, and halves the step and ε.

    The loss of an argmax policy does not depend on the scale of θ. So a step is a share of the norm of θ. ε is a share
    of the mean margin at the start, and grows with the norm. It must shrink: the moves are a gradient of the loss in
    the limit of ε = 0 only, and a large ε makes them smooth. The run ends when a step would be as small as the
    tolerance, or when no event asks for a move.
    """

    def __init__(self, theta: Floats, epochs: int, tolerance: float, spent: int = 0) -> None:
        super().__init__(theta, epochs)
        self.tolerance, self.epochs = tolerance, spent
        self.step, self.share = FIRST_STEP, FIRST_SHARE
        self.needs_margin = True
        self._unit = math.nan  # margin of weights whose norm is 1
        self._move: Floats | None = None  # of the best weights, for the present ε; None: the next pass finds it

    @property
    def done(self) -> bool:
        return self.converged or self.epochs >= self.most

    def _hear(self, loss: float, move: Floats, margin: float) -> None:
        self.epochs += 1
        if self.needs_margin:
            self.needs_margin, self.loss = False, loss
            self._unit = margin / size if (size := _norm(self.theta)) else 0.0
        elif self._move is None:
            self._move = move
        elif loss < self.loss:
            self.best, self.loss, self._move = self.theta, loss, move
            self.step = min(self.step * GROWTH, LARGEST_STEP)
        else:
            self._move = None
            self.step, self.share = self.step / 2, self.share / 2
        self._next()

    def _next(self) -> None:
        """Choose the weights and the ε of the next pass: a step from the best weights, or those once more."""
        size = _norm(self.best)
        self.theta, self.epsilon = self.best, self.share * self._unit * size
        length = 0.0 if self._move is None else _norm(self._move)
        self.converged = self.step <= self.tolerance or (self._move is not None and not length)
        if self._move is not None and length:
            self.theta = self.best + (self.step * size / length) * self._move


def descend(runs: list[Run], pass_over: Callable[[Sequence[Run]], list[Found]]) -> list[Run]:
    """Make passes until all runs are done. Runs that are done are left out of later passes."""
    going = [run for run in runs if not run.done]
    while going:
        for run, found in zip(going, pass_over(going), strict=True):
            run.hear(*found)
        going = [run for run in going if not run.done]
    return runs


def _norm(values: Floats) -> float:
    return math.sqrt(float(np.square(values).sum()))  # not by BLAS, whose bits depend on its threads
