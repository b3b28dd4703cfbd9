"""What results have in common: an estimate with its interval, a summary of the models, and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from drstream.errors import DrstreamError
from drstream.findings import LOOK, Finding


@dataclass(frozen=True)
class Estimate:
    """An estimated value with its interval. Undefined numbers are NaN.

    value      The estimate.
    stderr     Its standard error.
    low, high  The interval that is shown, by `method`.
    n          Number of events.
    ess        Effective sample size (Σw)² / Σw²; n if no weights are used.
    max_weight The largest weight.
    capped     Share of the weights that the estimator made smaller.
    intervals  (low, high) by the name of each method that was asked for.
    method     How the shown interval was made; empty if there is none.
    warning    A finding that says not to use the number; empty if there is none.
    """

    value: float
    stderr: float
    low: float
    high: float
    n: int  # events
    ess: float = math.nan  # effective sample size (Σw)² / Σw²; n if no weights are used
    max_weight: float = math.nan
    capped: float = 0.0  # share of the weights that the estimator reduced
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    method: str = ""
    warning: str = ""

    def __str__(self) -> str:
        shown = f"{self.value:.6g}" if math.isnan(self.low) else f"{self.value:.6g} [{self.low:.6g}, {self.high:.6g}]"
        return f"{shown} ({self.warning})" if self.warning else shown


class Note(str):
    """A sentence that the reader of a result should know. Its `kind` and `level`, as of a finding, are for code."""

    kind: str
    level: str

    def __new__(cls, text: str, kind: str = "", level: str = LOOK) -> Self:
        note = super().__new__(cls, text)
        note.kind, note.level = kind, level
        return note

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        return str(self), self.kind, self.level

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """The note of a finding."""
        return cls(finding.message, finding.check, finding.level)


def stamped(table: pa.Table, provenance: dict[str, Any], **more: Any) -> pa.Table:
    """Return a table that says in the metadata of its schema, under b"drstream", what it was made from.

    more  Other entries of the metadata, as JSON.
    """
    about = {**more, "drstream": provenance} if provenance else more
    return table.replace_schema_metadata({key: json.dumps(value, default=str) for key, value in about.items()} or None)


VERSIONS = {"evaluate": 1, "replay": 1, "plan": 1, "audit": 1, "describe": 1}  # docs/json.md says when they change


def schema_name(name: str) -> str:
    """Return the name of a JSON document's schema, drstream/schemas/NAME.json, with its version.

    >>> schema_name("evaluate")
    'drstream.evaluate/1'
    """
    return f"drstream.{name}/{VERSIONS[name]}"


def plain(value: Any) -> Any:
    """Replace NaN and infinity by None, as JSON has neither."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class ModelSummary:
    """What a result reports about the models that were used."""

    crossfit: int | str | None = None  # number of folds, or "forward"
    blocks: int = 0  # number of blocks of rows, with "forward"
    unpredicted: int = 0  # number of events before the first reward model, where r̂ is 0
    blind_second: bool = False  # whether a second reward model knows nothing about the first events
    crossfitted: tuple[bool, bool] = (False, False)  # for the reward model and the propensity model
    estimated_propensities: bool = False
    least_propensity: float = math.nan  # smallest that propensity= gave; NaN if the log's own were used
    r2: float = math.nan  # R² of the reward model on the logged events
    calibration: pa.Table | None = None  # predictions and rewards by decile of the prediction
    clamped: float = 0.0  # share of the predictions, over all actions, that the clamp changed


class WithModels:
    """A result that has a summary of the models it was made with."""

    models: ModelSummary

    @property
    def crossfit(self) -> int | str | None:
        """Number of folds of cross-fitting, or "forward"; None without it."""
        return self.models.crossfit

    @property
    def unpredicted(self) -> int:
        """Number of events before the first reward model, with crossfit="forward". There r̂ is 0, and DR is IPS."""
        return self.models.unpredicted

    @property
    def estimated_propensities(self) -> bool:
        return self.models.estimated_propensities

    @property
    def least_propensity(self) -> float:
        """The smallest propensity that propensity= gave; NaN if the log's own were used."""
        return self.models.least_propensity

    @property
    def r2(self) -> float:
        """R² of the reward model on the logged events; NaN without a model."""
        return self.models.r2

    @property
    def calibration(self) -> pa.Table | None:
        """Mean prediction and mean reward of the logged events by decile of the prediction; None without a model."""
        return self.models.calibration

    @property
    def clamped(self) -> float:
        """Share of the predictions, over all actions, that the clamp changed."""
        return self.models.clamped

    def about_models(self) -> dict[str, Any]:
        table = self.calibration
        model = None
        if table is not None:
            model = {"r2": self.r2, "clamped": self.clamped, "calibration": table.to_pylist()}
        said = {"crossfit": self.crossfit, "estimated_propensities": self.estimated_propensities}
        if self.models.blocks:
            said |= {"blocks": self.models.blocks, "unpredicted": self.unpredicted}
        return {**said, "least_propensity": self.least_propensity, "model": model}

    def how(self) -> str:
        """Return a sentence about the models; empty if there are none."""
        way = f"cross-fitted in {self.crossfit} folds"
        if self.models.blocks:
            way = f"fitted on earlier events, in {self.models.blocks} blocks"
        by_fold = [f", {way}" if fitted else "" for fitted in self.models.crossfitted]
        said = []
        if self.calibration is not None:
            clamped = f", {self.clamped:.2%} of its predictions clamped" if self.clamped else ""
            none = f", none for the first {self.unpredicted:,} events" if self.unpredicted else ""
            said.append(f"reward model{by_fold[0]}: R² {self.r2:.3g} on the logged events{clamped}{none}")
        if not math.isnan(self.least_propensity):
            whose = "estimated" if self.estimated_propensities else "of the policy given as propensity="
            said.append(f"propensities {whose}{by_fold[1]}: at least {self.least_propensity:.3g}")
        return "; ".join(said)


def as_frame(table: pa.Table) -> Any:
    """Return a table as a pandas frame."""
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise DrstreamError("to_pandas() needs pandas: pip install pandas") from None
