"""Ctrl-C and SIGTERM: the command line tidies up and ends soon, whatever it is doing, with exit code 130 or 143.

Python raises KeyboardInterrupt in whatever runs. In a callback of the compiler, a finaliser or an import that tries
alternatives, nobody hears of it, and the program would go on. So there it is raised again, until it is heard.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
AGAIN = 0.2  # seconds until an exception that nobody heard of is raised again
LOADING = ("<frozen importlib._bootstrap>", os.path.join("numba", "core", ""), os.path.join("llvmlite", ""))
_ours: list[Any] = []  # handlers


def _ours_to_set() -> list[signal.Signals]:
    """The signals that may be handled here: only the main thread has any, and handlers of others stay."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [s for s in WORDS if signal.getsignal(s) == USUAL[s] or signal.getsignal(s) in _ours]


def end_at_once() -> None:
    """Let signals end the process at once. There must be nothing to tidy up."""
    for number in _ours_to_set():
        signal.signal(number, _end)


def _end(number: int, frame: Any) -> None:
    os.write(2, f"{WORDS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


_ours.append(_end)


class Signals:
    """Signals that came: they are raised as KeyboardInterrupt, and again if nobody hears of it."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    @property
    def code(self) -> int:
        """The exit code."""
        return 128 + self.seen[-1] if self.seen else 128 + signal.SIGINT

    @property
    def word(self) -> str:
        return WORDS[signal.Signals(self.code - 128)]

    def note(self, number: int, frame: Any) -> None:
        self.seen.append(number)
        if _is_loading(frame):
            self.watch()
        raise KeyboardInterrupt

    def watch(self) -> None:
        """Look in a while whether somebody has heard."""
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, AGAIN)

    def again(self, number: int, frame: Any) -> None:
        self.watch()
        if not _is_heard(sys.exc_info()[1]):
            raise KeyboardInterrupt

    def unheard(self, about: Any) -> None:
        """Python has an exception that it can give to nobody."""
        if isinstance(about.exc_value, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            self.watch()
        else:
            sys.__unraisablehook__(about)


@contextmanager
def raised() -> Iterator[Signals]:
    """Raise KeyboardInterrupt if a signal comes, again if it was swallowed, and at the end in any case."""
    signals = Signals()
    wanted = _ours_to_set()
    if not wanted:
        yield signals
        return
    _ours.append(signals.note)
    before = sys.unraisablehook
    for number in wanted:
        signal.signal(number, signals.note)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signals.again)
    sys.unraisablehook = signals.unheard
    try:
        yield signals
        if signals.seen:
            raise KeyboardInterrupt
    finally:
        end_at_once()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = before


def _is_loading(frame: Any) -> bool:
    """Whether modules or kernels are being loaded."""
    while frame is not None:
        if any(place in frame.f_code.co_filename for place in LOADING):
            return True
        frame = frame.f_back
    return False


def _is_heard(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt is on its way up, and this is a part of tidying up."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
