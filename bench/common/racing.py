"""Times two or more sides in turns, so that a busy moment of the machine slows all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench.common import logs

Run = Callable[[], Any]

THREADS = 2  # on each side
PAIRS = int(os.environ.get("DRSTREAM_BENCH_PAIRS") or (5 if logs.QUICK else 9))  # maximum, and the default


def race(benchmark: Any, ours: Run, baseline: Run, pairs: int, warm: bool = True) -> tuple[list[float], list[float]]:
    """Returns the seconds of our runs and of the baseline's. Each timed run follows an untimed one of the same side.

    This is the state in which a long log is read. Without the untimed run, a scan pays for memory that mimalloc gave
    back while the other side ran. A scan of 5 million wide rows then has 7,000 page faults and takes up to 0.9 s. After
    another scan, it has 0 to 3,000 and takes 0.3 to 0.4 s. warm=False leaves the untimed runs out. It is for runs of
    seconds, because the check of parity has already run both sides once.
    """
    seconds, others = take_turns(benchmark, ours, [baseline], pairs, warm)
    return seconds, others[0]


def take_turns(
    benchmark: Any, ours: Run, others: Sequence[Run], rounds: int, warm: bool = True
) -> tuple[list[float], list[list[float]]]:
    """Does the same with several other sides. In each round they run first."""
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

    benchmark.pedantic(ours, setup=other_sides, rounds=min(rounds, PAIRS))
    return list(benchmark.stats.stats.data), seconds


def compare(ours: list[float], others: list[float], rows: int, baseline_rows: int | None = None) -> dict[str, Any]:
    """Events per second of both sides, and the ratio of ours to the baseline's: of all pairs, and their median."""
    baseline_rows = baseline_rows or rows
    ratios = [rows / o / (baseline_rows / b) for o, b in zip(ours, others, strict=True)]
    return {
        "baseline_rows": baseline_rows,
        "events_per_second": rows / median(ours),
        "baseline_events_per_second": baseline_rows / median(others),
        "ratio": median(ratios),
        "ratios": ratios,
    }
