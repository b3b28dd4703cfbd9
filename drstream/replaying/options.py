"""What a replay is asked to do, checked: for all lanes, and for one."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from drstream.errors import DrstreamError, near

CURVE_POINTS = 10_000  # at most; a longer horizon has several steps to a point


@dataclass(frozen=True)
class Settings:
    """What Algorithm 1 is to do."""

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
    snapshots: int = 0  # of the policy's states, at most, to be recorded; for one replicate, in one shard

    @property
    def adaptive(self) -> bool:
        return self.method in ("dr-ns", "dm")

    @property
    def bin_steps(self) -> int:
        return -(-self.horizon // CURVE_POINTS)

    @property
    def bins(self) -> int:
        return -(-self.horizon // self.bin_steps)


METHODS = ("dr-ns", "dr-ns-wc", "rs", "dm")
TRACKERS = ("auto", "exact", "sketch")
LONGEST = 2**62 - 1  # steps


def asked_once(horizon: int | None, q: float, c_max: float, seed: int, snapshots: int) -> _Asked:
    """The parameters of `record`, checked."""
    steps = LONGEST if horizon is None else horizon
    asked = _Asked("dr-ns", steps, (q,), c_max, (seed,), False, 1, 1, "auto", snapshots)
    asked.check()
    return asked


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, Real):
        return [value]
    if isinstance(value, str) or np.ndim(value) != 1:
        raise DrstreamError(f"{name}={value!r}: a number or a list of numbers")
    return list(value)


@dataclass(frozen=True)
class _Asked:
    """The parameters that the checks are about."""

    method: str
    horizon: int
    q: tuple[float, ...]
    c_max: float
    seeds: tuple[int, ...]
    carry: bool
    replicates: int | None
    shards: int
    tracker: str
    snapshots: int | None = None

    def check(self) -> None:
        if self.method not in METHODS:
            raise DrstreamError(f"method={self.method!r}: {near(str(self.method), METHODS)}")
        if self.tracker not in TRACKERS:
            raise DrstreamError(f"tracker={self.tracker!r}: {near(str(self.tracker), TRACKERS)}")
        for name in ("horizon", "replicates", "shards", "snapshots"):
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (whole and 1 <= value <= LONGEST) and not (name in ("replicates", "snapshots") and value is None):
                raise DrstreamError(f"{name}={value!r}: a whole number, at least 1")
        for q in self.q:
            if not isinstance(q, Real) or not 0 <= q <= 1:
                raise DrstreamError(f"q={q!r}: the quantile level must be in [0, 1]")
        if not isinstance(self.c_max, Real) or not 0 < self.c_max <= 1:
            raise DrstreamError(f"c_max={self.c_max!r}: the largest multiplier must be in (0, 1]")
        for seed in self.seeds:
            if not isinstance(seed, Integral) or not -(2**63) <= seed < 2**63:
                raise DrstreamError(f"seed={seed!r}: a whole number of 64 bits")
        if self.method in ("dr-ns-wc", "rs") and len(self.q) > 1:
            raise DrstreamError(f"q={list(self.q)}: {self.method} does not use q, so give one of them")
        for name, values in (("q", self.q), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise DrstreamError(f"{name}={list(values)}: at least one value, and none of them twice")
