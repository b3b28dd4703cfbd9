"""The files that can be read as text, beside the Parquet and Arrow files that every command reads.

To add a format, add it to `FORMATS`. pyarrow reads CSV and JSON lines (`sources/text.py`). The formats of Vowpal Wabbit
have a `Syntax` of their own, for which `LineSource` does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from drstream.converting.dsjson_lines import DsJson
from drstream.converting.events import LineSource
from drstream.converting.features import BITS
from drstream.converting.lines import Syntax
from drstream.converting.obp import ITEM_CONTEXT, check_names, is_open_bandit, logger_of
from drstream.converting.vw_lines import Vw
from drstream.errors import LogError, parameter
from drstream.parameters import one_of
from drstream.sources.names import expand
from drstream.sources.open import check_no_file_twice
from drstream.sources.text import Csv, JsonLines, TextSource, no_constants

COMPRESSED = (".gz", ".bz2", ".zst")
FIRST_BYTES = 1 << 16  # of a file, to tell formats with the same suffix apart


@dataclass(frozen=True)
class Format:
    syntax: Callable[[int], Csv | JsonLines | Syntax]  # of the bits of hashed features
    suffixes: tuple[str, ...] = ()


FORMATS = {
    "csv": Format(lambda bits: Csv(), (".csv",)),
    "tsv": Format(lambda bits: Csv("\t", "tab-separated values"), (".tsv",)),
    "json": Format(lambda bits: JsonLines(), (".jsonl", ".ndjson", ".json")),
    "vw": Format(Vw, (".vw",)),
    "dsjson": Format(DsJson, (".dsjson",)),
    "obp": Format(lambda bits: Csv(name="Open Bandit's CSV")),
}
SUFFIXES = {suffix: name for name, form in FORMATS.items() for suffix in form.suffixes}


def format_of(path: str) -> str | None:
    """Return the format of a file by its suffix and beginning; None for Parquet and Arrow, whatever they are called."""
    name = Path(path.lower())
    found = SUFFIXES.get(Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix)
    if found == "csv" and is_open_bandit(_first_bytes(path)):
        return "obp"
    return "dsjson" if found == "json" and b'"_label_cost"' in _first_bytes(path) else found


def _first_bytes(path: str) -> bytes:
    try:
        with pa.input_stream(path) as file:
            return file.read(FIRST_BYTES)
    except (pa.ArrowException, OSError):
        return b""  # the error comes when it is read


def open_text(
    source: Any,
    form: str | None,
    skip: bool,
    threads: int,
    progress: Any,
    bits: int = BITS,
    types: Mapping[str, pa.DataType] | None = None,
) -> tuple[str, TextSource | LineSource] | None:
    """Return the format and the source of a log that is text; None if it is anything else.

    form  The format. By default, the suffixes and beginnings of the files tell.
    skip  Malformed lines are left out and counted.
    types  Types of columns of CSV and JSON lines. By default, the first bytes of the files decide.
    """
    if form is not None:
        one_of("format", form, list(FORMATS), error=LogError)
    names = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | os.PathLike) for name in names):
        if form is not None:
            raise LogError(
                f"{parameter('format', form, option='from')}: pass paths of files, not {type(source).__name__}"
            )
        return None
    paths = _paths([os.fspath(name) for name in names], form)
    formats = [form or format_of(path) for path in paths]
    first = next((found for found in formats if found is not None), None)
    if first is None:
        return None
    name = os.fspath(names[0]) if len(names) == 1 else f"{len(names)} paths"
    other = next((path for path, found in zip(paths, formats, strict=True) if found != first), None)
    if other is not None:
        one = paths[formats.index(first)]
        raise LogError(f"{name} holds files of two kinds, e.g. {one} and {other}: choose one kind, e.g. with a glob")
    check_no_file_twice(paths)
    syntax = FORMATS[first].syntax(bits)
    remote = next((path for path in paths if "://" in path), None)
    if remote is not None:
        raise LogError(f"cannot read {remote}: a file of {syntax.name} must be on this computer. Copy it first")
    if not isinstance(syntax, Csv | JsonLines):
        return first, LineSource(paths, name, syntax, threads, progress, skip)
    told = logger_of if first == "obp" else no_constants
    found = TextSource(tuple(paths), name, syntax, types or {}, skip, told)
    if first == "obp":
        check_names(name, found.schema)
    return first, found


def _paths(names: Sequence[str], form: str | None) -> list[str]:
    """Return the files, without those that describe the items of Open Bandit."""
    known = tuple(SUFFIXES) if form is None else FORMATS[form].suffixes or (".csv",)
    suffixes = tuple(suffix + more for suffix in known for more in ("", *COMPRESSED))
    found = [path for name in names for path in expand(name, suffixes)]
    others = [path for path in found if os.path.basename(path) != ITEM_CONTEXT]
    return others if form in (None, "obp") and others else found
