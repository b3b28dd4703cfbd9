"""Tells a listener when a kernel is compiled. The command line listens, to say what the user is waiting for."""

from collections.abc import Callable

listener: Callable[[int, bool], None] | None = None  # gets the number of kernels, and whether one is being compiled
count = 0


def compiling() -> None:
    """Tell the listener that a kernel is about to be compiled, because the cache does not have it."""
    global count
    count += 1
    if listener is not None:
        listener(count, True)


def compiled() -> None:
    """Tell the listener that the kernel is compiled, or was in the cache."""
    if listener is not None:
        listener(count, False)
