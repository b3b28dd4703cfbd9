"""Times the steps of a pass, by clocks around a few functions of drstream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from drstream.evaluation.fused import Fused
from drstream.log.parquet import RowGroup
from drstream.log.reader import Reader
from drstream.replaying.chunks import Preparation
from drstream.replaying.lanes import CompiledLane

DECODING, VIEWS, EVENTS, CHUNKS, LOOP = "decoding", "views and checks", "scores to sums", "chunks", "loop"


def _timed(function: Callable[..., Any], step: str, seconds: Counter[str]) -> Callable[..., Any]:
    def measured(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            seconds[step] += time.perf_counter() - start

    return measured


def _timed_iterator(function: Callable[..., Iterator[Any]], step: str, seconds: Counter[str]) -> Callable[..., Any]:
    def measured(*args: Any, **options: Any) -> Iterator[Any]:
        found = function(*args, **options)
        while True:
            start = time.perf_counter()
            item = next(found, None)
            seconds[step] += time.perf_counter() - start
            if item is None:
                return
            yield item

    return measured


@contextmanager
def clocks(seconds: Counter[str]) -> Iterator[None]:
    """Add up the seconds of each step while it is open. Views and checks include decoding, which they pull."""
    with ExitStack() as stack:
        for owner, name, step, make in (
            (RowGroup, "batches", DECODING, _timed_iterator),
            (Reader, "batches", VIEWS, _timed_iterator),
            (Fused, "add", EVENTS, _timed),
            (Preparation, "chunk", CHUNKS, _timed),
            (CompiledLane, "_learn", LOOP, _timed),
        ):
            stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name), step, seconds)))
        yield


def steps(work: Callable[[], Any]) -> tuple[float, dict[str, float]]:
    """The seconds of all, and of each step alone."""
    seconds: Counter[str] = Counter()
    with clocks(seconds):
        start = time.perf_counter()
        work()
        whole = time.perf_counter() - start
    found = dict(seconds)
    found[VIEWS] = found.get(VIEWS, 0.0) - found.get(DECODING, 0.0)
    return whole, found
