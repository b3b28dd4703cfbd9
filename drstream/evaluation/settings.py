"""How intervals are made: the methods that the caller named, or the choice of a default, and what methods need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from drstream.errors import DrstreamError, parameter
from drstream.evaluation.estimators import Estimator
from drstream.intervals import methods
from drstream.intervals.methods import Method
from drstream.intervals.statistic import Limits, Side
from drstream.parameters import number

DEFAULT, CLUSTERED, CAREFUL = "normal", "cluster", "gamma"
CLICKS = (0.0, 1.0)


@dataclass(frozen=True)
class Settings:
    """The intervals of a result. `names` is empty if each estimate gets the method that covers."""

    names: tuple[str, ...] = ()
    confidence: float = 0.95
    reward_range: tuple[float, float] | None = None
    max_weight_bound: float | None = None
    cluster: str | None = None

    @classmethod
    def of(
        cls,
        interval: str | Sequence[str] | None,
        confidence: float,
        reward_range: Any,
        max_weight_bound: Any,
        cluster: str | None,
        sample_rate: str | None = None,
    ) -> Settings:
        """Check the parameters of `evaluate` that are about intervals."""
        chosen = [] if interval is None else methods.choose(interval)
        if interval is not None and not chosen:
            raise DrstreamError(f"{parameter('interval', interval)}: name at least one method")
        found = methods.check_range(reward_range)
        if max_weight_bound is not None:
            max_weight_bound = number("max_weight_bound", max_weight_bound, 1.0, error=DrstreamError)
        for method in chosen:
            methods.check_needs(method, found, max_weight_bound, cluster)
            if sample_rate is not None and "reward_range" in method.needs:
                raise DrstreamError(
                    f"{parameter('interval', method.name)} is not known for a down-sampled log: choose "
                    f"{', '.join(repr(m.name) for m in methods.ALL.values() if 'reward_range' not in m.needs)}"
                )
        return cls(tuple(m.name for m in chosen), confidence, found, max_weight_bound, cluster)

    def check_estimators(self, estimators: Sequence[Estimator]) -> None:
        """Raise an error if a method needs a bound, for one of these estimators, that was not given."""
        for method in map(methods.ALL.__getitem__, self.names):
            for estimator in estimators:
                if method.check is not None and estimator.score_coefficients(0.0) is not None:
                    weight = None if estimator.weight is None else 0
                    method.check([Side(1.0, str(estimator.score), weight, np.zeros(1))], self.limits)

    @property
    def limits(self) -> Limits:
        return Limits(self.confidence, self.reward_range, self.max_weight_bound, clustered=self.cluster is not None)

    @property
    def needs(self) -> frozenset[str]:
        """What the pass must gather."""
        return frozenset[str]().union(*(methods.ALL[name].needs for name in self.names))

    def for_clicks(self) -> Settings:
        """The same settings for rewards that are all 0 or 1, if no range was given."""
        return self if self.reward_range is not None else replace(self, reward_range=CLICKS)

    def named(self) -> list[Method]:
        return [methods.ALL[name] for name in self.names]
