"""Two sides, or more, timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

Run = Callable[[], Any]

THREADS = 2  # on each side
PAIRS = 9  # unless a case has its own number


def race(benchmark: Any, ours: Run, baseline: Run, pairs: int, warm: bool = True) -> tuple[list[float], list[float]]:
    """Seconds of ours and of the baseline, in turns. Each timed run follows an untimed one of its own side.

    That is the state in which a long log is read. Else a scan pays for the memory that mimalloc gave back while the
    other side ran: 7,000 page faults and up to 0.9 s for 5 million wide rows, 0 to 3,000 and 0.3 to 0.4 s after a scan.
    With warm=False none is untimed: for runs of seconds, of which both sides had one before, when parity was checked.
    """
    seconds, others = take_turns(benchmark, ours, [baseline], pairs, warm)
    return seconds, others[0]


def take_turns(
    benchmark: Any, ours: Run, others: Sequence[Run], rounds: int, warm: bool = True
) -> tuple[list[float], list[list[float]]]:
    """The same with several other sides; in each round they come first."""
    seconds: list[list[float]] = [[] for _ in others]

    def other_sides() -> None:
        for run, taken in zip(others, seconds, strict=True):
            if warm:
                run()
            started = time.perf_counter()
            run()
            taken.append(time.perf_counter() - started)
        if warm:
            ours()

    benchmark.pedantic(ours, setup=other_sides, rounds=rounds)
    return list(benchmark.stats.stats.data), seconds


def compare(ours: list[float], others: list[float], rows: int, baseline_rows: int | None = None) -> dict[str, Any]:
    """Events a second of both sides, and the ratio of the first to the second, of all pairs and in the median."""
    baseline_rows = baseline_rows or rows
    ratios = [rows / o / (baseline_rows / b) for o, b in zip(ours, others, strict=True)]
    return {
        "baseline_rows": baseline_rows,
        "events_per_second": rows / median(ours),
        "baseline_events_per_second": baseline_rows / median(others),
        "ratio": median(ratios),
        "ratios": ratios,
    }
