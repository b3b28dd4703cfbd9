"""Executors: worker processes, how a task and the parts of a log travel to workers, and workers that are lost."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from drstream.errors import DrstreamError, WorkerError, parameter
from drstream.parameters import whole

GUARD = 'In a script, put what it does under if __name__ == "__main__":, because each process imports the script'


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes(ProcessPoolExecutor):
    """Worker processes, for `executor=`. Close them with `with` or `shutdown()`.

    workers  Number of processes. All cores by default.

    If one is killed, the run ends with an error. With `checkpoint=`, the same run goes on in new processes.

    In a script, use it under `if __name__ == "__main__":`, because each process imports the script.

    >>> import drstream as drs
    >>> drs.Processes(2)
    Processes(2)
    """

    def __init__(self, workers: int | None = None) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise WorkerError(f"a worker process would start processes of its own. {GUARD}")
        count = usable_cores() if workers is None else whole("workers", workers, error=DrstreamError)
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
        super().__init__(count, mp_context=context, initializer=_begin)
        self.workers = count

    def __repr__(self) -> str:
        return f"Processes({self.workers})"

    def kill(self) -> None:
        """End all worker processes now. Tasks that they work on are lost."""
        for process in list((self._processes or {}).values()):
            process.kill()
        self.shutdown(cancel_futures=True)


def _begin() -> None:
    """Begin a worker process. It leaves Ctrl-C to the process that started it, and ends when that one does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


# What travels


@contextmanager
def submitting(executor: Executor, task: Callable[[Any], Any]) -> Iterator[Callable[[Any], Future[Any]]]:
    """Yield a function that lets the executor run the task on a part.

    A task holds policies, models and all that a pass needs to know. It travels once to each worker process, in a file,
    and once to a cluster of Dask. Parts are small.
    """
    if is_dask(executor):
        from distributed.protocol.pickle import dumps  # also functions of the user's session

        data = bytes(dumps(task, protocol=pickle.HIGHEST_PROTOCOL))
        there = executor._client.submit(pickle.loads, data, pure=False)  # type: ignore[attr-defined]
        yield partial(submit, executor, _call, there, pure=False)  # else Dask may give a result that it has kept
    elif isinstance(executor, ProcessPoolExecutor):
        data = _pickled(task)
        with tempfile.TemporaryDirectory(prefix="drstream-", ignore_cleanup_errors=True) as folder:
            path = os.path.join(folder, "task")
            with open(path, "wb") as file:
                file.write(data)
            yield partial(submit, executor, _call_from, path)
    else:
        yield partial(submit, executor, task)


def submit(executor: Executor, task: Callable[..., Any], *args: Any, **more: Any) -> Future[Any]:
    """Submit a task. Raise an error in plain words if the workers are no more."""
    try:
        return executor.submit(task, *args, **more)
    except BrokenExecutor as error:
        raise lost(error) from None


def _pickled(task: Any) -> bytes:
    try:
        return pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise WorkerError(
            f"{parameter('executor')}: policies and models travel to worker processes, and one of them cannot be "
            f"pickled ({error}). Define functions and classes at the top of a module"
        ) from None


@lru_cache(2)  # the task of the pass, and one of another pass at the same time
def _read(path: str) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def _call_from(path: str, part: Any) -> Any:
    return _read(path)(part)


def _call(task: Callable[[Any], Any], part: Any) -> Any:
    return task(part)


def is_dask(executor: Any) -> bool:
    return type(executor).__module__.split(".")[0] == "distributed"


def places_of(executor: Any) -> int | None:
    """Return how many parts the workers of an executor can work on at a time; None if it does not tell."""
    if is_dask(executor):
        return sum(executor._client.nthreads().values()) or None
    size = getattr(executor, "_max_workers", None)  # of Python's executors, and of those like them
    return size if isinstance(size, int) and size > 0 else None


# Workers that are lost


def is_lost(error: BaseException) -> bool:
    """Whether an error says that workers are no more."""
    scheduler = sys.modules.get("distributed.scheduler")
    return isinstance(error, BrokenExecutor) or (scheduler is not None and isinstance(error, scheduler.KilledWorker))


def lost(error: BaseException, where: str = "", done: int = 0) -> DrstreamError:
    """Return an error in plain words for workers that are no more.

    where  The part that nobody has worked through.
    done   Number of parts that are complete.
    """
    name = type(error).__name__
    advice = f"With {parameter('checkpoint')}, the same run, started again, goes on from what is complete"
    if name == "KilledWorker":
        advice = "Dask has tried it on several workers: look into their logs"
    elif not done:
        advice += f". {GUARD}"
    before = f" before {where} was complete" if where else ""
    parts = f" {done} parts before it were complete." if done else ""
    return WorkerError(
        f"a worker of the executor ended ({name}){before}. Somebody or the system killed it, e.g. for want of memory, "
        f"or it crashed.{parts} {advice}"
    )
