"""Bins of weights by size, from one power of two to the next: their edges, and rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from drstream.kernels.account import HIGHEST, LOWEST
from drstream.types import Floats


def rows(counts: Floats) -> list[dict[str, Any]]:
    """Return one row for each bin, from the first to the last that has a weight: its edges, and how many it has."""
    used = np.flatnonzero(counts[1:]) + 1
    places = [*([0] if counts[0] else []), *(range(used[0], used[-1] + 1) if len(used) else ())]
    return [dict(zip(("from", "below"), edges(p), strict=True)) | {"events": int(counts[p])} for p in places]


def edges(place: int) -> tuple[float, float]:
    """Return the smallest weight of a bin, and the one that is too large for it.

    >>> [edges(place) for place in (0, 1, 11, 25)]
    [(0.0, 0.0), (0.0, 0.001953125), (1.0, 2.0), (16384.0, inf)]
    """
    if not place:
        return 0.0, 0.0
    octave = place - 1 + LOWEST
    return 0.0 if octave == LOWEST else 2.0**octave, np.inf if octave == HIGHEST else 2.0 ** (octave + 1)
