"""What a thread keeps from one part of a log to the next: memory for rows, and an open file.

New memory for each part would take longer than reading its rows, and to open a file takes the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PAGE = 4096  # bytes: sizes are multiples
MOST = 1 << 26  # bytes that wait for their next use


class Pool:
    """Memory that comes back when nothing refers to it any more, from whichever thread."""

    def __init__(self) -> None:
        self.free: dict[int, list[NDArray[np.uint8]]] = {}  # by size
        self.waiting = 0  # bytes

    def lend(self, size: int) -> tuple[NDArray[np.uint8], pa.Buffer]:
        """Return memory of so many bytes, to write to and to pass on. What refers to the buffer owns the memory."""
        whole = -(-size // PAGE) * PAGE
        try:
            memory = self.free[whole].pop()
            self.waiting -= whole
        except (KeyError, IndexError):
            memory = np.empty(whole, np.uint8)
        return memory[:size], pa.foreign_buffer(memory.ctypes.data, size, Lent(memory, self))

    def take_back(self, memory: NDArray[np.uint8]) -> None:
        if self.waiting + len(memory) > MOST:
            self.free.clear()  # of sizes that are not asked for any more
            self.waiting = 0
        self.free.setdefault(len(memory), []).append(memory)
        self.waiting += len(memory)


class Lent:
    """Owns memory, and gives it back."""

    def __init__(self, memory: NDArray[np.uint8], pool: Pool) -> None:
        self.memory, self.pool = memory, pool

    def __del__(self) -> None:
        self.pool.take_back(self.memory)


class Kept(threading.local):
    """What this thread keeps, and whether it may."""

    allowed = False
    opened: Any = None  # the file of the last part; it has `close`
    _pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        """The memory of this thread; new memory if it may not keep any."""
        if self._pool is None:
            pool = Pool()
            if not self.allowed:
                return pool
            self._pool = pool
        return self._pool

    def forget(self) -> None:
        opened, self.opened, self._pool = self.opened, None, None
        if opened is not None:
            opened.close()


kept = Kept()


def keep() -> None:
    """Let this thread keep memory and a file between two parts, until it ends."""
    kept.allowed = True


@contextmanager
def keeping() -> Iterator[None]:
    """Let this thread keep memory and a file between two parts, within this context."""
    before, kept.allowed = kept.allowed, True
    try:
        yield
    finally:
        kept.allowed = before
        if not before:
            kept.forget()
