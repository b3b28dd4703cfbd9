"""Checks of the file to write: its suffix, its folder, and that it is no part of the log that is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drstream.errors import DrstreamError
from drstream.sources.names import pattern_of

PARQUET, ARROW = (".parquet",), (".arrow", ".ipc", ".feather")
_ITSELF = "cannot write {}: it is a file of the log itself. Choose another name"


def check_target(out: Path) -> None:
    """Raise an error if no log can be written to this path."""
    if out.suffix not in (*PARQUET, *ARROW):
        raise DrstreamError(
            f"cannot write {out}: its name must end in {', '.join(PARQUET)} for Parquet, or in {', '.join(ARROW[:-1])} "
            f"or {ARROW[-1]} for Arrow IPC"
        )
    if out.is_dir():
        raise DrstreamError(f"cannot write {out}: it is a folder. Name a file")
    if not out.parent.is_dir():
        raise DrstreamError(f"cannot write {out}: there is no folder {str(out.parent)!r}. Create it first")
    if not os.access(out.parent, os.W_OK):
        raise DrstreamError(f"cannot write {out}: you may not write to the folder {str(out.parent)!r}. Choose another")


def check_apart(out: Path, names: Sequence[str], keys: Sequence[Any]) -> None:
    """Raise an error if the file is one of those that are read, or would be one the next time.

    names  The paths, globs and directories that the log was opened with.
    keys   The files that it holds now.
    """
    real = Path(os.path.realpath(out))
    for key in keys:
        if isinstance(key, str) and (os.path.realpath(key) == str(real) or _same_file(key, real)):
            raise DrstreamError(_ITSELF.format(out))
    for name in names:
        given, around = Path(os.path.realpath(name)), (real, *real.parents)
        pattern = pattern_of(given.as_posix())
        if given in around or any(pattern.fullmatch(path.as_posix()) for path in around):
            if real.exists():
                raise DrstreamError(_ITSELF.format(out))
            raise DrstreamError(
                f"cannot write {out}: it would belong to the log {name!r}, which would then hold every event twice. "
                "Choose another folder or name"
            )


def _same_file(one: str, other: Path) -> bool:
    """Whether two paths are one file by two names."""
    return os.path.exists(one) and other.exists() and os.path.samefile(one, other)
