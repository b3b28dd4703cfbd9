"""The empirical Bernstein interval: its coverage is guaranteed for independent events, whatever their number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drstream.intervals import needs
from drstream.intervals.ranges import score_range
from drstream.intervals.statistic import UNDEFINED, Limits, Side, Statistic, total_score

NAME = "bernstein"


def bernstein(statistic: Statistic, limits: Limits) -> tuple[float, float]:
    """Return mean ± √(2 s² L / n) + 7 D L / (3 (n - 1)), L = ln(4 / α), D the length of the range of the score.

    It is Maurer and Pontil 2009, theorem 4, at level α / 2 for each bound. The mean is that of the score, not the value
    of a ratio of means.
    """
    check(statistic.sides, limits)
    if not statistic.sides:
        return UNDEFINED
    low, high = needs.reward_range(NAME, limits)
    smallest, largest = score_range(statistic.sides, needs.weight_bound(NAME, statistic.sides, limits), low, high)
    n, score = statistic.n, total_score(statistic.sides)
    mean = float(score @ statistic.means)
    variance = float(score @ statistic.comoment @ score) / (n - 1)
    if not math.isfinite(variance):
        return UNDEFINED
    log = math.log(4 / (1 - limits.confidence))
    half = math.sqrt(2 * max(0.0, variance) * log / n) + 7 * (largest - smallest) * log / (3 * (n - 1))
    return mean - half, mean + half


def check(sides: Sequence[Side], limits: Limits) -> None:
    needs.reward_range(NAME, limits)
    needs.weight_bound(NAME, sides, limits)
