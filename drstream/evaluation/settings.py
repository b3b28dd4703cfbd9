"""How intervals are made: the methods that the caller named, or the choice of a default, and what methods need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from drstream.errors import DrstreamError, parameter, phrase
from drstream.evaluation.estimators import Estimator
from drstream.intervals import methods, tails
from drstream.intervals.methods import Method
from drstream.intervals.statistic import Constants, Limits, Side
from drstream.parameters import number

CLICKS = (0.0, 1.0)


@dataclass(frozen=True)
class Settings:
    """The intervals of a result. `names` is empty if the caller named none."""

    names: tuple[str, ...] = ()
    confidence: float = 0.95
    reward_range: tuple[float, float] | None = None
    max_weight_bound: float | None = None
    cluster: str | None = None
    propensity_error: float | None = None
    constants: Constants = field(default_factory=Constants)
    smoothing: float = 0.0  # λ of methods that smooth the terms w r; 0 without such a method

    @classmethod
    def of(
        cls,
        interval: str | Sequence[str] | None,
        confidence: float,
        reward_range: Any,
        max_weight_bound: Any,
        cluster: str | None,
        sample_rate: str | None = None,
        propensity_error: Any = None,
        constants: Any = None,
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
        names = tuple(m.name for m in chosen)
        error = _propensity_error(propensity_error)
        return cls(names, confidence, found, max_weight_bound, cluster, error, _constants(constants))

    def check_propensities(self, *, estimated: bool) -> None:
        """Raise an error if a method needs to know how wrong estimated propensities may be."""
        for method in self.named():
            if estimated and "spread" in method.needs and self.propensity_error is None:
                raise DrstreamError(
                    f"{parameter('interval', method.name)} needs a bound on the error of estimated propensities: pass "
                    f"{parameter('propensity_error')}{phrase('0.1', ' 0.1')} if true ones are within 10 % of them"
                )

    def check_estimators(self, estimators: Sequence[Estimator]) -> None:
        """Raise an error if a method needs a bound, for one of these estimators, that was not given."""
        for method in map(methods.ALL.__getitem__, self.names):
            for estimator in estimators:
                if method.check is not None and estimator.score_coefficients(0.0) is not None:
                    weight = None if estimator.weight is None else 0
                    method.check([Side(1.0, str(estimator.score), weight, np.zeros(1))], self.limits())

    def limits(self, *, clicks: bool = False) -> Limits:
        """The limits of methods. If all rewards are 0 or 1, that is their range, unless the caller gave one."""
        return Limits(
            self.confidence,
            CLICKS if clicks and self.reward_range is None else self.reward_range,
            self.max_weight_bound,
            clustered=self.cluster is not None,
            propensity_error=self.propensity_error,
            constants=self.constants,
            clicks=clicks,
            smoothing=self.smoothing,
        )

    @property
    def needs(self) -> frozenset[str]:
        """What the pass must gather."""
        return frozenset[str]().union(*(methods.ALL[name].needs for name in self.names))

    def smoothed(self, rows: int | None) -> Settings:
        """The same with λ = 1 / √n, which must be known before the first event."""
        if rows is None:
            name = next(method.name for method in self.named() if method.needs & {"smooth", "explored"})
            raise DrstreamError(
                f"{parameter('interval', name)} needs to know the number of rows before it reads them, and this source "
                "does not tell: write the log to a Parquet file first, or choose another method"
            )
        return replace(self, smoothing=1 / math.sqrt(max(rows, 1)))

    def named(self) -> list[Method]:
        return [methods.ALL[name] for name in self.names]

    def methods(self) -> list[Method]:
        """The methods that were named, or the one that covers."""
        return self.named() or [methods.ALL[tails.NAME if self.cluster is None else methods.CLUSTER]]


def _propensity_error(value: Any) -> float | None:
    if value is None:
        return None
    found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not 0 <= found < 1:
        raise DrstreamError(
            f"{parameter('propensity_error', value)}: it must be a number of at least 0 and below 1, e.g. 0.1 if true "
            "propensities are within 10 % of those that are used"
        )
    return found


def _constants(value: Any) -> Constants:
    if value is None:
        return Constants()
    if not isinstance(value, Constants):
        raise DrstreamError(f"constants={value!r}: pass drs.Constants(...), e.g. drs.Constants(measured=False)")
    for name in ("model_bias", "model_error", "value_variance", "max_ratio"):
        if (found := getattr(value, name)) is not None:
            number(name, found, who="Constants", error=DrstreamError)
    return value
