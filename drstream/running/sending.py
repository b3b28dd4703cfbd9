"""What travels to the workers of an executor: a task once to each worker process, and then parts of the log alone.

A task holds policies, models and all that a pass needs to know. The first parts travel with it, as bytes, and each
worker keeps it. A worker that has not seen it says so, and the part is sent again, with the task.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any

from drstream.errors import DrstreamError, WorkerError, parameter
from drstream.running.processes import Processes

HELD = 2  # tasks that a worker keeps: that of the pass, and one of another pass at the same time
LACKING = "drstream: this worker has not seen the task"


class Sender:
    """Submits one task with many parts to an executor."""

    def __init__(self, executor: Executor, task: Callable[[Any], Any], places: int) -> None:
        self.executor, self.task = executor, task
        self.data = _pickled(executor, task)
        self.digest = b"" if self.data is None else hashlib.sha256(self.data).digest()
        self.to_carry = places  # so many parts are sent together with the task

    def submit(self, part: Any) -> Future[Any]:
        self.to_carry -= 1
        return self._submit(part, carry=self.to_carry >= 0)

    def _submit(self, part: Any, carry: bool) -> Future[Any]:
        try:
            if self.data is None:
                return self.executor.submit(self.task, part)
            more = {"pure": False} if is_dask(self.executor) else {}  # else Dask may give a result that it has kept
            return self.executor.submit(work, self.digest, self.data if carry else None, part, **more)
        except BrokenExecutor as error:
            raise lost(error) from None

    def again(self, part: Any, result: Any) -> Future[Any] | None:
        """Send a part once more, if the worker had not seen the task."""
        lacking = isinstance(result, str) and result == LACKING and self.data is not None
        return self._submit(part, carry=True) if lacking else None


_held: dict[bytes, Any] = {}
_lock = threading.Lock()


def work(digest: bytes, data: bytes | None, part: Any) -> Any:
    """Run a task on a part, in a worker."""
    with _lock:
        task = _held.pop(digest, None)
        if task is None and data is not None:
            task = pickle.loads(data)
        if task is None:
            return LACKING
        _held[digest] = task  # now the latest
        while len(_held) > HELD:
            del _held[next(iter(_held))]
    return task(part)


def _pickled(executor: Executor, task: Any) -> bytes | None:
    """Return a task as bytes, if the executor's workers are known to be other processes."""
    if isinstance(executor, ProcessPoolExecutor | Processes):
        try:
            return pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise WorkerError(
                f"{parameter('executor')}: policies and models travel to worker processes, and one of them cannot be "
                f"pickled ({error}). Define functions and classes at the top of a module"
            ) from None
    if is_dask(executor):
        from distributed.protocol.pickle import dumps  # also functions of the user's session

        return bytes(dumps(task, protocol=pickle.HIGHEST_PROTOCOL))
    return None


def is_dask(executor: Any) -> bool:
    return type(executor).__module__.split(".")[0] == "distributed"


def places_of(executor: Any) -> int | None:
    """Return how many parts the workers of an executor can work on at a time; None if it does not tell."""
    if is_dask(executor):
        return sum(executor._client.nthreads().values()) or None
    size = getattr(executor, "_max_workers", None)  # of Python's executors, and of those like them
    return size if isinstance(size, int) and size > 0 else None


def is_lost(error: BaseException) -> bool:
    """Whether an error says that workers are no more."""
    scheduler = sys.modules.get("distributed.scheduler")
    return isinstance(error, BrokenExecutor) or (scheduler is not None and isinstance(error, scheduler.KilledWorker))


def lost(error: BaseException, where: str = "", done: int = 0) -> DrstreamError:
    """Return an error in plain words for workers that are no more.

    where  The part that nobody has worked through.
    done   Number of parts that are complete.
    """
    if isinstance(error, DrstreamError):
        return error
    name = type(error).__name__
    kept = (
        f" {done} parts before it were complete: with {parameter('checkpoint')}, evaluate keeps them." if done else ""
    )
    advice = (
        "Dask has tried it on several workers: look into their logs"
        if name == "KilledWorker"
        else "executor=drs.Processes() starts new processes and does lost parts again"
    )
    return WorkerError(
        f"a worker of the executor ended ({name}){f' before {where} was complete' if where else ''}. Somebody or "
        f"the system killed it, e.g. for want of memory, or it crashed.{kept} {advice}"
    )
