"""What all results share: an estimate with its interval, the models that were used, and JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drstream.models.calibration import Calibration

if TYPE_CHECKING:
    from drstream.models.binding import Used


@dataclass(frozen=True)
class Estimate:
    """An estimated value with its interval. What is undefined is NaN."""

    value: float
    stderr: float
    low: float
    high: float
    n: int  # events
    ess: float = math.nan  # effective sample size (Σw)² / Σw²; n where no weights are used
    max_weight: float = math.nan
    capped: float = 0.0  # share of the weights that a cap or floor changed

    def __str__(self) -> str:
        return f"{self.value:.6g} [{self.low:.6g}, {self.high:.6g}]"


def plain(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
