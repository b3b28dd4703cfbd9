"""What a thread keeps from one part of a log to the next: memory for rows, an open file, and what its work needs.

New memory for each part would take longer than reading its rows, and to open a file takes the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

LINE = 64  # bytes of a line of the processor's cache
PAGE = 4096  # bytes: sizes are multiples
MOST = 1 << 26  # bytes that wait for their next use


def aligned(size: int) -> NDArray[np.uint8]:
    """Return so many bytes, from the start of a cache line on: a vector in two lines takes twice the time.

    NumPy's own arrays begin 16 bytes later, if they are large. A line before these bytes is free, too, for a while
    (`kernels.pages.BEFORE`).
    """
    array = np.empty(size + 2 * LINE, np.uint8)
    start = LINE + -array.ctypes.data % LINE
    return array[start : start + size]


@dataclass(frozen=True)
class Memory:
    array: NDArray[np.uint8]
    address: int

    @classmethod
    def new(cls, size: int) -> Memory:
        array = aligned(size)
        return cls(array, array.ctypes.data)


class Pool:
    """Memory that comes back when nothing refers to it any more, from whichever thread."""

    def __init__(self) -> None:
        self.free: dict[int, list[Memory]] = {}  # by size
        self.waiting = 0  # bytes

    def lend(self, size: int) -> Lent:
        """Return memory of so many bytes, to write to. What refers to it, or to a buffer of it, owns it."""
        whole = -(-size // PAGE) * PAGE
        try:
            memory = self.free[whole].pop()
            self.waiting -= whole
        except (KeyError, IndexError):
            memory = Memory.new(whole)
        return Lent(memory, size, self)

    def take_back(self, memory: Memory) -> None:
        size = len(memory.array)
        if self.waiting + size > MOST:
            self.free.clear()  # of sizes that are not asked for any more
            self.waiting = 0
        self.free.setdefault(size, []).append(memory)
        self.waiting += size


class Lent:
    """Owns memory, and gives it back."""

    def __init__(self, memory: Memory, size: int, pool: Pool) -> None:
        self.memory, self.size, self.pool = memory, size, pool
        self.address = memory.address

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, to write to while this object lives."""
        return self.memory.array[: self.size]

    def buffer(self) -> pa.Buffer:
        """The memory, to pass on."""
        return pa.foreign_buffer(self.address, self.size, self)

    def __del__(self) -> None:
        self.pool.take_back(self.memory)


class Kept(threading.local):
    """What this thread keeps, and whether it may."""

    allowed = False
    opened: Any = None  # the file of the last part; it has `close`
    work: Any = None  # what a task has made for its parts
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
        opened, self.opened, self.work, self._pool = self.opened, None, None, None
        if opened is not None:
            opened.close()


kept = Kept()


def keep() -> None:
    """Let this thread keep memory, a file and more between two parts, until it ends."""
    kept.allowed = True


@contextmanager
def keeping() -> Iterator[None]:
    """Let this thread keep memory, a file and more between two parts, within this context."""
    before, kept.allowed = kept.allowed, True
    try:
        yield
    finally:
        kept.allowed = before
        if not before:
            kept.forget()
