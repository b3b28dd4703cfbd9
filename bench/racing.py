"""Two sides timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]


def race(benchmark: Any, ours: Run, baseline: Run, pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of ours and of the baseline, in turns. Each timed run follows an untimed one of its own side.

    That is the state in which a long log is read. Else a scan pays for the memory that mimalloc gave back while the
    other side ran: 7,000 page faults and up to 0.9 s for 5 million wide rows, 0 to 3,000 and 0.3 to 0.4 s after a scan.
    """
    seconds: list[float] = []

    def other_side() -> None:
        baseline()
        started = time.perf_counter()
        baseline()
        seconds.append(time.perf_counter() - started)
        ours()

    benchmark.pedantic(ours, setup=other_side, rounds=pairs)
    return list(benchmark.stats.stats.data), seconds
