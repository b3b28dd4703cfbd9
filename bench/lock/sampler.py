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
from typing import Any

import numpy as np
from numba import njit

from drstream.execution import usable_cores

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
    held = samples = 0
    while stop[0] == 0:
        held += holder() != 0
        samples += 1
        for _ in range(PAUSE):
            pass
    counts[0], counts[1] = held, samples


def held(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds that the work takes, and the share of them in which the lock is held."""
    stop, counts = np.zeros(1, np.int64), np.zeros(2, np.int64)
    thread = threading.Thread(target=sample, args=(_holder, stop, counts))
    thread.start()
    started = time.perf_counter()
    try:
        work()
        seconds = time.perf_counter() - started
    finally:
        stop[0] = 1
        thread.join()
    return seconds, float(counts[0] / counts[1])  # NumPy's bool of a comparison would become text in JSON


def check() -> None:
    """A loop in Python holds the lock all the time, and a sleep never."""
    sample(_holder, np.ones(1, np.int64), np.zeros(2, np.int64))  # compiles it
    _, always = held(lambda: sum(i * i for i in range(2_000_000)))
    _, never = held(lambda: time.sleep(0.2))
    assert always > 0.98, f"a loop in Python seems to hold the lock for {always:.1%} of its time"
    assert never < 0.01, f"a sleep seems to hold the lock for {never:.1%} of its time"
