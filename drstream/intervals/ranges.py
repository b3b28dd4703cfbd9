"""How small and how large the score of an event can be, by the ranges of rewards, predictions and weights.

The score is Σ sign y over the sides, and y is one of w r, b + w (r - r̂), b and r. Rewards r and predictions r̂ and b lie
in [low, high], weights in [0, top]. All sides see the same reward. So (w - 1) r, which is IPS minus the baseline, has a
smaller range than w r and r have together. A score is affine in each of r, r̂, b and w. So its extremes are at the ends
of their ranges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from drstream.intervals.statistic import BASELINE, REWARD, ROBUST, Side

Weights = Mapping[int, float]  # of the variables that are weights


def weights_of(sides: Sequence[Side]) -> list[int]:
    """Return the variables that are weights, each once."""
    return list(dict.fromkeys(side.weight for side in sides if side.weight is not None))


def corners(sides: Sequence[Side], top: float) -> Iterator[dict[int, float]]:
    """Yield every combination of ends of the weights' ranges."""
    variables = weights_of(sides)
    for ends in product((0.0, top), repeat=len(variables)):
        yield dict(zip(variables, ends, strict=True))


def extremes(sides: Sequence[Side], weights: Weights, low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest score of an event with these weights."""
    return _over_rewards(sides, weights, low, high, bounded=True)


def slopes(sides: Sequence[Side], direction: Weights, low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest change of a score as the weights grow in a direction."""
    return _over_rewards(sides, direction, low, high, bounded=False)


def score_range(sides: Sequence[Side], top: float, low: float, high: float) -> tuple[float, float]:
    """Return the smallest and the largest score of an event; infinite if weights have no bound and matter."""
    if math.isinf(top):
        growth = [
            slopes(sides, {w: float(w == grows) for w in weights_of(sides)}, low, high) for grows in weights_of(sides)
        ]
        smallest, largest = extremes(sides, dict.fromkeys(weights_of(sides), 0.0), low, high)
        return (
            -math.inf if any(down < 0 for down, _ in growth) else smallest,
            math.inf if any(up > 0 for _, up in growth) else largest,
        )
    ends = [extremes(sides, weights, low, high) for weights in corners(sides, top)]
    return min(end[0] for end in ends), max(end[1] for end in ends)


def _over_rewards(
    sides: Sequence[Side], weights: Weights, low: float, high: float, *, bounded: bool
) -> tuple[float, float]:
    smallest, largest = math.inf, -math.inf
    for reward in (low, high):
        terms = [_ends(side, weights, reward, low, high, bounded) for side in sides]
        smallest = min(smallest, math.fsum(min(term) for term in terms))
        largest = max(largest, math.fsum(max(term) for term in terms))
    return smallest, largest


def _ends(side: Side, weights: Weights, r: float, low: float, high: float, bounded: bool) -> tuple[float, float]:
    """Return both ends of one side's score for a reward r: its weighted part, and its bounded part if asked for."""
    w = 0.0 if side.weight is None else weights[side.weight]
    if side.kind == REWARD:
        ends = (w * r, w * r)
    elif side.kind == ROBUST:
        ends = (w * (r - high) + bounded * low, w * (r - low) + bounded * high)
    elif side.kind == BASELINE:
        ends = (bounded * r, bounded * r)
    else:
        ends = (bounded * low, bounded * high)
    return side.sign * ends[0], side.sign * ends[1]
