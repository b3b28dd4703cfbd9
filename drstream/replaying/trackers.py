"""Where the multiplier c comes from: a running quantile of Algorithm 1's set Q, or a target of the bias mass.

The quantile is exact, or within a bound in constant memory.

>>> tracker = Exact(q=0.5)
>>> tracker.insert([3.0, 1.0, 2.0])
array([3., 1., 2.])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from drstream.errors import DrstreamError
from drstream.kernels import buckets, masses
from drstream.kernels import quantiles as kernels
from drstream.states.tree import Varying
from drstream.types import Floats

ERROR = buckets.ERROR
NOTHING = np.empty(0)


class Exact:
    """Keeps all values below `bound` in two heaps. An insertion takes O(log n), a query O(1).

    A value takes 8 bytes, and up to 4 more for spare room. For q = 0, only the smallest value is kept.
    """

    def __init__(self, q: float, bound: float = math.inf) -> None:
        self.state = _new_state(q, bound)
        self.now = plain(self.state)
        self.low, self.high = np.empty(16), np.empty(16)  # heaps of `kernels.quantiles`

    @property
    def kept(self) -> int:
        """Number of values in memory."""
        return int(self.now["low"] + self.now["high"])

    def as_sketch(self) -> Sketch:
        """A sketch of the same values."""
        now = self.now
        sketch = Sketch(now["q"], now["bound"])
        sketch.insert(-self.low[: now["low"]])  # it is negated
        sketch.insert(self.high[: now["high"]])
        sketch.state[0].count, sketch.state[0].smallest = now["count"], now["smallest"]
        return sketch

    def contents(self) -> dict[str, Any]:
        """All that a checkpoint holds of it."""
        low, high = self.low[: self.now["low"]], self.high[: self.now["high"]]
        return {"state": self.state, "low": Varying(low), "high": Varying(high)}

    def take_up(self, kept: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds of it."""
        _take_up_state(self.state, kept["state"], ("q", "bound"))
        heaps = []
        for name in ("low", "high"):
            values = kept[name].array
            if len(values) != self.now[name]:
                raise ValueError(f"{len(values)} values of the tracker, not {self.now[name]}")
            heaps.append(np.concatenate([values, np.empty(16)]))
        self.low, self.high = heaps

    def reserve(self, values: int) -> None:
        """Make space for this many more values. Kernels cannot allocate, so it is called before them."""
        now = self.now
        if now["q"] == 0:
            return
        rank = math.ceil(now["q"] * (now["count"] + values)) + 1
        self.low = _grown(self.low, min(rank, now["low"] + now["high"] + values))
        self.high = _grown(self.high, now["high"] + values)

    def insert(self, values: Any) -> Floats:
        """Insert values. Return the quantile after each of them."""
        values = np.ascontiguousarray(values, dtype=np.float64)
        self.reserve(len(values))
        out = np.empty(len(values))
        kernels.track_exactly(self.state, self.low, self.high, values, out)
        return out


class Sketch:
    """Counts values below `bound` <= 1 in logarithmic buckets: constant memory, O(1) for an insertion or a query.

    The answer is never above the exact quantile, and less than ERROR = 1/128 of it below. This holds for quantiles of
    at least 2**-64; instead of smaller ones, the answer is the smallest value. For q = 0 the answer is exact.
    """

    def __init__(self, q: float, bound: float = 1.0) -> None:
        if not bound <= 1:
            raise DrstreamError(f"bound={bound!r}: a sketch has buckets for values up to 1")
        self.state = _new_state(q, bound)
        self.low, self.high = np.zeros(buckets.BUCKETS), NOTHING

    def contents(self) -> dict[str, Any]:
        return {"state": self.state, "low": self.low}

    def take_up(self, kept: dict[str, Any]) -> None:
        _take_up_state(self.state, kept["state"], ("q", "bound"))
        self.low[:] = kept["low"]

    def reserve(self, values: int) -> None:
        """Do nothing: there is always space."""

    def insert(self, values: Any) -> Floats:
        values = np.ascontiguousarray(values, dtype=np.float64)
        out = np.empty(len(values))
        kernels.track_roughly(self.state, self.low, values, out)
        return out


class Mass:
    """Finds the largest multiplier c whose bias mass on the values p/π so far is at most `target`.

    It counts values in logarithmic buckets, so it takes constant memory. The answer is the edge of a bucket, less than
    ERROR below the exact one, and at least 2**-64. If the smallest value is larger than that edge, the answer is the
    smallest value.
    """

    def __init__(self, target: float, bound: float = 1.0) -> None:
        state: Any = np.zeros(1, masses.STATE).view(np.recarray)
        state.target, state.bound, state.smallest, state.bucket = target, bound, np.inf, buckets.BUCKETS
        self.state = state
        self.low, self.high = np.zeros(buckets.BUCKETS), np.zeros(buckets.BUCKETS)

    def contents(self) -> dict[str, Any]:
        return {"state": self.state, "low": self.low, "high": self.high}

    def take_up(self, kept: dict[str, Any]) -> None:
        _take_up_state(self.state, kept["state"], ("target", "bound"))
        self.low[:], self.high[:] = kept["low"], kept["high"]

    def reserve(self, values: int) -> None:
        """Do nothing: there is always space."""

    def insert(self, values: Any) -> Floats:
        """Insert values p/π. Return the multiplier after each of them."""
        values = np.ascontiguousarray(values, dtype=np.float64)
        out = np.empty(len(values))
        masses.track(self.state, self.low, self.high, values, out)
        return out


def plain(state: Any) -> Any:
    """The only record of a state, as a view: an item of it takes 0.1 µs, an attribute of `state` 2 µs and more."""
    return state.view(np.dtype((np.void, state.dtype)), np.ndarray)[0]


def _take_up_state(state: Any, kept: Any, same: tuple[str, ...]) -> None:
    """Take up a state from a file, which may be made up: kernels do not check the bounds of arrays."""
    for name in same:
        if state[name][0] != kept[name][0]:
            raise ValueError(f"{name} of the tracker")
    if not 0 <= kept["bucket"][0] <= buckets.BUCKETS:
        raise ValueError("bucket of the tracker")
    state[:] = kept


def _new_state(q: float, bound: float) -> Any:
    state: Any = np.zeros(1, kernels.STATE).view(np.recarray)
    state.q, state.bound, state.smallest = q, bound, np.inf
    return state


def _grown(array: Floats, needed: int) -> Floats:
    """Enlarge an array that is too small, by half at least: 8 bytes for each value kept, and at most 4 spare."""
    if needed > len(array):
        array.resize(max(needed, len(array) * 3 // 2), refcheck=False)  # in place, if the system can
    return array
