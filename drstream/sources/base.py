"""What a source of rows, its parts and their places are; and the checks that all sources share.

A part is the unit of parallel work and of merging: a row group of a Parquet file, or a piece of at most 131,072 rows.
To add a source, write a `Source` with its parts; `open.py` decides which object becomes which source.
Nothing here knows what a log is: a source has columns, rows and types.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

from drstream.sources.names import changed, unreadable_part

PIECE = 131_072
READ_ROWS = 65_536  # of a record batch that is read of a file


@dataclass(frozen=True)
class Place:
    """Where the rows of a part are stored, for messages."""

    first_row: int  # number in the log
    name: str = ""  # name of the file or table, if it has one
    row_group: int | None = None
    file_row: int = 0  # number of its file's first row in the log

    def __str__(self) -> str:
        return self.name if self.row_group is None else f"row group {self.row_group} of {self.name}"

    def of_row(self, row: int) -> str:
        """Return the row's number in the log and, for Parquet, in its row group."""
        if self.row_group is not None:
            return f"row {row} (row {row - self.first_row} of {self})"
        return f"row {row} of {self}" if self.name else f"row {row}"


class Part(Protocol):
    """Some consecutive rows of a log."""

    @property
    def first_row(self) -> int:
        """Number of the first row in the log."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def place(self) -> Place:
        """Where these rows are stored."""

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield record batches of at most `rows` rows, in order. By default, the source takes the fastest size."""


@runtime_checkable
class Source(Protocol):
    name: str
    schema: pa.Schema
    keys: tuple[Any, ...]  # paths of files, or objects, that it reads; sources with a common key may share rows

    @property
    def rows(self) -> int | None:
        """Number of rows; None if only reading them would tell."""

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[Part]:
        """Yield the parts in order. Parts whose statistics exclude the filter may be left out. Rows are not filtered.

        Columns named in `text` may come as dictionaries, which are cheaper to decode.
        """

    def peek(self, rows: int | None = None) -> Source:
        """Return a source to look at before the first pass. It has at least the first `rows` rows, by default all."""


class SameObject:
    """Holds an object. Two are equal if they hold the same object. A pickled copy equals none."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.thing is not None and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __reduce__(self) -> tuple[type[SameObject], tuple[None]]:
        return SameObject, (None,)


@dataclass(frozen=True)
class FileState:
    """What tells one file from another that takes its place."""

    size: int
    changed: int | None = None  # time of the last change, in ns
    number: int | None = None  # of the file in its file system
    tag: str = ""  # of its contents, in object storage

    @classmethod
    def of(cls, path: str, filesystem: pa.fs.FileSystem, source: pa.NativeFile | None = None) -> FileState:
        """Return the state of a file. In object storage, it is the size and the tag that the storage gave the contents.

        An open `source` knows both, as they were when it was opened. On other file systems, it is the size.
        """
        if isinstance(filesystem, pa.fs.LocalFileSystem):
            found = os.stat(path)
            return cls(found.st_size, found.st_mtime_ns, found.st_ino)
        if source is None:
            with filesystem.open_input_file(path) as opened:
                return cls.of(path, filesystem, opened)
        about = source.metadata() or {}
        return cls(source.size(), tag=str(about.get("ETag") or about.get("Last-Modified") or ""))

    def difference(self, later: FileState) -> str:
        if self.size != later.size:
            return f"it had {self.size:,} bytes, and has {later.size:,}"
        return "another file has its name" if self.number != later.number else "something wrote to it"

    def check(self, path: str, found: FileState) -> None:
        """Raise an error if the file is now another one."""
        if found != self:
            raise changed(path, self.difference(found))


def checked(batch: Any, where: Any) -> Any:
    """Return a batch or table after a check of its offsets, indices and text, which Arrow and kernels trust."""
    try:
        batch.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable_part(where, error) from None
    return batch


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, of one length or of any."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def without_views(data: Any) -> Any:
    """Convert string views and binary views to plain columns, as some functions of Arrow do not take views.

    Lists of string views become lists of strings.
    """
    for i, column in enumerate(data.schema):
        if pa.types.is_large_list(column.type) and pa.types.is_string_view(column.type.value_type):
            data = data.set_column(i, column.name, data.column(i).cast(pa.large_list(pa.large_string())))
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            plain = pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary()
            data = data.set_column(i, column.name, data.column(i).cast(plain))
    return data
