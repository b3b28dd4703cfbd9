"""How many events a replay needs: a bound on the number of events until T steps were simulated m times."""

from __future__ import annotations

import math

FAILURE = 0.05  # probability that so many events are not enough


def events_needed(replicates: int, horizon: int, acceptance: float, failure: float = FAILURE) -> int:
    """Events that complete so many replicates, except with probability `failure`, if each is accepted at this rate.

    n α >= m T + L + sqrt(L² + 2 m T L) with L = ln(1 / failure), from Bernstein's inequality. The bound printed in
    section 5.3, n α >= m T + ln(e / failure), is too small: it fails with probability 0.27 to 0.42 where it says 0.05.

    >>> events_needed(1, 300, 0.1)
    3455
    """
    steps, log = replicates * horizon, math.log(1 / failure)
    return math.ceil((steps + log + math.sqrt(log * log + 2 * steps * log)) / acceptance)


def with_pilot(events: int, pilot: int) -> int:
    """Events of a log that leave so many after its pilot, which takes a tenth of the log at most."""
    return min(math.ceil(events / 0.9), events + pilot)


def replicates_expected(events: float, horizon: int, acceptance: float) -> float:
    """Number of complete replicates that so many events give on average, at this rate: the last one is cut off."""
    return max(events * acceptance / horizon - 0.5, 0.0)


def longest_horizon(replicates: int, events: float, acceptance: float, failure: float = FAILURE) -> int:
    """The largest horizon of which so many events complete so many replicates, by the same bound; 0 if there is none.

    y = n α >= s + L + sqrt(L² + 2 s L) with s = m T holds as long as s <= y - sqrt(2 y L).

    >>> longest_horizon(1, 3455, 0.1), longest_horizon(1, 3454, 0.1)
    (300, 299)
    """
    steps, log = events * acceptance, math.log(1 / failure)
    return max(math.floor((steps - math.sqrt(2 * steps * log)) / replicates), 0)
