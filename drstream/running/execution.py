"""Runs a task over the parts of a log, on threads or any executor. Results come in the order of the parts."""

from __future__ import annotations

import itertools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from queue import Empty, Full, Queue
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from drstream.errors import DrstreamError, parameter
from drstream.log import Log
from drstream.parameters import whole
from drstream.running.executors import is_lost, lost, places_of, submitting, usable_cores
from drstream.running.progress import reporter
from drstream.sources.base import Part
from drstream.sources.remote import is_far, read_ahead

Result = TypeVar("Result")
Producer = Callable[[Part], Iterator[Result]]
Items = Generator[Result, None, None]
AWAKE = 0.2  # seconds between checks whether the pass is over
AHEAD = 2  # parts under way for each worker: one is worked on, one is ready


@dataclass(frozen=True)
class Workers:
    """The parameters threads=, executor= and progress= of a pass, checked."""

    threads: int
    executor: Executor | None = None
    progress: Any = False
    places: int = 0  # parts that the executor's workers can work on at a time, if it is known
    checkpoint: Any = None  # of `drstream.states.checkpoint`: keeps what passes of fits have summed up

    @classmethod
    def of(cls, threads: int | None = None, executor: Any = None, progress: Any = False) -> Workers:
        if hasattr(executor, "get_executor"):  # a client of Dask
            executor = executor.get_executor(pure=False)
        if executor is not None and not hasattr(executor, "submit"):
            raise DrstreamError(
                f"{parameter('executor', executor)}: it must be a concurrent.futures.Executor, or another object with "
                "submit()"
            )
        count = usable_cores() if threads is None else whole("threads", threads, error=DrstreamError)
        found = None if executor is None or threads is not None else places_of(executor)
        return cls(count, executor, progress or False, found or 0)

    @property
    def alone(self) -> Workers:
        """Threads of this process, for a pass over a sample in memory."""
        return Workers(self.threads, checkpoint=self.checkpoint)

    @property
    def quietly(self) -> Workers:
        """The same workers, for a pass that shows no progress."""
        return replace(self, progress=False)


def run(
    task: Callable[[Part], Result],
    log: Log,
    columns: Sequence[str],
    workers: Workers,
    text: str = "",
    parts: Iterable[Part] | None = None,
) -> Iterator[Result]:
    """Yield `task(part)` for every part of the log, in the order of the parts, whichever finishes first.

    BLAS uses one thread. Parts run in parallel already, and sums must not depend on the number of threads.

    parts  Those parts of the log that are wanted; by default, all.
    """
    parts = log.parts(columns) if parts is None else parts
    stop = threading.Event()
    executor = workers.executor
    with ExitStack() as stack:
        report = partial(stack.enter_context(reporter(workers.progress, log.source_rows)), text=text)
        stack.enter_context(one_blas_thread())
        if executor is not None:
            task = partial(_on_one_blas_thread, task)
        elif workers.threads > 1:
            executor = ThreadPoolExecutor(workers.threads, thread_name_prefix="drstream")
            stack.callback(executor.shutdown, wait=True, cancel_futures=True)
            stack.callback(stop.set)  # runs before the shutdown, so that tasks end early
            task = partial(_until, stop, task)
        if workers.executor is None and is_far(log.source):
            parts = stack.enter_context(closing(read_ahead(parts, AHEAD * workers.threads)))
        if executor is None:
            for part in parts:
                yield task(part)
                report(part.first_row + part.rows)
            return
        places = workers.places or workers.threads
        under_way = UnderWay(stack.enter_context(submitting(executor, task)), report)
        stack.callback(under_way.cancel)
        for part in parts:
            under_way.add(part)
            if len(under_way.parts) >= AHEAD * places:
                yield under_way.next()
        while under_way.parts:
            yield under_way.next()


@dataclass
class UnderWay:
    """Parts that an executor works on, in order."""

    submit: Callable[[Part], Future[Any]]
    report: Callable[[int], None]
    parts: deque[tuple[Part, Future[Any]]] = field(default_factory=deque)
    done: int = 0

    def add(self, part: Part) -> None:
        self.parts.append((part, self.submit(part)))

    def next(self) -> Any:
        """Return the result of the next part."""
        part, future = self.parts.popleft()
        result = result_of(future, str(part.place), self.done)
        self.done += 1
        self.report(part.first_row + part.rows)
        return result

    def cancel(self) -> None:
        for _, future in self.parts:
            future.cancel()


def stream(produce: Producer[Result], parts: Iterable[Part], threads: int, ahead: int) -> Items[Result]:
    """Yield the items of `produce(part)` for every part, in order. Threads produce them ahead of time.

    For each part under way, at most `ahead` items wait. Close the generator to stop early.
    """
    return _serially(produce, parts) if threads == 1 else _ahead(produce, parts, threads, ahead)


def _serially(produce: Producer[Result], parts: Iterable[Part]) -> Items[Result]:
    for part in parts:
        yield from produce(part)


def _ahead(produce: Producer[Result], parts: Iterable[Part], threads: int, ahead: int) -> Items[Result]:
    stop = threading.Event()

    def work(part: Part, waiting: Queue[Any]) -> None:
        try:
            for item in produce(part):
                _put(waiting, item, stop)
            _put(waiting, END, stop)
        except Stopped:
            pass
        except BaseException as error:  # raised again where the items are taken
            with suppress(Stopped):
                _put(waiting, Failed(error), stop)

    with ExitStack() as stack:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="drstream-read")
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        stack.callback(stop.set)
        queues: deque[Queue[Any]] = deque()
        parts = iter(parts)
        while True:
            for part in itertools.islice(parts, threads - len(queues)):
                queues.append(Queue(maxsize=ahead))
                pool.submit(work, part, queues[-1])
            if not queues:
                return
            while (item := _get(queues[0])) is not END:
                if isinstance(item, Failed):
                    raise item.error
                yield item
            queues.popleft()


END = object()


@dataclass
class Failed:
    error: BaseException


def _put(waiting: Queue[Any], item: Any, stop: threading.Event) -> None:
    while True:
        if stop.is_set():
            raise Stopped
        with suppress(Full):
            return waiting.put(item, timeout=AWAKE)


def _get(waiting: Queue[Any]) -> Any:
    while True:
        with suppress(Empty):
            return waiting.get(timeout=AWAKE)


def result_of(future: Future[Result], where: str = "", done: int = 0) -> Result:
    """Wait for the result in short naps. A Ctrl-C that arrives as the main thread falls asleep is then not lost.

    where, done  What was worked on, and the number of parts before it, for the error if the worker is lost.
    """
    while not wait([future], timeout=AWAKE).done:
        pass
    try:
        return future.result()
    except Exception as error:
        if is_lost(error):
            raise lost(error, where, done) from None
        raise


class Stopped(Exception):  # noqa: N818  # not an error: the pass is over, after an error elsewhere or Ctrl-C
    """Raised in a worker whose result is no longer needed."""


_worker = threading.local()


def _until(stop: threading.Event, task: Callable[[Part], Result], part: Part) -> Result:
    _worker.stop = stop
    return task(part)


def raise_if_stopped() -> None:
    """Raise `Stopped` if the pass is over. Tasks call it now and then, so that Ctrl-C does not wait for a row group."""
    stop = getattr(_worker, "stop", None)
    if stop is not None and stop.is_set():
        raise Stopped


def _on_one_blas_thread(task: Callable[[Part], Result], part: Part) -> Result:
    with one_blas_thread():  # the caller's limit does not hold in another process
        return task(part)


class one_blas_thread:  # noqa: N801  # reads as a state: with one_blas_thread()
    """Limits BLAS to one thread while any pass is under way. Passes may overlap in time."""

    lock = threading.Lock()
    passes = 0
    limit: Any = None

    def __enter__(self) -> None:
        kind = one_blas_thread
        with kind.lock:
            kind.passes += 1
            if kind.passes == 1:
                kind.limit = _blas_libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")

    def __exit__(self, *error: object) -> None:
        kind = one_blas_thread
        with kind.lock:
            kind.passes -= 1
            if kind.passes == 0:
                kind.limit.restore_original_limits()


@cache
def _blas_libraries(with_scipy: bool) -> ThreadpoolController:
    """The libraries that are loaded. SciPy's may be loaded after a first pass."""
    return ThreadpoolController()  # looks through all loaded libraries: 3 ms


def check_memory(needed: float, what: str, advice: str) -> None:
    """Raise an error if so many bytes are more than the machine has."""
    if needed > physical_memory():
        raise DrstreamError(
            f"{what} need about {needed / 1e9:.1f} GB in all, and the machine has {physical_memory() / 1e9:.1f} GB: "
            f"{advice}"
        )


def physical_memory() -> float:
    """Bytes of memory that the machine has; infinite if the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
