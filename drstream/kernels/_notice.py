"""Who wants to know when a kernel is compiled: the command line does, to say what the user is waiting for."""

from collections.abc import Callable

listener: Callable[[int, str], None] | None = None  # is told how many were compiled, this one included, and its name
count = 0


def compiling(name: str) -> None:
    """A kernel is about to be compiled, as the cache does not have it."""
    global count
    count += 1
    if listener is not None:
        listener(count, name)
