"""What a result is made of beside the sums of a pass, and what states that are merged agree in. It needs no log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.form import SumsForm
from drstream.evaluation.request import Request
from drstream.results import ModelSummary


@dataclass(frozen=True)
class Header:
    """What a pass is about, for one reward. Each reward has one.

    request     What was asked for, without policies and models.
    models      As far as they are known before the pass.
    has_logger  Whether propensities are computed.
    others      Events of unknown categories, by user and column.
    listed      Of a log of rankings: whether propensities are by position, and which.
    embedding   Categories of the actions, if estimators use them.
    path        "compiled" if nothing was asked in Python.
    """

    form: SumsForm
    request: Request
    policies: list[str]
    labels: Sequence[Any]
    reward: str
    pivot: float
    precision: str
    models: ModelSummary
    has_model: bool
    has_logger: bool
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    listed: tuple[bool, str | None] | None = None
    embedding: Embedding | None = None
    path: str = "python"

    @property
    def estimators(self) -> list[Estimator]:
        """With all forms of a grid."""
        return self.request.estimators
