"""Files that appear when they are complete: written beside their name, put on the disk, and then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ABANDONED = 3600.0  # seconds without a write, after which an unfinished file was left by a killed process
UNFINISHED = ".part"  # suffix of a file that is being written; a folder of data is read without them


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path to write to. At the end, the file is renamed to `path`. After an error, it is deleted.

    Its name is its own, so two processes that write to one path do not mix: the last one wins, and its file is whole.
    The bytes are on the disk before the name is, so that a machine that stops leaves the old file or the new one.
    """
    folder, name = os.path.split(os.fspath(path))
    folder, name = folder or ".", f".{name[:100]}."
    _sweep(folder, name)
    unfinished = os.path.join(folder, f"{name}{secrets.token_hex(8)}{UNFINISHED}")
    try:  # the name is known before the file is there, so that a Ctrl-C leaves nothing
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600))
        yield Path(unfinished)
        os.chmod(unfinished, 0o666 & ~_umask())  # until now, only the owner could read it
        _sync(unfinished)
        os.replace(unfinished, path)
        _sync(folder)
    finally:
        with suppress(OSError):
            os.unlink(unfinished)


def _sweep(folder: str, name: str) -> None:
    """Delete what killed processes have left of a file."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            unfinished = entry.name.startswith(name) and entry.name.endswith(UNFINISHED)
            if unfinished and time.time() - entry.stat().st_mtime > ABANDONED:
                os.unlink(entry.path)


def _sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on the disk, where the file system can tell."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)  # here, some file systems say first that the disk is full
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):  # they do not sync folders
            raise
    finally:
        os.close(handle)


def _umask() -> int:
    """Return the mask of permissions for new files. Setting it, the only other way to read it, disturbs threads."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
