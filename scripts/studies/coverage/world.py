"""What a world is: logs of one kind whose true values are known, and what is asked of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import drstream as drs
from drstream.evaluation.result import Evaluation
from drstream.results import Estimate

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Iterable[pa.Table]]
LOGGING = "logging"
VALUES, BEST, LIFT = "values", "best", "lift"  # what is asked of a result
SOME = 4  # policies whose values and differences are asked for
ALL_VALUES, ALL_GAINS = "all values at once", f"all differences to {LOGGING} at once"
PLAIN_BEST = "best, as if it had not been chosen"


@dataclass(frozen=True)
class World:
    """Logs of one kind.

    truth       The true value of each policy; that of the logging policy, if it has one, is that of `LOGGING`.
    draw        Draws some logs.
    policies    As `evaluate` takes them.
    roles       Parameters of `drs.Log`.
    more        Further parameters of `evaluate`.
    asks        `VALUES`: of policies, and differences. `BEST`: the best of many policies, and bands. `LIFT`: lifts.
    healthy     Whether results should have no finding.
    bound       The largest weight, if all methods are to be compared; rewards are then 0 or 1.
    """

    title: str
    truth: Mapping[str, float]
    draw: Draw
    policies: Mapping[str, Any]
    estimators: tuple[str, ...] = ("ips", "snips", "dr")
    roles: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    asks: str = VALUES
    healthy: bool = False
    bound: float | None = None
    logs: int = 1000

    def evaluate(self, table: pa.Table, **more: Any) -> Evaluation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # findings say it, too
            log = drs.Log(table, **self.roles)
            asked = {"estimators": list(self.estimators), "threads": 1, **self.more, **more}
            return drs.evaluate(log, dict(self.policies), **asked)

    def cells(self, result: Evaluation) -> Iterator[Cell]:
        """Return what is asked of a result."""
        return {VALUES: self._values, BEST: self._best, LIFT: self._lifts}[self.asks](result)

    def _values(self, result: Evaluation) -> Iterator[Cell]:
        names = list(self.policies)[:SOME]
        for e in self.estimators:
            for name in names:
                yield Cell.of(name, e, self.truth[name], result[name, e], [name])
            for name in names if LOGGING in self.truth else []:
                gain = self.truth[name] - self.truth[LOGGING]
                yield Cell.of(f"{name} - {LOGGING}", e, gain, result.difference(name, estimator=e), [name])
            for first, second in [names[:2]] if len(names) > 1 else []:
                gap = self.truth[first] - self.truth[second]
                found = result.difference(first, second, e)
                yield Cell.of(f"{first} - {second}", e, gap, found, [first, second])

    def _lifts(self, result: Evaluation) -> Iterator[Cell]:
        first, *others = list(self.policies)[:2]
        for e in self.estimators:
            for base in [None, *others]:
                lift = self.truth[first] / self.truth[base or LOGGING] - 1
                found = result.lift(first, base, e)
                yield Cell.of(f"{first} / {base or LOGGING}", e, lift, found, [first, *filter(None, [base])])

    def _best(self, result: Evaluation) -> Iterator[Cell]:
        """The best policy and bands. The oracle is the normal interval of the first policy, which nobody has chosen."""
        first = next(iter(self.policies))
        for e in self.estimators:
            error = result[first, e].value - self.truth[first]
            gain_error = result.difference(first, estimator=e).value - (self.truth[first] - self.truth[LOGGING])
            found = result.best(e)
            name, truth = found.policy, self.truth[found.policy]
            gain = truth - self.truth[LOGGING]
            yield replace(Cell.of("best", e, truth, found, [name]), error=error)
            yield replace(Cell.of(f"best - {LOGGING}", e, gain, found.gain, [name]), error=gain_error)
            yield replace(Cell.of(PLAIN_BEST, e, truth, result[name, e], [name]), error=error)
            bands = result.bands(e).to_pylist()
            yield self._band(ALL_VALUES, e, error, [row for row in bands if row["base"] is None])
            yield self._band(ALL_GAINS, e, gain_error, [row for row in bands if row["base"] is not None])

    def _band(self, what: str, e: str, error: float, rows: list[dict[str, Any]]) -> Cell:
        """All bands contain the truth if the highest lower end, relative to the truth, is below 0, and so on."""
        base = self.truth[LOGGING] if what == ALL_GAINS else 0.0
        truth = [self.truth[row["policy"]] - base for row in rows]
        low, high = (np.array([row[end] for row in rows]) for end in ("low", "high"))
        ends = float((low - truth).max()), float((high - truth).min()), float((high - low).mean())
        return Cell(what, e, 0.0, math.nan, error, math.nan, *ends, list(self.policies))


@dataclass(frozen=True)
class Cell:
    """One interval in one log.

    error     Of the estimate. Its spread over all logs is what the width is compared with.
    policies  Those whose findings are about it.
    others    Intervals of other methods.
    """

    what: str
    estimator: str
    truth: float
    value: float
    error: float
    stderr: float
    low: float
    high: float
    width: float
    policies: list[str]
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, what: str, estimator: str, truth: float, found: Estimate, policies: list[str]) -> Cell:
        low, high = found.low, found.high
        about = found.value, found.value - truth, found.stderr, low, high, high - low
        return cls(what, estimator, truth, *about, policies, found.intervals)


def each(draw: Callable[[np.random.Generator], pa.Table]) -> Draw:
    """Draws logs one after the other."""
    return lambda rng, count: (draw(rng) for _ in range(count))
