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

from drstream.evaluation.fused import Fused

from drstream.kernels import fused as kernels
from drstream.kernels import pages
from drstream.log.arrow import ArrowPart
from drstream.log.pages import NO_PAGES
from drstream.log.parquet import RowGroup
from drstream.log.reader import Reader
from drstream.replaying.chunks import Preparation
from drstream.replaying.lanes import CompiledLane

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


def apart(add: Callable[..., int], timer: Timer) -> Callable[..., int]:
    """The same as the kernel `add_events`, in two calls for each chunk of rows: one that decodes, and one that adds."""
    decode, adding = timer.function(pages.decode, DECODING), timer.function(add, EVENTS)

    def in_two_calls(address: Any, found: Any, folding: Any, events: Any, first: int, last: int, *about: Any) -> int:
        if not len(found.columns):
            return adding(address, found, folding, events, first, last, *about)
        assert folding.count == 0  # rows would need their numbers
        state = found.state
        while state[pages.ADDED] < last:
            shift = pages.turn(found.columns, state)
            some = min(state[pages.CHUNK], last - state[pages.ADDED])
            state[pages.RESULT] = decode(*found._replace(rows=some))
            if state[pages.RESULT] != pages.DONE:
                return -1
            moved = events._replace(base=events.base + shift)
            bad = adding(address, NO_PAGES, folding, moved, 0, some, *about)
            if bad >= 0:
                return int(state[pages.ADDED] + bad)
            state[pages.ADDED] += some
        return -1

    return in_two_calls


@contextmanager
def clocks(timer: Timer, divided: bool) -> Iterator[None]:
    """Add up each step while it is open.

    divided  Makes calls of their own of decoding and adding, which the kernel does in one call.
    """
    add = kernels.add_events
    with ExitStack() as stack:
        kernel = apart(add, timer) if divided else timer.function(add, CALL)
        stack.enter_context(mock.patch.object(kernels, "add_events", kernel))
        for owner, name, step, make in (
            (RowGroup, "batches", DECODING, timer.iterator),
            (RowGroup, "hand_to", DECODING, timer.function),
            (ArrowPart, "hand_to", DECODING, timer.function),
            (Reader, "batches", VIEWS, timer.iterator),
            (Reader, "hand_to", VIEWS, timer.function),
            (Fused, "add", EVENTS, timer.function),
            (Fused, "add_part", EVENTS, timer.function),
            (Preparation, "chunk", CHUNKS, timer.function),
            (CompiledLane, "_learn", LOOP, timer.function),
        ):
            stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name), step)))
        yield


def steps(
    work: Callable[[], Any], clock: Clock = time.perf_counter, divided: bool = True
) -> tuple[float, dict[str, float]]:
    """What the clock shows for all, and for each step alone."""
    timer = Timer(clock)
    with clocks(timer, divided):
        start = clock()
        work()
        whole = clock() - start
    return whole, {VIEWS: 0.0, **timer.sums}
