"""The files that can be converted, beside the Parquet and Arrow files that every command reads.

To add a format, add its suffix to `FORMATS`. A format of lines is a `Syntax`, and `TextSource` does the rest. Any other
format is a function that returns a `Source`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from drstream.converting.csv_lines import Csv
from drstream.converting.json_lines import JsonLines
from drstream.converting.text import TextSource
from drstream.errors import LogError
from drstream.log.files import expand
from drstream.log.opening import check_no_file_twice
from drstream.log.source import Source

Opener = Callable[[Sequence[str], str, int, Any], Source]  # of paths, name, threads and progress
COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Format:
    name: str
    open: Opener


def _lines(syntax: Any) -> Format:
    return Format(syntax.name, partial(_open_lines, syntax))


def _open_lines(syntax: Any, paths: Sequence[str], name: str, threads: int, progress: Any) -> Source:
    return TextSource(paths, name, syntax, threads, progress)


FORMATS = {
    ".csv": _lines(Csv()),
    ".tsv": _lines(Csv("\t", "tab-separated values")),
    ".jsonl": _lines(JsonLines()),
    ".ndjson": _lines(JsonLines()),
    ".json": _lines(JsonLines()),
}


def format_of(path: str) -> Format | None:
    """Return the format of a file by its suffix; None for Parquet and Arrow, whatever they are called."""
    name = Path(path.lower())
    return FORMATS.get(Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix)


def open_input(source: Any, threads: int, progress: Any) -> Any:
    """Return the source of a log in another format than Parquet and Arrow, and anything else as it is."""
    names = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | os.PathLike) for name in names):
        return source
    known = tuple(suffix + more for suffix in FORMATS for more in ("", *COMPRESSED))
    paths = [path for name in names for path in expand(os.fspath(name), known)]
    formats = [format_of(path) for path in paths]
    first = next((found for found in formats if found is not None), None)
    if first is None:
        return source
    name = os.fspath(names[0]) if len(names) == 1 else f"{len(names)} paths"
    other = next(
        (path for path, found in zip(paths, formats, strict=True) if found is None or found.name != first.name), None
    )
    if other is not None:
        one = paths[formats.index(first)]
        raise LogError(f"{name} holds files of two kinds, e.g. {one} and {other}: choose one kind, e.g. with a glob")
    check_no_file_twice(paths)
    remote = next((path for path in paths if "://" in path), None)
    if remote is not None:
        raise LogError(f"cannot read {remote}: a file of {first.name} must be on this computer. Copy it first")
    return first.open(paths, name, threads, progress)
