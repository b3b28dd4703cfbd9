"""What an evaluation returns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from drstream import intervals
from drstream.errors import suggest
from drstream.evaluation.estimators import Estimator, Sample
from drstream.results import Estimate, ModelSummary, WithModels, plain
from drstream.types import Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


class Group(NamedTuple):
    """Terms that are combined: means and co-moments of the reward and of these terms of every policy."""

    means: Floats
    comoment: Floats


@dataclass(frozen=True)
class Sums:
    """What was gathered over all events."""

    n: int  # events
    groups: dict[tuple[str, ...], Group]  # by the columns of the terms
    weights: list[str]  # columns of the weights, in the order of those below
    largest: Floats  # weight of each policy, by kind
    reduced: Ints  # weights of each policy that are smaller than ν / p, by kind
    typical_reward: float


class Evaluation(WithModels):
    """Estimates of every policy by every estimator: `result["new", "dr"].value`."""

    def __init__(
        self,
        policies: Sequence[str],
        labels: Sequence[Any],
        estimators: Sequence[Estimator],
        sums: Sums,
        models: ModelSummary,
        skipped: dict[str, int],
        confidence: float,
    ) -> None:
        self.policies = list(policies)
        self.labels = list(labels)  # the actions; none where only probabilities of logged actions were looked at
        self.estimators = [e.name for e in estimators]
        self.n = sums.n
        self.skipped = skipped  # bad rows that were left out, by reason
        self.confidence = confidence
        self.models = models
        self._estimators = {e.name: e for e in estimators}
        self._sums = sums

    def __getitem__(self, key: tuple[str, str] | str) -> Estimate:
        """The estimate of (policy, estimator). With a single policy, the estimator is enough."""
        if isinstance(key, str) and len(self.policies) == 1:
            key = (self.policies[0], key)
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(f"result[{key!r}]: give a policy and an estimator, e.g. result[{self.policies[0]!r}, 'dr']")
        j, estimator = self._find(*key)
        value, gradient, comoment = self._lisuggest(j, estimator)
        return self._estimate(value, gradient, comoment, **self._weights(j, estimator))

    @property
    def baseline(self) -> Estimate:
        """The logging policy's own mean reward."""
        means, comoment = next(iter(self._sums.groups.values()))
        gradient = np.zeros(len(means))
        gradient[0] = 1
        return self._estimate(float(means[0]), gradient, comoment, ess=float(self.n), max_weight=1.0)

    def difference(self, policy: str, other: str | None = None, estimator: str | None = None) -> Estimate:
        """The value of a policy minus that of another policy, or of the logging policy, with a paired interval.

        The terms of each event are paired. Without an estimator, it is the doubly robust one if that was asked for,
        else the first.
        """
        j, chosen = self._find(policy, estimator or self._headline)
        value, gradient, comoment = self._lisuggest(j, chosen)
        if other is None:
            value -= self.baseline.value
            gradient[0] -= 1
        else:
            other_value, other_gradient, _ = self._lisuggest(self._find(other, chosen.name)[0], chosen)
            value -= other_value
            gradient -= other_gradient
        return self._estimate(value, gradient, comoment)

    @property
    def _headline(self) -> str:
        return next((name for name, e in self._estimators.items() if e.headline), self.estimators[0])

    def _find(self, policy: str, estimator: str) -> tuple[int, Estimator]:
        if policy not in self.policies:
            raise KeyError(f"no policy {policy!r} was evaluated: {suggest(str(policy), self.policies)}")
        if estimator not in self._estimators:
            raise KeyError(f"no estimator {estimator!r} was asked for: {suggest(str(estimator), self.estimators)}")
        return self.policies.index(policy), self._estimators[estimator]

    def _lisuggest(self, j: int, estimator: Estimator) -> tuple[float, Floats, Floats]:
        """Value, gradient over the whole group of variables, and their co-moments."""
        means, comoment = self._sums.groups[estimator.columns]
        size = len(estimator.terms)
        place = slice(1 + j * size, 1 + (j + 1) * size)
        gradient = np.zeros(len(means))
        with np.errstate(all="ignore"):  # no weight at all: SNIPS is 0/0, undefined
            sample = Sample(means[place], comoment[place, place] / self.n, self._sums.typical_reward)
            value = float(estimator.value(sample))
            gradient[place] = estimator.gradient(sample)
        if estimator.weight and self._sums.largest[j, self._kind(estimator)] == 0:
            gradient[place] = math.nan  # no event tells of this policy: there is no interval, not one of width 0
        return value, gradient, comoment

    def _kind(self, estimator: Estimator) -> int:
        """Which of the weights is the estimator's."""
        return self._sums.weights.index(estimator.column("weight"))

    def _weights(self, j: int, estimator: Estimator) -> dict[str, float]:
        if estimator.weight is None:
            return {"ess": float(self.n)}
        column, kind = estimator.column("weight"), self._kind(estimator)
        terms = next(terms for terms in self._sums.groups if column in terms)
        means, comoment = self._sums.groups[terms]
        place = 1 + j * len(terms) + terms.index(column)
        with np.errstate(all="ignore"):
            mean = means[place] ** 2
            squares = comoment[place, place] / self.n + mean
            ess = float(self.n * mean / squares)  # NaN where no event has weight
        return {
            "ess": ess,
            "max_weight": float(self._sums.largest[j, kind]),
            "capped": float(self._sums.reduced[j, kind] / self.n),
        }

    def _estimate(self, value: float, gradient: Floats, comoment: Floats, **weights: float) -> Estimate:
        stderr = intervals.standard_error(gradient, comoment, self.n) if not math.isnan(value) else math.nan
        low, high = intervals.normal(value, stderr, self.confidence)
        return Estimate(value, stderr, low, high, self.n, **weights)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each policy and estimator, with the paired difference to the logging policy."""
        rows = []
        for policy in self.policies:
            for estimator in self.estimators:
                gain = self.difference(policy, estimator=estimator)
                rows.append(
                    {
                        "policy": policy,
                        "estimator": estimator,
                        **asdict(self[policy, estimator]),
                        "difference": gain.value,
                        "difference_low": gain.low,
                        "difference_high": gain.high,
                    }
                )
        return rows

    def to_arrow(self) -> pa.Table:
        """One row for each policy and estimator; baseline, skipped rows and confidence are in the schema's metadata."""
        about = {key: json.dumps(value) for key, value in self._about().items()}
        return pa.Table.from_pylist(self.rows()).replace_schema_metadata(about)

    def to_pandas(self) -> pd.DataFrame:
        return self.to_arrow().to_pandas()

    def to_dict(self) -> dict[str, Any]:
        return plain({**self._about(), "estimates": self.rows()})

    def to_json(self, indent: int | None = 2) -> str:
        """As JSON; what is undefined is null."""
        return json.dumps(self.to_dict(), indent=indent)

    def _about(self) -> dict[str, Any]:
        baseline = self.baseline
        return plain(
            {
                "events": self.n,
                "actions": self.labels,
                "confidence": self.confidence,
                "baseline": {k: getattr(baseline, k) for k in ("value", "stderr", "low", "high", "n")},
                "skipped": self.skipped,
                **self.about_models(),
            }
        )

    def __repr__(self) -> str:
        actions = f", {len(self.labels)} actions" if self.labels else ""
        lines = [f"Evaluation of {self.n:,} events{actions}; logging policy's mean reward {self.baseline}"]
        if self.skipped:
            lines.append(
                "  skipped: " + ", ".join(f"{count:,} rows ({reason})" for reason, count in self.skipped.items())
            )
        if how := self.how():
            lines.append(f"  {how}")
        width = max(len("policy"), *map(len, self.policies))
        lines.append(f"  {'policy':<{width}}  {'estimator':<10} {'value':>10}  {'interval':<25} {'ess':>12}")
        for row in self.rows():
            interval = f"[{row['low']:.6g}, {row['high']:.6g}]"
            who = f"  {row['policy']:<{width}}  {row['estimator']:<10}"
            lines.append(f"{who} {row['value']:>10.6g}  {interval:<25} {row['ess']:>12,.0f}")
        return "\n".join(lines)
