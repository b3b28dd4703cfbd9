"""Worker processes that are started again if one of them is killed. What it worked on is done again."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drstream.errors import DrstreamError, WorkerError
from drstream.parameters import whole

RETRIES = 3


class Processes(Executor):
    """An executor of worker processes, for `executor=`. Close it with `with` or `shutdown()`.

    workers  Number of processes. All cores by default.
    retries  How often a task is done again whose processes ended before it was complete. Parts that are done again
             give the same bits.

    In a script, use it under `if __name__ == "__main__":`, because each process imports the script.

    >>> import drstream as drs
    >>> drs.Processes(2)
    Processes(2)
    """

    def __init__(self, workers: int | None = None, retries: int = RETRIES) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise WorkerError(
                "a worker process imports the script that started it, and would start processes of its own: put what "
                'the script does under if __name__ == "__main__":'
            )
        count = _cores() if workers is None else whole("workers", workers, error=DrstreamError)
        self._max_workers = count
        self._retries = whole("retries", retries, 0, error=DrstreamError)
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False
        self._ever = False  # whether any task was complete
        self._lock = threading.RLock()
        self.restarts = 0  # how often processes were started again

    def __repr__(self) -> str:
        return f"Processes({self._max_workers})"

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job = _Job(partial(task, *args, **kwargs))
        self._start(job)
        job.future.add_done_callback(job.forward_cancel)
        return job.future

    def _start(self, job: _Job) -> None:
        while True:
            with self._lock:
                if self._closed:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                pool = self._pool = self._pool or self._new()
            try:
                job.inner = pool.submit(job.task)
                break
            except BrokenProcessPool:
                self._renew(pool)
        job.inner.add_done_callback(partial(self._done, job, pool))

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
        return ProcessPoolExecutor(self._max_workers, mp_context=context, initializer=_begin)

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is broken:
                self._pool = None
                self.restarts += 1
        broken.shutdown(wait=False)

    def _done(self, job: _Job, pool: ProcessPoolExecutor, inner: Future[Any]) -> None:
        """A task is complete, or the processes ended. Runs on a thread of the pool."""
        if inner.cancelled() or job.future.cancelled():
            job.future.cancel()
            return
        error = inner.exception()
        if isinstance(error, BrokenProcessPool):
            self._renew(pool)
            job.tries += 1
            if job.tries <= self._retries and not self._closed:
                try:
                    self._start(job)
                    return
                except Exception as problem:  # closed, or the system starts no more processes
                    error = problem
            else:
                error = self._given_up(job)
        if not job.future.set_running_or_notify_cancel():
            return
        if error is not None:
            job.future.set_exception(error)
        else:
            self._ever = True
            job.future.set_result(inner.result())

    def _given_up(self, job: _Job) -> WorkerError:
        if not self._ever:
            return WorkerError(
                f"worker processes ended {job.tries} times before any work was complete. Their output says why. In a "
                'script, put what it does under if __name__ == "__main__":, because each process imports it'
            )
        return WorkerError(
            f"worker processes ended {job.tries} times before a task was complete. Somebody or the system killed them, "
            "e.g. for want of memory, or they crashed. Give fewer workers, or a log with smaller row groups"
        )

    def kill(self) -> None:
        """End all worker processes now. Tasks that they work on are lost."""
        with self._lock:
            self._closed = True
            processes = [] if self._pool is None else list((self._pool._processes or {}).values())
        for process in processes:
            process.kill()
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)


@dataclass
class _Job:
    task: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)  # the caller's
    inner: Future[Any] = field(default_factory=Future)  # that of the processes that have it now
    tries: int = 0

    def forward_cancel(self, future: Future[Any]) -> None:
        if future.cancelled():
            self.inner.cancel()


def _begin() -> None:
    """Begin a worker process. It leaves Ctrl-C to the process that started it, and ends when that one does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
