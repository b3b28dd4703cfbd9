"""Keeps a Ctrl-C that arrives while modules or kernels load.

Python raises KeyboardInterrupt in whatever runs. In a callback of the compiler, a finaliser or an import that tries
alternatives, nobody hears of it, and the program goes on.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if there was a Ctrl-C that something swallowed."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield  # only the main thread has signals, and handlers of a user's stay
        return
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        usual(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if seen:
        raise KeyboardInterrupt
