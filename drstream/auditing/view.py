"""What the checks of an audit look at, the test that they share, and the words of their findings.

Tests that lead to "stop" hold for any log whose propensities are right, however many rows it has, however rare an
action is, and also if the logging policy learned. They bet against the log (Waudby-Smith and Ramdas 2024): if y >= -1
and E[y | past] <= 0, the product of 1 + λ y is at least 1/α with probability at most α. `evidence` bounds its logarithm
from below by sums of y and y², for many λ at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from drstream.auditing.columns import Columns
from drstream.auditing.tally import Tally
from drstream.auditing.times import Clock
from drstream.findings import Finding
from drstream.log.schema import Roles
from drstream.types import Floats

ALPHA = 0.0005  # chance of a false alarm, for each check
STAKES = 2.0 ** -np.arange(1.0, 31.0)  # λ


@dataclass(frozen=True)
class First:
    """What is known before the pass: from the first rows, and from the user."""

    doubts: Sequence[Finding]
    unit: str  # what propensities may be, if most are no probabilities
    expected_rows: int | None = None
    expected_reward: float | None = None


@dataclass(frozen=True)
class View:
    """What checks look at."""

    tally: Tally
    labels: Sequence[Any]
    candidates: bool  # each event has its own, so there are no labels
    labels_given: bool  # else they were found in the log
    with_propensities: bool
    with_context: bool
    event_id: str | None
    clock: Clock | None
    typical_reward: float
    roles: Roles
    columns: Columns
    known: First

    @property
    def n(self) -> int:
        """Number of events that were not bad."""
        return self.tally.good

    @property
    def propensities(self) -> bool:
        """Whether there is any propensity to check."""
        return self.with_propensities and self.n > 0

    @property
    def with_choice(self) -> bool:
        """Whether the logging policy had more than one action to choose from, in some event."""
        return self.tally.offers.choices > 0 if self.candidates else len(self.labels) > 1

    @cached_property
    def possible(self) -> Floats:
        """Number of events that could choose each action: in a log with eligible sets, those whose set has it."""
        eligible = self.tally.eligible
        return (np.full(len(self.labels), self.n) if eligible is None else eligible.counts).astype(np.float64)

    @cached_property
    def actions(self) -> dict[str, Floats]:
        """Statistics of 1{a}/p by action, over the events that could choose it."""
        sums = self.tally.inverses
        if not self.propensities:
            nothing = np.full(len(sums.counts), np.nan)
            return {"mean_inverse": nothing, "stderr": nothing, "z": nothing}
        with np.errstate(all="ignore"):
            n = self.possible
            mean = sums.sums / n
            variance = np.maximum(sums.squares - n * mean**2, 0) / (n - 1)
            stderr = np.sqrt(variance / n)
            return {"mean_inverse": mean, "stderr": stderr, "z": (mean - 1) / stderr}


def evidence(total: Any, squares: Any, lost: Any = 0) -> Any:
    """Return a lower bound of the logarithm of the mean, over all stakes λ, of the product of 1 + λ y.

    total and squares are the sums of y and y². If `lost` is given, it is the number of other events, whose y is -1, and
    all y of the sums are at least 0, for which the bound is tighter.
    """
    result = np.full(np.shape(total), -np.inf)
    with np.errstate(all="ignore"):
        for stake in STAKES:
            if np.ndim(lost):  # log(1 + y) >= y - y²/2 for y >= 0
                bound = lost * math.log1p(-stake) + stake * total - stake**2 / 2 * squares
            else:  # log(1 + z) >= z - z² / (2 (1 - λ)) for z >= -λ
                bound = stake * total - stake**2 / (2 * (1 - stake)) * squares
            result = np.logaddexp(result, bound)
    return np.where(np.isnan(result), -np.inf, result) - math.log(len(STAKES))


def say(level: str, check: str, value: float, *sentences: str) -> Finding:
    return Finding(level, check, None, float(value), " ".join(sentences))


def rows_of(count: int, verb: str = "") -> str:
    """Return "1 row has" or "2 rows have", as the plural of the verb asks for."""
    one = {"have": "has", "are": "is", "repeat": "repeats"}.get(verb, "")
    return f"{count:,} row{'s' * (count != 1)} {verb if count != 1 else one}".rstrip()


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"
