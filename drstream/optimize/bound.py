"""A bound on the error of an estimate, which knows what it rests on: the theorem of the paper's last appendix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

from drstream.errors import PolicyError
from drstream.parameters import number, whole


class Bound(float):
    """A number with notes: why it is NaN, or which of its constants were only observed.

    >>> Bound(0.25, ["M is only observed"]).guaranteed, Bound(0.25) + 1
    (False, 1.25)
    """

    notes: tuple[str, ...]

    def __new__(cls, value: float, notes: Any = ()) -> Self:
        made = super().__new__(cls, value)
        made.notes = tuple(notes)
        return made

    @property
    def guaranteed(self) -> bool:
        """Whether the bound exists and all its constants are true bounds, if those that were given are."""
        return not self.notes


@dataclass(frozen=True)
class Replayed:
    """What the bound needs to know about a replay of DR-ns."""

    events: int  # N
    length: float  # n, the number of events that the log has, which bounds N; NaN if it is not known
    weight: float  # C
    c_max: float
    least_propensity: float
    rewards: tuple[float, float]  # the smallest and the largest
    predictions: tuple[float, float]  # of r̂, for all actions; NaN if they are not known


def bound(
    run: Replayed,
    delta: float,
    weight: float | None,
    error: float,
    variance: float,
    length: int | None,
    reward_range: Any,
) -> Bound:
    """Freedman's inequality for the first N terms c_t (V̂_k - E V̂_k), for all N up to n at once.

    Appendix G has N under the root. N is random, and the inequality needs a number that was fixed beforehand.
    """
    if not isinstance(delta, Real) or not 0 < delta < 1:
        raise PolicyError(f"delta={delta!r}: the probability that the bound fails must be in (0, 1)")
    low, high, notes = _range(run, reward_range)
    if weight is None:
        weight = 1 / run.least_propensity
        notes.append(
            f"M = {weight:.6g} is 1 / the smallest propensity of the events, which is only observed: for a guarantee, "
            "give a weight that bounds π/p for all contexts and actions"
        )
    for name, value in (("weight", weight), ("error", error), ("variance", variance)):
        number(name, value)
    n = run.length if length is None else whole("length", length)
    if n < run.events:
        raise PolicyError(f"length={length}: the replay used {run.events:,} events, so the log has more")
    undefined = _undefined(run, low, high, n)
    if undefined:
        return Bound(math.nan, [*undefined, *notes])
    log_term = math.log(2 / delta)
    largest = max((1 + weight) * log_term, math.sqrt(n * (variance + weight * error) * log_term))
    return Bound((high - low) * run.c_max / run.weight * 2 * largest, notes)


def _range(run: Replayed, given: Any) -> tuple[float, float, list[str]]:
    """The range of rewards and 0, which is [0, 1] if all of them lie in it, and notes."""
    low, high = run.rewards
    if given is not None:
        pair = tuple(given) if isinstance(given, tuple | list) else ()
        if len(pair) != 2 or not all(isinstance(x, Real) and math.isfinite(x) for x in pair) or not pair[0] < pair[1]:
            raise PolicyError(f"reward_range={given!r}: it must be the range of possible rewards, (low, high)")
        if low < pair[0] or high > pair[1]:
            raise PolicyError(f"reward_range={given!r}: the log has rewards from {low:g} to {high:g}")
        return min(float(pair[0]), 0.0), max(float(pair[1]), 0.0), []
    if low >= 0 and high <= 1:
        return 0.0, 1.0, []
    low, high = min(low, 0.0), max(high, 0.0)
    note = f"the range of the rewards and 0, [{low:g}, {high:g}], is only observed: for a guarantee, give reward_range"
    return low, high, [note]


def _undefined(run: Replayed, low: float, high: float, n: float) -> list[str]:
    """Why there is no bound."""
    if math.isnan(n) or math.isnan(run.predictions[0]):
        what = "the length of the log is not known: give length" if math.isnan(n) else "the range of r̂ is not known"
        return [f"there is no bound, because {what}, or learn the policy again"]
    least, largest = run.predictions
    if least < low or largest > high:
        return [
            f"there is no bound, because r̂ lies in [{least:.6g}, {largest:.6g}], outside of [{low:g}, {high:g}], and "
            f"the theorem needs it inside: clamp it to the range of the rewards, clamp=({low:g}, {high:g}) of fit"
        ]
    return []
