"""From a name to files: paths, globs and directories, and errors about files that cannot be read."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, MissingFileError, because, phrase, suggest, without_secrets

PARQUET, ARROW = b"PAR1", b"ARROW1"  # first bytes of such files
TEXT = re.compile(r"\.(csv|tsv|jsonl|ndjson|json)(\.(gz|bz2|zst))?$", re.IGNORECASE)  # names of files of text
UNFINISHED = (".part", ".tmp", ".temp", ".inprogress", ".crdownload", "~")  # of files that are being written
REFUSED = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO)  # errors that say nothing about contents
SUFFIXES = (".parquet", ".pq", ".parq", ".arrow", ".feather", ".ipc")


def changed(path: str, how: str) -> LogError:
    """Return the error about a file that is not the one that was opened: its rows may be anything."""
    return LogError(
        f"{path} changed while it was read: {how}. Some of its events are of one file and some of "
        "another. Start again when nothing writes to it"
    )


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
    try:
        beside = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    except OSError as error:  # then nobody knows whether the file is there
        raise LogError(f"cannot read the folder {folder!r}: {because(error)}") from None
    hint = suggest(os.path.basename(name), beside) if beside else f"there is no folder {folder!r} either"
    raise MissingFileError(f"no such file or directory: {name!r}; {hint}")


def pattern_of(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression: * stays within a folder, ** goes through any number of them.

    >>> bool(pattern_of("b/day=*/x.parquet").fullmatch("b/day=1/x.parquet")), bool(pattern_of("b/*").fullmatch("b/c/d"))
    (True, False)
    >>> bool(pattern_of("b/**/x.pq").fullmatch("b/x.pq")), bool(pattern_of("b/[0-2].pq").fullmatch("b/3.pq"))
    (True, False)
    """
    words = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", glob)
    return re.compile("".join(words.get(p, p.replace("[!", "[^") if p[:1] == "[" else re.escape(p)) for p in pieces))


def _data_files(folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that are Parquet or Arrow by their name or first bytes, or have one of the suffixes, in order.

    Hidden files, files in folders like _temporary, and files with suffixes like .part hold unfinished work and are left
    out. A link to a file or folder that is found under its own name, too, is left out.
    """
    found: list[str] = []
    for path in _walk(folder, {os.path.realpath(folder)}):
        named = path.lower().endswith((*SUFFIXES, *suffixes))
        if named or _begins(path, PARQUET, ARROW):
            found.append(path)
    base, real = os.path.realpath(folder), {path: os.path.realpath(path) for path in found}
    direct = {path for path in found if real[path] == os.path.join(base, path[len(folder) :].lstrip(os.sep))}
    own = {real[path] for path in direct}
    seen: set[str] = set()
    kept = []
    for path in sorted(found):
        if real[path] not in seen and (real[path] not in own or path in direct):
            kept.append(path)
            seen.add(real[path])
    return kept


def _walk(folder: str, above: set[str]) -> Iterator[str]:
    """Yield the files in a folder and in those below it, also through links, except for links to a folder above."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise LogError(
            f"cannot read the folder {folder!r}: {because(error)}. Its files may belong to the log: make it readable, "
            "or name the files to read"
        ) from None
    for entry in entries:
        if entry.name.startswith(("_", ".")) or entry.name.lower().endswith(UNFINISHED):
            continue
        if entry.is_dir():
            real = os.path.realpath(entry.path)
            if real not in above:
                yield from _walk(entry.path, above | {real})
        elif entry.is_file():
            yield entry.path


def is_arrow(path: str) -> bool:
    return "://" not in path and os.path.isfile(path) and _begins(path, ARROW)


def _begins(path: str, *magic: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(ARROW)).startswith(magic)
    except OSError as error:
        raise LogError(f"cannot read {path}: {because(error)}") from None


def unreadable(path: str, error: Exception, kind: str = "Parquet") -> LogError:
    named = re.search(r"input source '([^']*)'", str(error))  # of many files, the one that Arrow names
    path = named[1] if named else path
    if isinstance(error, FileNotFoundError):
        return unreadable_part(path, error)
    if isinstance(error, OSError) and error.errno in REFUSED and not isinstance(error, pa.ArrowException):
        return LogError(without_secrets(f"cannot read {path}: {because(error)}"))
    if is_text(path):
        return LogError(f"cannot read {path} as {kind}: it holds text. {_to_convert(path)}")
    if "://" not in path and os.path.isfile(path) and not os.path.getsize(path):
        return LogError(f"cannot read {path} as {kind}: it is empty, it has no bytes at all")
    return LogError(without_secrets(f"cannot read {path} as {kind}: {arrow_says(error)}. Is it complete?"))


def unreadable_part(where: Any, error: Exception) -> LogError:
    """Return the error about a part of a file that was opened before, and now cannot be read."""
    if isinstance(error, FileNotFoundError):
        return LogError(without_secrets(f"cannot read {where}: the file is gone. Something deleted it meanwhile"))
    if isinstance(error, OSError) and error.errno in REFUSED and not isinstance(error, pa.ArrowException):
        return LogError(f"cannot read {where}: {because(error)}")
    return LogError(f"cannot read {where}: {arrow_says(error)}. Is the file damaged?")


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
    try:
        with open(path, "rb") as file:
            first = file.read(1024)
    except OSError:  # what reads the file says so
        return False
    return bool(first) and not first.startswith((PARQUET, ARROW)) and not re.search(rb"[\x00-\x08\x0e-\x1f]", first)


def check_names(schema: pa.Schema, name: str) -> None:
    """Raise an error if names of columns, or of parts of structs, are not text."""
    try:
        str(schema.remove_metadata())
        for field in schema:
            field.name  # noqa: B018  # raises an error
    except UnicodeDecodeError as error:
        raise LogError(
            without_secrets(f"cannot read {name}: the name of a column is not UTF-8 ({error.reason})")
        ) from None


def arrow_says(error: Exception) -> str:
    """Return Arrow's message in one line, without its preamble about the file."""
    return re.sub(r"^.*input source '[^']*': ", "", " ".join(str(error).split())).rstrip(".")
