"""What a name on disk means: files, globs and directories, and messages about those that cannot be read."""

from __future__ import annotations

import glob
import os
import re

import pyarrow as pa

from drstream.errors import LogError, MissingFileError, suggest

PARQUET, ARROW = b"PAR1", b"ARROW1"  # what such files begin with
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".feather", ".ipc")


def expand(name: str) -> list[str]:
    """The files that a name means; a directory means the data files in it."""
    if "://" in name:
        return [name]
    if os.path.isdir(name):
        files = _data_files(name)
        if not files:
            raise MissingFileError(f"there is no Parquet or Arrow file in {name!r}")
        return files
    if os.path.exists(name):
        return [name]
    if set("*?[") & set(name):
        found = sorted(glob.glob(name, recursive=True))
        if not found:
            raise MissingFileError(f"no file matches {name!r}")
        return [file for path in found for file in (_data_files(path) if os.path.isdir(path) else [path])]
    folder = os.path.dirname(name) or "."
    beside = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    hint = suggest(os.path.basename(name), beside) if beside else f"there is no folder {folder!r} either"
    raise MissingFileError(f"no such file or directory: {name!r}; {hint}")


def _data_files(folder: str) -> list[str]:
    """Files that are Parquet or Arrow by their names or first bytes, in order.

    Not hidden ones, nor those in folders like _temporary, which hold unfinished work.
    """
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*"), recursive=True)):
        hidden = re.search(r"(^|[/\\])[_.]", os.path.relpath(path, folder))
        if not hidden and os.path.isfile(path) and (path.lower().endswith(SUFFIXES) or _begins(path, PARQUET, ARROW)):
            found.append(path)
    return found


def is_arrow(path: str) -> bool:
    return "://" not in path and os.path.isfile(path) and _begins(path, ARROW)


def _begins(path: str, *magic: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(ARROW)).startswith(magic)


def map_arrow(paths: list[str]) -> pa.Table:
    """Arrow IPC files as one table: mapped into memory where they are not compressed."""
    tables = []
    for path in paths:
        try:
            tables.append(pa.ipc.open_file(pa.memory_map(path)).read_all())
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error, "Arrow IPC") from None
        if tables[-1].schema != tables[0].schema:
            raise LogError(f"files differ: {path} has another schema than {paths[0]}")
    return pa.concat_tables(tables)


def unreadable(path: str, error: Exception, kind: str = "Parquet") -> LogError:
    named = re.search(r"input source '([^']*)'", str(error))  # the one among many that Arrow speaks of
    return LogError(f"cannot read {named[1] if named else path} as {kind}: {arrow_says(error)}. Is it complete?")


def arrow_says(error: Exception) -> str:
    """Arrow's message in one line, without what it says of the way to the error."""
    return re.sub(r"^.*input source '[^']*': ", "", " ".join(str(error).split())).rstrip(".")
