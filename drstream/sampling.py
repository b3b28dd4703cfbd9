"""Random numbers by row, for the u_k of Algorithm 1 and for the splits of a log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drstream.kernels import random
from drstream.types import Floats, Ints

SEEDS = 2**64


def uniforms(seed: int, start: int, count: int) -> Floats:
    """Return the random numbers in [0, 1) of rows start, start + 1, ... They depend on (seed, row) and nothing else.

    >>> bool((uniforms(7, 100, 5) == uniforms(7, 98, 7)[2:]).all())
    True
    """
    return at_rows(seed, np.arange(start, start + count, dtype=np.uint64))


def at_rows(seed: int, rows: NDArray[np.uint64]) -> Floats:
    return random.uniforms(np.array([seed % SEEDS], dtype=np.uint64), rows)


def folds_at_rows(seed: int, rows: NDArray[np.uint64], count: int) -> Ints:
    """Return the fold of each row, from 0 to count - 1."""
    return random.folds(np.array([seed % SEEDS], dtype=np.uint64), rows, count)


def stream(seed: int, number: int) -> int:
    """Return the seed of one of the streams of random numbers that belong to a seed. Stream 0 is the seed's own."""
    return seed + 1_000_003 * number
