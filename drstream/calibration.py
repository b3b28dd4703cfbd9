"""How well a reward model predicts the rewards that were logged: R², and means by decile of its predictions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.kernels import calibration as kernels

if TYPE_CHECKING:
    from drstream.models.binding import Used

Floats = NDArray[np.float64]


class Calibration:
    """A tally of predictions r̂(x_k, a_k) and rewards; tallies of parts merge."""

    def __init__(self, pivot: float) -> None:
        self.pivot = pivot  # a typical reward
        self.table = np.zeros((3, kernels.BUCKETS))
        self.sums = np.zeros(4)  # events, r - pivot, its square, (r - r̂)²
        self.predictions = 0  # of any action ...
        self.clamped = 0  # ... of which so many were outside of the range
        self.least_propensity = math.inf  # of those that were not in the log

    def add(self, prediction: Floats, reward: Floats) -> None:
        kernels.tally(prediction, reward, self.pivot, self.table, self.sums)

    def merge(self, other: Calibration) -> None:
        self.table += other.table
        self.sums += other.sums
        self.predictions += other.predictions
        self.clamped += other.clamped
        self.least_propensity = min(self.least_propensity, other.least_propensity)

    @property
    def clamped_share(self) -> float:
        return self.clamped / self.predictions if self.predictions else 0.0

    @property
    def r2(self) -> float:
        """1 - Σ(r - r̂)² / Σ(r - mean r)² over the logged events; NaN where all rewards are the same."""
        events, first, second, misses = self.sums
        if not events:
            return math.nan
        spread = second - first**2 / events
        mean = self.pivot + first / events
        rounding = max(1e-11 * second, events * (1e-14 * mean) ** 2)  # of sums about the pivot, and of the pivot itself
        return float(1 - misses / spread) if spread > rounding else math.nan

    def deciles(self) -> pa.Table:
        """Events in the order of r̂, in ten parts about equally large: mean prediction and mean reward of each.

        Bounds are right to 3 % of their distance from a typical reward. Where many predictions are the same, some of
        the ten are empty and left out.
        """
        events, predicted, reward = self.table
        middle = np.cumsum(events) - events / 2
        decile = np.minimum((10 * middle / max(events.sum(), 1)).astype(np.int64), 9)
        count, prediction, found = (np.bincount(decile, row, 10) for row in (events, predicted, reward))
        some = count > 0
        return pa.table(
            {
                "decile": np.flatnonzero(some) + 1,
                "events": count[some].astype(np.int64),
                "predicted": prediction[some] / count[some],
                "reward": found[some] / count[some],
            }
        )


class WithModels:
    """What a result says of the models that were used."""

    crossfit: int | None  # folds that models were fitted by
    _crossfitted: tuple[bool, bool]
    estimated_propensities: bool
    least_propensity: float  # of those that a model, or a policy given as propensity=, says; NaN for the log's own
    _calibration: Calibration | None

    def _set_models(self, used: Used, calibration: Calibration) -> None:
        self.crossfit = None if used.folds is None else used.folds.count
        self.estimated_propensities = used.logger is not None and used.logger.estimated
        self.least_propensity = calibration.least_propensity if used.logger is not None else math.nan
        self._crossfitted = used.crossfitted
        self._calibration = None if used.model is None else calibration

    @property
    def r2(self) -> float:
        """Of the reward model on the logged events; NaN without one."""
        return math.nan if self._calibration is None else self._calibration.r2

    @property
    def calibration(self) -> pa.Table | None:
        """Mean prediction and mean reward of the logged events by decile of the prediction; None without a model."""
        return None if self._calibration is None else self._calibration.deciles()

    @property
    def clamped(self) -> float:
        """Share of the predictions, over all actions, that the clamp changed."""
        return 0.0 if self._calibration is None else self._calibration.clamped_share

    def about_models(self) -> dict[str, Any]:
        table = self.calibration
        model = None
        if table is not None:
            model = {"r2": self.r2, "clamped": self.clamped, "calibration": table.to_pylist()}
        said = {"crossfit": self.crossfit, "estimated_propensities": self.estimated_propensities}
        return {**said, "least_propensity": self.least_propensity, "model": model}

    def how(self) -> str:
        """The models, in words; nothing where there are none."""
        by_fold = [f", cross-fitted in {self.crossfit} folds" if fitted else "" for fitted in self._crossfitted]
        said = []
        if self._calibration is not None:
            clamped = f", {self.clamped:.2%} of its predictions clamped" if self.clamped else ""
            said.append(f"reward model{by_fold[0]}: R² {self.r2:.3g} on the logged events{clamped}")
        if not math.isnan(self.least_propensity):
            whose = "estimated" if self.estimated_propensities else "of the policy given as propensity="
            said.append(f"propensities {whose}{by_fold[1]}: at least {self.least_propensity:.3g}")
        return "; ".join(said)
