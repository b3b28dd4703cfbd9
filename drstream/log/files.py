"""From a name to files: paths, globs and directories, and errors about files that cannot be read."""

from __future__ import annotations

import glob
import os
import re

import pyarrow as pa

from drstream.errors import LogError, MissingFileError, phrase, suggest

PARQUET, ARROW = b"PAR1", b"ARROW1"  # first bytes of such files
TEXT = re.compile(r"\.(csv|tsv|jsonl|ndjson|json)(\.(gz|bz2|zst))?$", re.IGNORECASE)  # names of files of text
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".feather", ".ipc")


SECRET = re.compile(r"(?i)([?&][^=&#\s]*(?:key|secret|token|sig|signature|password|credential)[^=&#\s]*=)[^&#\s]+")


def without_secrets(text: str) -> str:
    """Return text in which URIs hide passwords, and keys in their queries.

    >>> without_secrets("s3://KEY:SECRET@bucket/log.parquet?secret_key=x&region=eu")
    's3://***@bucket/log.parquet?secret_key=***&region=eu'
    """
    return SECRET.sub(r"\1***", re.sub(r"(\w://)(?:[^/@\s:]*:[^@\s]*|[^/@\s]+)@", r"\1***@", text))


def expand(name: str, suffixes: tuple[str, ...] = ()) -> list[str]:
    """Return the files that a name stands for. A directory stands for the data files in it.

    suffixes  Files with these suffixes are data, too.
    """
    if "://" in name:
        return [name]
    if os.path.isdir(name):
        files = _data_files(name, suffixes)
        if not files:
            more = f", and no {', '.join(suffixes)} file" if suffixes else ""
            text = sorted(file for file in os.listdir(name) if TEXT.search(file))
            hint = f". There is {text[0]}: {_to_convert(os.path.join(name, text[0]))}" if text and not suffixes else ""
            raise MissingFileError(f"there is no Parquet or Arrow file in {name!r}{more}{hint}")
        return files
    if os.path.exists(name):
        return [name]
    if set("*?[") & set(name):
        found = sorted(glob.glob(name, recursive=True))
        if not found:
            raise MissingFileError(f"no file matches {name!r}")
        return [file for path in found for file in (_data_files(path, suffixes) if os.path.isdir(path) else [path])]
    folder = os.path.dirname(name) or "."
    beside = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    hint = suggest(os.path.basename(name), beside) if beside else f"there is no folder {folder!r} either"
    raise MissingFileError(f"no such file or directory: {name!r}; {hint}")


def _data_files(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that are Parquet or Arrow by their name or first bytes, or have one of the suffixes, in order.

    Hidden files and files in folders like _temporary, which hold unfinished work, are left out.
    """
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*"), recursive=True)):
        hidden = re.search(r"(^|[/\\])[_.]", os.path.relpath(path, folder))
        if not hidden and os.path.isfile(path):
            named = path.lower().endswith((*SUFFIXES, *suffixes))
            if named or _begins(path, PARQUET, ARROW):
                found.append(path)
    return found


def is_arrow(path: str) -> bool:
    return "://" not in path and os.path.isfile(path) and _begins(path, ARROW)


def _begins(path: str, *magic: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(ARROW)).startswith(magic)


def map_arrow(paths: list[str]) -> pa.Table:
    """Return Arrow IPC files as one table. Files that are not compressed are memory-mapped."""
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
    named = re.search(r"input source '([^']*)'", str(error))  # of many files, the one that Arrow names
    path = named[1] if named else path
    if is_text(path):
        return LogError(f"cannot read {path} as {kind}: it holds text. {_to_convert(path)}")
    if "://" not in path and os.path.isfile(path) and not os.path.getsize(path):
        return LogError(f"cannot read {path} as {kind}: it is empty, it has no bytes at all")
    return LogError(without_secrets(f"cannot read {path} as {kind}: {arrow_says(error)}. Is it complete?"))


def _to_convert(path: str) -> str:
    """Return advice for a file of text."""
    name = TEXT.sub("", os.path.basename(path))
    readers = phrase("open it with drs.read_csv or drs.read_json, or ", "")
    return f"If it is CSV or JSON lines, {readers}write it as Parquet: drstream convert {path} {name}.parquet"


def is_text(path: str) -> bool:
    """Whether a file begins with text, or is CSV or JSON lines by its name, e.g. a compressed one."""
    if TEXT.search(path):
        return "://" in path or not os.path.isfile(path) or (os.path.getsize(path) > 0 and not _begins(path, PARQUET))
    if "://" in path or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        first = file.read(1024)
    return bool(first) and not first.startswith((PARQUET, ARROW)) and not re.search(rb"[\x00-\x08\x0e-\x1f]", first)


def arrow_says(error: Exception) -> str:
    """Return Arrow's message in one line, without its preamble about the file."""
    return re.sub(r"^.*input source '[^']*': ", "", " ".join(str(error).split())).rstrip(".")
