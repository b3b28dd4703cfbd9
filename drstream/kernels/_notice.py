"""How long this process has compiled kernels, and a word about it on standard error. Importing this needs no Numba.

Progress does not count this time: it says how fast events are read, not how fast a machine was prepared for them.
"""

import sys
import threading
import time
from contextlib import suppress
from multiprocessing import parent_process

silent = False  # commands with --quiet and workers of Spark say nothing, and worker processes do not, either
_lock = threading.Lock()
_spent = 0.0  # seconds of compiling that are over
_since: float | None = None  # when the compiling under way began
_kernels, _said_kernels, _said = 0, 0, 0.0  # compiled, and those of them whose number and seconds were said


def seconds() -> float:
    """Seconds for which this process has compiled, until now."""
    with _lock:
        return _spent + (0.0 if _since is None else time.monotonic() - _since)


def clock() -> float:
    """Seconds that do not pass while this process compiles."""
    with _lock:
        return (time.monotonic() if _since is None else _since) - _spent


def begin(kernel: bool = True) -> None:
    """A function is about to be compiled, because the cache does not have it. Policies of users are no kernels."""
    global _since, _kernels
    with _lock:
        _since = time.monotonic()
        _kernels += kernel
        first = kernel and _kernels == 1
    if first:
        _say("compiling kernels for this machine; this is done once, and later runs start without it")


def end() -> None:
    """It is compiled, or cannot be, or it was in the cache."""
    global _spent, _since
    with _lock:
        if _since is not None:
            _spent, _since = _spent + time.monotonic() - _since, None


def sum_up() -> None:
    """Say how long compiling took, if kernels were compiled of which this was not said."""
    global _said_kernels, _said
    now = seconds()
    with _lock:
        kernels, took = _kernels - _said_kernels, now - _said
        _said_kernels, _said = _kernels, now
    if kernels:
        _say(f"compiled {kernels} kernel{'s' if kernels > 1 else ''} in {took:.1f} s")


def _say(text: str) -> None:
    if not silent and parent_process() is None and sys.stderr is not None:
        with suppress(OSError, ValueError):  # nobody reads it
            print(text, file=sys.stderr, flush=True)  # noqa: T201
