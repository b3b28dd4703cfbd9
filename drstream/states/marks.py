"""Marks of parts: which rows of which file a part has, so that they are known again in another run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, without_secrets
from drstream.sources.base import Part
from drstream.sources.memory import TablePart
from drstream.sources.names import unreadable
from drstream.sources.parquet import RowGroup

OF_A_FILE = ("file", "size", "modified", "digest")
OF_A_PART = ("row_group", "first_row", "rows")


@dataclass(frozen=True)
class Mark:
    """The rows of a part.

    file       Path of the file; empty for rows in memory.
    first_row  Number of the part's first row in its log.
    size       Bytes of the file. None for rows in memory.
    modified   When the file was last written, in nanoseconds since 1970. None if it is not known.
    digest     SHA-256 of a Parquet file's footer, or of the rows that are in memory.
    """

    file: str
    row_group: int | None
    first_row: int
    rows: int
    size: int | None = None
    modified: int | None = None
    digest: str = ""

    def __str__(self) -> str:
        if self.row_group is not None:
            return f"row group {self.row_group} of {self.file}"
        return f"rows {self.first_row:,} to {self.first_row + self.rows - 1:,} of {self.file or 'a table'}"


class Marker:
    """Makes marks. Each footer is read once more, for its digest, if `digests` are wanted."""

    def __init__(self, *, digests: bool) -> None:
        self.digests = digests
        self._last = Mark("", None, 0, 0)
        self._known: dict[tuple[int, int], Mark] = {}  # by first row and number of rows

    def mark(self, part: Part) -> Mark:
        key = part.first_row, part.rows
        if key not in self._known:
            self._known[key] = self._mark(part)
        return self._known[key]

    def _mark(self, part: Part) -> Mark:
        place = part.place
        if not self.digests:
            return Mark(place.name, place.row_group, part.first_row, part.rows)
        if isinstance(part, RowGroup):
            name = without_secrets(os.path.abspath(part.path) if os.path.exists(part.path) else part.path)
            if self._last.file != name:
                self._last = _file(part, name)
            return replace(self._last, row_group=part.index, first_row=part.first_row, rows=part.rows)
        if isinstance(part, TablePart):
            return Mark(place.name, None, part.first_row, part.rows, digest=_digest(part.table))
        batches = pa.Table.from_batches(part.batches())
        return Mark(place.name, place.row_group, part.first_row, part.rows, digest=_digest(batches))


def _file(part: RowGroup, name: str) -> Mark:
    """The mark of a whole file."""
    try:
        modified = part.file.filesystem.get_file_info(part.path).mtime_ns
        with part.file.open() as file:
            size = file.size()
            file.seek(max(size - 8, 0))
            length = int.from_bytes(file.read(8)[:4], "little")
            file.seek(max(size - 8 - length, 0))
            digest = hashlib.sha256(file.read(length)).hexdigest()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part.path, error) from None
    return Mark(name, None, 0, 0, size, modified, digest)


def _digest(table: pa.Table) -> str:
    """The digest of rows, however they are chunked."""
    sink = pa.BufferOutputStream()
    whole = table.replace_schema_metadata(None).combine_chunks()
    try:
        with pa.ipc.new_stream(sink, whole.schema) as writer:
            writer.write_table(whole)
    except pa.ArrowException as error:
        raise LogError(f"cannot make a digest of these rows: {' '.join(str(error).split())}") from None
    return hashlib.sha256(sink.getvalue()).hexdigest()


def to_words(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """Marks by file, each with its parts, as JSON."""
    found: list[dict[str, Any]] = []
    for mark in marks:
        about = asdict(mark)
        of_file, part = {name: about[name] for name in OF_A_FILE}, [about[name] for name in OF_A_PART]
        if found and {name: found[-1][name] for name in OF_A_FILE} == of_file:
            found[-1]["parts"].append(part)
        else:
            found.append({**of_file, "parts": [part]})
    return found


def from_words(files: Any) -> list[Mark]:
    return [
        Mark(**{name: one[name] for name in OF_A_FILE}, **dict(zip(OF_A_PART, part, strict=True)))
        for one in files
        for part in one["parts"]
    ]
