"""The options of a replay, with checks: those of all lanes, and those of one lane."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypedDict

import numpy as np

from drstream.errors import DrstreamError, parameter, phrase, suggest
from drstream.parameters import whole

METHODS = ("dr-ns", "dr-ns-wc", "rs", "dm")
ADAPTIVE = ("dr-ns", "dm")  # methods whose multiplier follows a quantile
TRACKERS = ("auto", "exact", "sketch")
LONGEST = 2**62 - 1  # steps
CURVE_POINTS = 10_000  # at most; with a longer horizon, a point covers several steps


class Keywords(TypedDict, total=False):
    """For type checkers: the keyword parameters of `replay` that do not decide the type of its result."""

    method: str
    c_max: float
    carry: bool
    replicates: int | None
    shards: int
    tracker: str
    propensity: Any
    crossfit: int | str | None
    cluster: str | None
    fold_seed: int
    clamp: Any
    confidence: float
    on_bad_row: str | None
    threads: int | None
    executor: Executor | None
    progress: Any
    debug: bool


@dataclass(frozen=True)
class LaneOptions:
    """The options of Algorithm 1 in one lane."""

    policy: str
    method: str
    horizon: int
    q: float
    c_max: float  # at most the smallest propensity, if the method has a constant multiplier
    seed: int
    carry: bool
    tracker: str  # "auto", "exact" or "sketch"
    most_replicates: int | None
    unit_rewards: bool = False  # the policy assumes rewards in [0, 1]
    snapshots: int = 0  # maximum number of recorded states; 0 records none. For one replicate in one shard only

    @property
    def adaptive(self) -> bool:
        return self.method in ADAPTIVE

    @property
    def bin_steps(self) -> int:
        """Number of steps that a point of the curve covers."""
        return -(-self.horizon // CURVE_POINTS)

    @property
    def bins(self) -> int:
        """Number of points of the curve."""
        return -(-self.horizon // self.bin_steps)


@dataclass(frozen=True)
class ReplayOptions:
    """The parameters of `replay` that concern Algorithm 1."""

    method: str
    horizon: int
    q: tuple[float, ...]
    c_max: float
    seeds: tuple[int, ...]
    carry: bool = False
    replicates: int | None = None
    shards: int = 1
    tracker: str = "auto"
    snapshots: int | None = None

    @classmethod
    def once(cls, horizon: int | None, q: float, c_max: float, seed: int, snapshots: int) -> ReplayOptions:
        """Options for one replicate with recorded states. Without a horizon, it runs to the end of the log."""
        steps = LONGEST if horizon is None else horizon
        options = cls("dr-ns", steps, (q,), c_max, (seed,), replicates=1, snapshots=snapshots)
        options.check()
        return options

    def check(self) -> None:
        for name, value, names in (("method", self.method, METHODS), ("tracker", self.tracker, TRACKERS)):
            if value not in names:
                raise DrstreamError(f"{parameter(name, value)}: {suggest(str(value), names)}")
        for name in ("horizon", "replicates", "shards", "snapshots"):
            value = getattr(self, name)
            if value is not None or name in ("horizon", "shards"):
                whole(name, value, 1, LONGEST, error=DrstreamError)
        for q in self.q:
            if not isinstance(q, Real) or not 0 <= q <= 1:
                raise DrstreamError(f"{parameter('q', q)}: the quantile level must be in [0, 1]")
        if not isinstance(self.c_max, Real) or not 0 < self.c_max <= 1:
            raise DrstreamError(f"{parameter('c_max', self.c_max)}: the largest multiplier must be in (0, 1]")
        for seed in self.seeds:
            whole("seed", seed, -(2**63), error=DrstreamError)
        if self.method not in ADAPTIVE and len(self.q) > 1:
            raise DrstreamError(f"{_several('q', self.q)}: {self.method} does not use q, so give one of them")
        for name, values in (("q", self.q), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise DrstreamError(f"{_several(name, values)}: give at least one value, and none of them twice")

    def lanes(self, policies: Iterable[tuple[str, Any]], c_max: float) -> Iterator[LaneOptions]:
        """One lane for each policy, q and seed."""
        for (name, policy), q, seed in itertools.product(policies, self.q, self.seeds):
            yield LaneOptions(
                policy=name,
                method=self.method,
                horizon=int(self.horizon),
                q=float(q),
                c_max=c_max,
                seed=int(seed),
                carry=bool(self.carry),
                tracker=self.tracker,
                most_replicates=self.replicates,
                unit_rewards=bool(getattr(policy, "unit_rewards", False)),
                snapshots=int(self.snapshots or 0),
            )


def _several(name: str, values: Sequence[Any]) -> str:
    return phrase(f"{name}={list(values)}", f"--{name} {','.join(map(str, values))}")


def listed(name: str, value: Any) -> tuple[Any, ...]:
    """A number, or a list of numbers, as a tuple."""
    if isinstance(value, Real):
        return (value,)
    if isinstance(value, str) or np.ndim(value) != 1:
        raise DrstreamError(f"{parameter(name, value)}: it must be a number or a list of numbers")
    return tuple(value)


def are_several(q: float | Sequence[float], seed: int | Sequence[int]) -> bool:
    return not isinstance(q, Real) or not isinstance(seed, Integral)
