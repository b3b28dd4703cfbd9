"""What a method needs from the user, and the messages if it is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from drstream.errors import DrstreamError, parameter, phrase
from drstream.intervals.statistic import Limits, Side


def reward_range(name: str, limits: Limits) -> tuple[float, float]:
    """Return the range of the rewards. It must be given."""
    if limits.reward_range is None:
        raise missing_range(name)
    return limits.reward_range


def weight_bound(name: str, sides: Sequence[Side], limits: Limits) -> float:
    """Return the bound on the weights, or infinity if no side has weights. A bound on weights must be given."""
    if limits.max_weight_bound is None and any(side.weight is not None for side in sides):
        raise missing_bound(name)
    return math.inf if limits.max_weight_bound is None else limits.max_weight_bound


def missing_range(name: str) -> DrstreamError:
    example = phrase("(low, high), e.g. (0, 1) for clicks", ", e.g. from 0 to 1 for clicks")
    return DrstreamError(
        f"{parameter('interval', name)} needs the range of the rewards: pass {parameter('reward_range')}{example}"
    )


def missing_bound(name: str) -> DrstreamError:
    example = phrase("...", "")
    return DrstreamError(
        f"{parameter('interval', name)} needs an upper bound on the importance weights: pass "
        f"{parameter('max_weight_bound')}{example}, e.g. 1 / the smallest probability with which the logging policy "
        "chooses an action. The largest weight of the log is no such bound"
    )


def missing_cluster(name: str) -> DrstreamError:
    example = phrase("'user_id'", " user_id")
    return DrstreamError(
        f"{parameter('interval', name)} needs to know which events belong together: pass {parameter('cluster')}"
        f"{example}, the name of a column"
    )


def check_range(reward_range: Any) -> tuple[float, float] | None:
    """Check that a range is two finite numbers, the first below the second, and return it; None without one."""
    if reward_range is None:
        return None
    try:
        low, high = (float(end) for end in reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DrstreamError(
            f"{parameter('reward_range', reward_range)}: it must be two finite numbers, the smallest and the largest "
            "possible reward, e.g. (0, 1) for clicks"
        )
    return low, high
