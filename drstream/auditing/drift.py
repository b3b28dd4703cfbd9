"""Checks of drift: blocks of time that differ from all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from drstream.auditing.times import SUMS
from drstream.auditing.view import ALPHA, View, say
from drstream.findings import LOOK, OK, Finding
from drstream.types import Floats


@dataclass(frozen=True)
class Block:
    """A block of time, and how it compares with all others."""

    start: Any
    end: Any
    rows: int
    bad_share: float
    reward: float
    mean_inverse: float
    smallest_propensity: float
    z: dict[str, float]
    drifts: frozenset[str]  # names of what differs from the rest by more than chance allows


def blocks_of(view: View) -> list[Block]:
    if view.clock is None:
        return []
    clock, found = view.clock, view.tally.times.blocks()
    sums = np.array([block[3] for block in found]).reshape(len(found), len(SUMS))
    limit = math.log(2 * 3 * max(len(found), 1) / ALPHA)
    tally = view.tally
    ranges = {"reward": tally.rewards.high - tally.rewards.low, "mean_inverse": float(tally.inverses.largest.max())}
    bad = sums[:, 0] - sums[:, 1]
    values = {
        "bad_share": _compare(sums[:, 0], bad, bad, 1.0, limit),
        "reward": _compare(sums[:, 1], sums[:, 2], sums[:, 3], ranges["reward"], limit),
        "mean_inverse": _compare(sums[:, 1], sums[:, 4], sums[:, 5], ranges["mean_inverse"], limit),
    }
    if not view.with_propensities:
        values["mean_inverse"] = np.full((2, len(found)), math.nan), np.zeros(len(found), bool)
    result = []
    for i, (start, end, smallest, _) in enumerate(found):
        result.append(
            Block(
                clock.shown(start),
                clock.shown(end),
                int(sums[i, 0]),
                float(values["bad_share"][0][0, i]),
                float(values["reward"][0][0, i]) + view.typical_reward,
                float(values["mean_inverse"][0][0, i]),
                smallest if math.isfinite(smallest) else math.nan,
                {name: float(numbers[1, i]) for name, (numbers, _) in values.items()},
                frozenset(name for name, (_, drifts) in values.items() if drifts[i]),
            )
        )
    return result


def _compare(rows: Floats, sums: Floats, squares: Floats, span: float, limit: float) -> tuple[Floats, Any]:
    """Return the mean of each block with its z against the others, and whether Bernstein's bound excludes chance."""
    with np.errstate(all="ignore"):
        n = rows.sum()
        mean, rest = sums / rows, (sums.sum() - sums) / (n - rows)
        variance = max(float(squares.sum() / n - (sums.sum() / n) ** 2), 0.0)
        scale = 1 / rows + 1 / (n - rows)
        z = (mean - rest) / np.sqrt(variance * scale)
        drifts = np.abs(mean - rest) > np.sqrt(2 * variance * limit * scale) + span * limit * scale / 3
    return np.array([mean, z]), drifts


DRIFTS = {
    "reward": ("mean reward", "The world or the logging policy changed", "Evaluate such times apart"),
    "mean_inverse": (
        "mean of 1/p",
        "The number of possible actions, or how propensities are computed, changed; or the logging policy learned",
        "Check the propensities of such times, and evaluate them apart; if the policy learned from this log, cross-fit "
        "models forward",
    ),
    "bad_share": ("share of bad rows", "What writes the log changed", "Check the bad rows of such times"),
}


def drift(name: str) -> Callable[[View], Finding | None]:
    """Return the check that no block of time differs from the others."""

    def check(view: View) -> Finding | None:
        if view.clock is None or (name == "mean_inverse" and not view.propensities):
            return None
        blocks = blocks_of(view)
        what, means, do = DRIFTS[name]
        far = [block for block in blocks if name in block.drifts]
        if not far:
            return say(OK, f"drift_{name}", 0, f"The {what} is alike in {len(blocks)} blocks of time.")
        worst = max(far, key=lambda block: abs(block.z[name]))
        several = f" and differs in {len(far) - 1} more of {len(blocks)} blocks" if len(far) > 1 else ""
        return say(
            LOOK,
            f"drift_{name}",
            worst.z[name],
            f"The {what} from {worst.start} to {worst.end} is {getattr(worst, name):.4g} (z = {worst.z[name]:.3g} "
            f"against all other times){several}.",
            f"{means}.",
            f"{do}.",
        )

    return check
