"""The options of a replay, with checks: those of all lanes, and those of one lane."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypedDict

import numpy as np

from drstream import sampling
from drstream.errors import DrstreamError, parameter, phrase, suggest
from drstream.parameters import whole

METHODS = ("dr-ns", "dr-ns-wc", "rs", "dm")
ADAPTIVE = ("dr-ns", "dm")  # methods whose multiplier follows a quantile
TRACKERS = ("auto", "exact", "sketch")
Q = 0.01  # the quantile level of the paper's experiment
AUTO = "auto"
GRID = (0.01, 0.02, 0.05, 0.1)  # targets of the bias mass that bias="auto" tries
LONGEST = 2**62 - 1  # steps
CURVE_POINTS = 10_000  # at most; with a longer horizon, a point covers several steps


class Keywords(TypedDict, total=False):
    """For type checkers: the keyword parameters of `replay` that do not decide the type of its result."""

    method: str
    c_max: float | None
    c: float | None
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
    precision: str | None
    on_bad_row: str | None
    threads: int | None
    executor: Executor | None
    progress: Any
    debug: bool
    checkpoint: Any
    checkpoint_every: float


@dataclass(frozen=True)
class LaneOptions:
    """The options of Algorithm 1 in one lane."""

    policy: str
    method: str
    horizon: int
    q: float  # of the quantile, unless `bias` is given
    c_max: float  # at most the smallest propensity, if the method has a constant multiplier
    seed: int
    carry: bool
    tracker: str  # "auto", "exact" or "sketch"
    most_replicates: int | None
    smallest_logged: bool = False  # c is the smallest propensity of the logged events
    unit_rewards: bool = False  # the policy assumes rewards in [0, 1]
    bias: float | None = None  # target of the bias mass
    pilot_rows: int | None = None  # most events of the pilot; None: no limit
    pilot_steps: int = 0  # number of steps of the pilot
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
class Levels:
    """What the multiplier c follows: quantiles of the paper's set Q, targets of the bias mass, or a grid of targets."""

    q: tuple[float, ...] = (Q,)
    bias: tuple[float, ...] | str | None = None  # targets, or "auto"; None: q
    c_max: float = 1.0
    c: float | None = None  # constant multiplier of dr-ns-wc and rs; None: the smallest propensity of the log

    @classmethod
    def of(cls, method: str, bias: Any, q: Any, c_max: Any, c: Any = None) -> Levels:
        """The levels that the parameters of `replay` ask for."""
        quantiles, largest = Q if q is None else q, 1.0 if c_max is None else c_max
        given = q is not None or c_max is not None
        if c is not None and method in ADAPTIVE:
            raise DrstreamError(
                f"{parameter('c', c)} is the constant multiplier of dr-ns-wc and rs. {method} finds its own: leave it "
                f"out, or give {parameter('bias')} or {parameter('c_max')}"
            )
        if isinstance(bias, str) and not _is_auto(bias):
            raise DrstreamError(
                f'{parameter("bias", bias)}: it must be a number in (0, 1), a list of numbers, or "{AUTO}"'
            )
        if method not in ADAPTIVE or (given and _is_auto(bias)):
            if method in METHODS and method not in ADAPTIVE and not _is_auto(bias):
                raise DrstreamError(
                    f"{parameter('bias', bias)}: {method} has a constant multiplier. Leave out {parameter('bias')}, or "
                    "choose dr-ns"
                )
            return cls(listed("q", quantiles), None, largest, c)
        if given:
            name, value = ("q", q) if q is not None else ("c_max", c_max)
            raise DrstreamError(
                f"{parameter('bias', bias)} and {parameter(name, value)}: give one of them. {parameter('bias')} sets "
                f"c by the bias that it causes. {parameter('q')} and {parameter('c_max')} are "
                "those of the paper's Algorithm 1"
            )
        return cls(bias=AUTO if _is_auto(bias) else listed("bias", bias))

    @property
    def automatic(self) -> bool:
        return self.bias == AUTO

    @property
    def targets(self) -> tuple[float, ...]:
        """Targets of the bias mass, in the order in which they are shown."""
        return GRID if self.bias == AUTO or self.bias is None else self.bias  # type: ignore[return-value]

    def check(self, method: str) -> None:
        for q in self.q:
            if not isinstance(q, Real) or not 0 <= q <= 1:
                raise DrstreamError(f"{parameter('q', q)}: the quantile level must be in [0, 1]")
        if self.c is not None:
            if not isinstance(self.c, Real) or not 0 < self.c <= 1:
                raise DrstreamError(f"{parameter('c', self.c)}: the multiplier must be in (0, 1]")
            if self.c_max != 1.0:
                raise DrstreamError(f"{parameter('c', self.c)} and {parameter('c_max', self.c_max)}: give one of them")
        if not isinstance(self.c_max, Real) or not 0 < self.c_max <= 1:
            raise DrstreamError(f"{parameter('c_max', self.c_max)}: the largest multiplier must be in (0, 1]")
        for target in self.targets:
            if isinstance(target, str):
                raise DrstreamError(f"{_several('bias', self.targets)}: several targets must be numbers in (0, 1)")
            if not isinstance(target, Real) or not 0 < target < 1:
                raise DrstreamError(
                    f'{parameter("bias", target)}: the target of the bias mass must be in (0, 1), e.g. 0.02, or "auto";'
                    " for the smallest bias, choose dr-ns-wc"
                )
        if method not in ADAPTIVE and len(self.q) > 1:
            raise DrstreamError(f"{_several('q', self.q)}: {method} does not use q, so give one of them")

    def each(self, adaptive: bool) -> Iterator[tuple[float, float | None, int]]:
        """For each lane: q, the target of the bias mass, and the number of the stream of random numbers."""
        if self.bias is None or not adaptive:
            yield from ((float(q), None, 0) for q in self.q)
        else:
            yield from ((math.nan, float(bias), i if self.automatic else 0) for i, bias in enumerate(self.targets))


def _is_auto(bias: Any) -> bool:
    return isinstance(bias, str) and bias == AUTO


@dataclass(frozen=True)
class ReplayOptions:
    """The parameters of `replay` that concern Algorithm 1."""

    method: str
    horizon: int
    levels: Levels
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
        options = cls("dr-ns", steps, Levels(q=(q,), c_max=c_max), (seed,), replicates=1, snapshots=snapshots)
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
        self.levels.check(self.method)
        if self.levels.bias is not None and self.adaptive:
            for name, given in (("carry", self.carry), ("tracker", self.tracker != "auto")):
                if given:
                    raise DrstreamError(
                        f"{parameter(name, getattr(self, name))} is for {parameter('q')}: with {parameter('bias')}, "
                        "all events are kept in a histogram, from one replicate to the next"
                    )
        for seed in self.seeds:
            whole("seed", seed, -(2**63), error=DrstreamError)
        for name, values in (("q", self.levels.q), ("bias", self.levels.targets), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise DrstreamError(f"{_several(name, values)}: give at least one value, and none of them twice")

    @property
    def adaptive(self) -> bool:
        return self.method in ADAPTIVE

    def lanes(
        self, policies: Iterable[tuple[str, Any]], c_max: float, smallest_logged: bool = False
    ) -> Iterator[LaneOptions]:
        """One lane for each policy, seed and level.

        The lanes of a grid of targets have random numbers of their own, and pilots of different lengths. Without the
        latter, lanes of a deterministic policy would be copies of each other if the logging policy is uniform: then
        events are accepted whenever the actions agree, whatever the random numbers.
        """
        for (name, policy), seed in itertools.product(policies, self.seeds):
            for q, bias, stream in self.levels.each(self.adaptive):
                shorter = stream * self.horizon // len(self.levels.targets)
                yield LaneOptions(
                    policy=name,
                    method=self.method,
                    horizon=int(self.horizon),
                    q=q,
                    c_max=c_max,
                    smallest_logged=smallest_logged,
                    seed=sampling.stream(int(seed), stream),
                    carry=bool(self.carry),
                    tracker=self.tracker,
                    most_replicates=self.replicates,
                    unit_rewards=bool(getattr(policy, "unit_rewards", False)),
                    bias=bias,
                    pilot_steps=int(self.horizon) - shorter,
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


def are_several(*values: Any) -> bool:
    """Whether any of these parameters is a list."""
    return any(value is not None and not isinstance(value, Real | str) for value in values)
