"""How many weights are how large: counts by octave, from one power of two to the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from drstream.types import Floats, Ints

LOWEST, HIGHEST = -10, 14  # of the first and the last octave, which also have all that lies below and above them
BINS = HIGHEST - LOWEST + 2  # the first bin is for weights that are 0


def count(weights: Floats) -> Ints:
    """Count weights by octave.

    >>> found = count(np.array([0.0, 0.75, 1.0, 1.5, 2.0, 1e9]))
    >>> {edges(place): int(n) for place, n in enumerate(found) if n}
    {(0.0, 0.0): 1, (0.5, 1.0): 1, (1.0, 2.0): 2, (2.0, 4.0): 1, (16384.0, inf): 1}
    """
    octave = np.where(np.isinf(weights), HIGHEST, np.frexp(weights)[1] - 1)  # frexp gives m 2^e with m in [1/2, 1)
    place = np.where(weights > 0, np.clip(octave, LOWEST, HIGHEST) - LOWEST + 1, 0)
    return np.bincount(place, minlength=BINS)


def rows(counts: Ints) -> list[dict[str, Any]]:
    """Return one row for each bin, from the first to the last that has a weight: its edges, and how many it has."""
    used = np.flatnonzero(counts[1:]) + 1
    places = [*([0] if counts[0] else []), *(range(used[0], used[-1] + 1) if len(used) else ())]
    return [dict(zip(("from", "below"), edges(p), strict=True)) | {"events": int(counts[p])} for p in places]


def edges(place: int) -> tuple[float, float]:
    """Return the smallest weight of a bin, and the one that is too large for it."""
    if not place:
        return 0.0, 0.0
    octave = place - 1 + LOWEST
    return 0.0 if octave == LOWEST else 2.0**octave, np.inf if octave == HIGHEST else 2.0 ** (octave + 1)
