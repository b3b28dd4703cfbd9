"""How well a reward model predicts the logged rewards: R², and means by decile of its predictions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.kernels import calibration as kernels
from drstream.results import ModelSummary
from drstream.types import Floats


class Calibration:
    """Sums over predictions r̂(x_k, a_k) and rewards. Those of parts can be merged."""

    def __init__(self, pivot: float) -> None:
        self.pivot = pivot  # a typical reward
        self.table = np.zeros((3, kernels.BUCKETS))
        self.sums = np.zeros(4)  # events, r - pivot, its square, (r - r̂)²
        self.predictions = 0  # number of predictions, over all actions
        self.clamped = 0  # number of predictions outside of the clamp
        self.unpredicted = 0  # number of events before the first model: there r̂ is 0
        self.least_propensity = math.inf  # smallest propensity that a model or policy gave

    def __getstate__(self) -> dict[str, Any]:
        """All of it, but of the table only the buckets in use: 120 kB of zeros would travel with each part's sums."""
        used = np.flatnonzero(self.table[0])
        return {**vars(self), "table": (used, self.table[:, used])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        used, columns = state["table"]
        table = np.zeros((3, kernels.BUCKETS))
        table[:, used] = columns
        vars(self).update(state, table=table)

    def add(self, prediction: Floats, reward: Floats, unpredicted: int = 0) -> None:
        """Add events. The first `unpredicted` of them come before the first model, and only count as such."""
        if unpredicted:
            self.unpredicted += unpredicted
            prediction, reward = prediction[unpredicted:], reward[unpredicted:]
        kernels.tally(prediction, reward, self.pivot, self.table, self.sums)

    def merge(self, other: Calibration) -> None:
        kernels.merge_tables(self.table, self.sums, other.table, other.sums)
        self.predictions += other.predictions
        self.clamped += other.clamped
        self.unpredicted += other.unpredicted
        self.least_propensity = min(self.least_propensity, other.least_propensity)

    @property
    def clamped_share(self) -> float:
        return self.clamped / self.predictions if self.predictions else 0.0

    @property
    def r2(self) -> float:
        """1 - Σ(r - r̂)² / Σ(r - mean r)² over the logged events; NaN if all rewards are the same."""
        events, first, second, misses = self.sums
        if not events:
            return math.nan
        spread = second - first**2 / events
        mean = self.pivot + first / events
        rounding = max(1e-11 * second, events * (1e-14 * mean) ** 2)  # in sums about the pivot, and in the pivot itself
        return float(1 - misses / spread) if spread > rounding else math.nan

    def deciles(self) -> pa.Table:
        """Return the mean prediction and the mean reward for each decile of the events, ordered by r̂.

        The bounds of a decile are exact up to 3 % of their distance from a typical reward. If many predictions are the
        same, some deciles are empty and left out.
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


def summarised(about: ModelSummary, calibration: Calibration, *, model: bool, logger: bool) -> ModelSummary:
    """Return what a result reports about models, with what a pass has seen.

    about          What was known before the pass.
    model, logger  Whether there is a reward model, and one of the propensities.
    """
    return replace(
        about,
        unpredicted=calibration.unpredicted,
        least_propensity=calibration.least_propensity if logger else math.nan,
        r2=calibration.r2 if model else math.nan,
        calibration=calibration.deciles() if model else None,
        clamped=calibration.clamped_share if model else 0.0,
    )
