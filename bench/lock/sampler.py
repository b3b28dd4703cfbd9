"""Measures how long a piece of work holds the interpreter's lock, without taking the lock itself.

In CPython 3.11, one global variable names the thread that holds the lock, and it is null while no thread does. A thread
of compiled code reads it about a hundred million times a second and counts how often it is set. It needs a core of its
own and slows the work only by that. From 3.12 on, each thread has its own variable, so this does not work there.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from drstream.running.execution import usable_cores

PAUSE = 50  # steps of an empty loop between two samples

_holder = ctypes.CDLL(None)._PyThreadState_UncheckedGet  # of CDLL, not PyDLL: a call does not take the lock
_holder.restype, _holder.argtypes = ctypes.c_void_p, []


def missing() -> str:
    """Why it cannot measure here, or an empty string."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return "only CPython 3.11 shows to all threads whether the interpreter's lock is held"
    return "" if usable_cores() > 1 else "the sampling thread needs a core of its own"


@njit(nogil=True)
def sample(holder: Any, stop: np.ndarray, counts: np.ndarray) -> None:
    """Counts the samples in which the lock is held, and all samples."""
    while stop[0] == 0:
        counts[0] += holder() != 0
        counts[1] += 1
        for _ in range(PAUSE):
            pass


@dataclass(frozen=True)
class Held:
    seconds: float  # that the work takes
    share: float  # of the samples, in which the lock is held
    rate: float  # samples per second; low if the sampling thread had no core of its own


_counts = np.zeros(2, np.int64)  # samples in which the lock is held, and all


def clock() -> int:
    """A clock that goes on only while the lock is held, in samples."""
    return int(_counts[0])


def held(work: Callable[[], Any]) -> Held:
    stop, counts = np.zeros(1, np.int64), _counts
    counts[:] = 0
    thread = threading.Thread(target=sample, args=(_holder, stop, counts))
    thread.start()
    try:
        while counts[1] == 0:
            time.sleep(0.001)  # until it samples
        before, started = counts.copy(), time.perf_counter()
        work()
        seconds, after = time.perf_counter() - started, counts.copy()
    finally:
        stop[0] = 1
        thread.join()
    in_lock, samples = (after - before).tolist()  # of Python: NumPy's bool of a comparison would become text in JSON
    return Held(seconds, in_lock / max(1, samples), samples / seconds)


def check() -> float:
    """A loop in Python holds the lock all the time, and a sleep never. Returns the samples per second of the loop."""
    sample(_holder, np.ones(1, np.int64), np.zeros(2, np.int64))  # compiles it
    always, never = held(lambda: sum(i * i for i in range(2_000_000))), held(lambda: time.sleep(0.2))
    assert always.share > 0.98, f"a loop in Python seems to hold the lock for {always.share:.1%} of its time"
    assert never.share < 0.01, f"a sleep seems to hold the lock for {never.share:.1%} of its time"
    return always.rate
