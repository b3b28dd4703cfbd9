"""What a replay is asked to do, checked: for all lanes, and for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypedDict

import numpy as np

from drstream.errors import DrstreamError, parameter, suggest
from drstream.parameters import whole

METHODS = ("dr-ns", "dr-ns-wc", "rs", "dm")
ADAPTIVE = ("dr-ns", "dm")  # those whose multiplier follows a quantile
TRACKERS = ("auto", "exact", "sketch")
LONGEST = 2**62 - 1  # steps
CURVE_POINTS = 10_000  # at most; a longer horizon has several steps to a point


class Keywords(TypedDict, total=False):
    """The keyword parameters of `replay` that do not decide what it returns, for type checkers."""

    method: str
    c_max: float
    carry: bool
    replicates: int | None
    shards: int
    tracker: str
    propensity: Any
    crossfit: int | None
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
    """What Algorithm 1 is to do in one lane."""

    policy: str
    method: str
    horizon: int
    q: float
    c_max: float  # already the smallest propensity, where that is the method's multiplier
    seed: int
    carry: bool
    tracker: str  # "auto", "exact" or "sketch"
    most_replicates: int | None
    unit_rewards: bool = False  # the policy takes rewards to lie in [0, 1]
    snapshots: int = 0  # most states of the policy to be recorded; for one replicate, in one shard

    @property
    def adaptive(self) -> bool:
        return self.method in ADAPTIVE

    @property
    def bin_steps(self) -> int:
        """Steps to a point of the curve."""
        return -(-self.horizon // CURVE_POINTS)

    @property
    def bins(self) -> int:
        """Points of the curve."""
        return -(-self.horizon // self.bin_steps)


@dataclass(frozen=True)
class ReplayOptions:
    """The parameters of `replay` that Algorithm 1 is about."""

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
        """One replicate whose states are recorded; without a horizon, it goes on to the end of the log."""
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
            raise DrstreamError(f"{parameter('q', list(self.q))}: {self.method} does not use q, so give one of them")
        for name, values in (("q", self.q), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise DrstreamError(f"{parameter(name, list(values))}: give at least one value, and none of them twice")

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


def listed(name: str, value: Any) -> tuple[Any, ...]:
    """A number, or several of them."""
    if isinstance(value, Real):
        return (value,)
    if isinstance(value, str) or np.ndim(value) != 1:
        raise DrstreamError(f"{parameter(name, value)}: it must be a number or a list of numbers")
    return tuple(value)


def are_several(q: float | Sequence[float], seed: int | Sequence[int]) -> bool:
    return not isinstance(q, Real) or not isinstance(seed, Integral)
