"""The set Q of Algorithm 1: its running quantile, exactly or within a bound in constant memory.

>>> tracker = Exact(q=0.5)
>>> tracker.insert([3.0, 1.0, 2.0])
array([3., 1., 2.])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from drstream.errors import DrstreamError
from drstream.kernels import quantiles as kernels
from drstream.types import Floats

ERROR = kernels.ERROR
NOTHING = np.empty(0)


class Exact:
    """All values below `bound`, in two heaps: O(log n) to insert, O(1) to ask. 8 bytes a value, and half as much spare.

    For q = 0 only the smallest is kept.
    """

    def __init__(self, q: float, bound: float = math.inf) -> None:
        self.state = _new_state(q, bound)
        self.low, self.high = np.empty(16), np.empty(16)

    @property
    def kept(self) -> int:
        """Values in memory."""
        return int(self.state[0].low + self.state[0].high)

    def as_sketch(self) -> Sketch:
        """A sketch of the same values."""
        state = self.state[0]
        sketch = Sketch(state.q, state.bound)
        sketch.insert(self.low[: state.low])
        sketch.insert(self.high[: state.high])
        sketch.state[0].count, sketch.state[0].smallest = state.count, state.smallest
        return sketch

    def reserve(self, values: int) -> None:
        """Make space for so many more values; called before kernels, which cannot allocate."""
        state = self.state[0]
        if state.q == 0:
            return
        rank = math.ceil(state.q * (state.count + values)) + 1
        self.low = _grown(self.low, min(rank, state.low + state.high + values))
        self.high = _grown(self.high, state.high + values)

    def insert(self, values: Any) -> Floats:
        """The quantile after each of the values."""
        values = np.ascontiguousarray(values, dtype=np.float64)
        self.reserve(len(values))
        out = np.empty(len(values))
        kernels.track_exactly(self.state, self.low, self.high, values, out)
        return out


class Sketch:
    """Counts of values below `bound` <= 1 in logarithmic buckets: constant memory, O(1).

    The answer is never above the exact quantile and less than ERROR = 1/128 of it below, for values of at least 2**-64;
    smaller ones are taken for the smallest. For q = 0 it is exact.
    """

    def __init__(self, q: float, bound: float = 1.0) -> None:
        if not bound <= 1:
            raise DrstreamError(f"bound={bound!r}: a sketch has buckets for values up to 1")
        self.state = _new_state(q, bound)
        self.low, self.high = np.zeros(kernels.BUCKETS), NOTHING

    def reserve(self, values: int) -> None:
        """Nothing to do: there is always space."""

    def insert(self, values: Any) -> Floats:
        values = np.ascontiguousarray(values, dtype=np.float64)
        out = np.empty(len(values))
        kernels.track_roughly(self.state, self.low, values, out)
        return out


def _new_state(q: float, bound: float) -> Any:
    state: Any = np.zeros(1, kernels.STATE).view(np.recarray)
    state.q, state.bound, state.smallest = q, bound, np.inf
    return state


def _grown(array: Floats, needed: int) -> Floats:
    """Half as much again, where there is too little: 8 bytes for each value that is kept and at most 4 for none."""
    if needed > len(array):
        array.resize(max(needed, len(array) * 3 // 2), refcheck=False)  # in place, where the system can
    return array
