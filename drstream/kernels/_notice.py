"""Who wants to know when a kernel is compiled: the command line does, to say what the user is waiting for."""

from collections.abc import Callable

listener: Callable[[int, bool], None] | None = None  # is told how many kernels were compiled, and if one is at work
count = 0


def compiling() -> None:
    """A kernel is about to be compiled, as the cache does not have it."""
    global count
    count += 1
    if listener is not None:
        listener(count, True)


def compiled() -> None:
    """It is done, or was in the cache."""
    if listener is not None:
        listener(count, False)
