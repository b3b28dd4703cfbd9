"""Times the steps of a pass, by clocks around a few functions of drstream. A clock may count other things than time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from drstream.evaluation.observe.base import Observer
from drstream.log.reader import Reader
from drstream.replaying.chunks import Preparation
from drstream.replaying.lanes import CompiledLane
from drstream.sources.parquet import RowGroup

Clock = Callable[[], float]
DECODING, VIEWS, EVENTS, CHUNKS, LOOP = "decoding", "views and checks", "scores to sums", "chunks", "loop"
CALL = "the compiled call"


class Timer:
    """Adds up what a clock shows, in seconds or otherwise, for each step, without the steps that it calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sums: Counter[str] = Counter()
        self.called = threading.local()  # `.sum`: what the clock shows for steps that the one under way has called

    def function(self, function: Callable[..., Any], step: str) -> Callable[..., Any]:
        def measured(*args: Any, **options: Any) -> Any:
            before, self.called.sum = getattr(self.called, "sum", 0.0), 0.0
            start = self.clock()
            try:
                return function(*args, **options)
            finally:
                taken = self.clock() - start
                self.sums[step] += taken - self.called.sum  # type: ignore[assignment]  # floats
                self.called.sum = before + taken

        return measured

    def iterator(self, function: Callable[..., Iterator[Any]], step: str) -> Callable[..., Any]:
        def measured(*args: Any, **options: Any) -> Iterator[Any]:
            following = self.function(partial(next, function(*args, **options), None), step)
            while (item := following()) is not None:
                yield item

        return measured


@contextmanager
def clocks(timer: Timer) -> Iterator[None]:
    """Add up each step while it is open."""
    with ExitStack() as stack:
        for owner, name, step, make in (
            (RowGroup, "batches", DECODING, timer.iterator),
            (Reader, "batches", VIEWS, timer.iterator),
            (Observer, "add", EVENTS, timer.function),
            (Preparation, "chunk", CHUNKS, timer.function),
            (CompiledLane, "_learn", LOOP, timer.function),
        ):
            stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name), step)))
        yield


def steps(work: Callable[[], Any], clock: Clock = time.perf_counter) -> tuple[float, dict[str, float]]:
    """What the clock shows for all, and for each step alone."""
    timer = Timer(clock)
    with clocks(timer):
        start = clock()
        work()
        whole = clock() - start
    return whole, {VIEWS: 0.0, **timer.sums}
