"""Parquet files: their row groups are the parts of a log. pyarrow reads them."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drstream.errors import DrstreamError, LogError
from drstream.sources.base import READ_ROWS, FileState, Place, Source, checked, is_list, without_views
from drstream.sources.names import check_names, unreadable, unreadable_part
from drstream.sources.remote import is_remote, together

OLDEST = 26  # pyarrow whose statistics of sound columns are known not to end the process (ADR 29)
looks_at_statistics = int(pa.__version__.partition(".")[0]) >= OLDEST
AT_ONCE = 1 << 26  # bytes of a row group that is decoded in one piece
PAGE_BYTES = 1 << 16  # that are read at a time to see whether a column is sound


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file as it was when its footer was read. A pickled one reads it again, once in each process."""

    path: str
    filesystem: pa.fs.FileSystem
    state: FileState

    @cached_property
    def metadata(self) -> pq.FileMetaData:
        return _metadata(self)

    @cached_property
    def rows(self) -> list[int]:
        """Number of rows of each row group."""
        metadata = self.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "filesystem": self.filesystem, "state": self.state}

    def __hash__(self) -> int:
        return hash((self.path, self.state))

    def open(self) -> pa.NativeFile:
        return self.filesystem.open_input_file(self.path)  # not mapped: a file that shrinks would kill the process

    def place_of(self, column: str) -> int | None:
        """Return the number of a stored column by its path; None if there is none of that path, or there are more."""
        paths = [self.metadata.schema.column(j).path for j in range(self.metadata.num_columns)]
        return paths.index(column) if paths.count(column) == 1 else None

    def is_sound(self, column: str) -> bool:
        """Whether each row group has a stored column of the type that the schema says, and its first row can be read.

        Then its statistics can be looked at. pyarrow ends the process if it is asked about a column whose metadata
        make no sense, but raises an error if it is told to read it.
        """
        place = self.place_of(column)
        if place is None:
            return False
        wanted = self.metadata.schema.column(place).physical_type
        try:
            with self.open() as source:
                opened = pq.ParquetFile(source, metadata=self.metadata, buffer_size=PAGE_BYTES)
                for i in range(len(self.rows)):
                    first = next(opened.iter_batches(1, row_groups=[i], columns=[column], use_threads=False), None)
                    if first is None or self.metadata.row_group(i).column(place).physical_type != wanted:
                        return False
        except Exception:  # what reads the rows says what is wrong
            return False
        return True

    def check_state(self, source: pa.NativeFile | None = None) -> None:
        """Raise an error if the file is not the one whose metadata were read: its row groups may hold anything."""
        self.state.check(self.path, FileState.of(self.path, self.filesystem, source))


@lru_cache(maxsize=64)
def _metadata(file: StoredFile) -> pq.FileMetaData:
    with file.open() as source:
        file.check_state(source)
        return pq.ParquetFile(source).metadata


@dataclass
class RowGroup:
    """One row group of a Parquet file."""

    file: StoredFile
    index: int
    first_row: int
    rows: int
    columns: tuple[str, ...]
    constants: dict[str, pa.Scalar]  # values of columns that the partitioned path gives
    dictionaries: tuple[str, ...]  # text columns to decode as dictionaries
    views: bool  # some column holds views of strings
    verify: bool = False  # whether to compare pages with their checksums, if they have any
    file_row: int = 0  # number of the file's first row in the log

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.path, self.index, self.file_row)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        names = [name for name in self.columns if name not in self.constants]
        rows = rows or self._at_once(len(names))
        try:
            with self._open() as (source, opened):
                self.file.check_state(source)
                for batch in opened.iter_batches(rows, row_groups=[self.index], columns=names, use_threads=False):
                    self.file.check_state(source)
                    batch = checked(batch, self.place)
                    yield self._with_constants(without_views(batch) if self.views else batch)
                if is_remote(self.file.filesystem) and self.index + 1 == len(self.file.rows):
                    self.file.check_state()  # the storage is asked once more
        except DrstreamError:
            raise
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError, UnicodeDecodeError and others
            raise unreadable_part(self.place, error) from None

    def _at_once(self, columns: int) -> int:
        """Rows of a batch: the whole row group, which takes up to an eighth less time, if that is not large."""
        decoded = max(8 * columns * self.rows, self.file.metadata.row_group(self.index).total_byte_size)
        return self.rows if decoded <= AT_ONCE else READ_ROWS

    @contextmanager
    def _open(self) -> Iterator[tuple[pa.NativeFile, pq.ParquetFile]]:
        with self.file.open() as source:
            yield (
                source,
                pq.ParquetFile(
                    source,
                    metadata=self.file.metadata,
                    read_dictionary=self.dictionaries,
                    page_checksum_verification=self.verify,
                    pre_buffer=is_remote(self.file.filesystem),  # a few large reads instead of one for each column
                ),
            )

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch


class ParquetSource:
    """Parquet files of one schema, in the order given."""

    verify = False  # whether to compare pages with their checksums

    def __init__(self, dataset: ds.FileSystemDataset, name: str) -> None:
        self.name = name
        self.filesystem = dataset.filesystem
        check_names(dataset.schema, name)
        self._stored_schema = dataset.schema
        self.schema = without_views(dataset.schema.empty_table()).schema
        self.fragments = list(dataset.get_fragments())
        self.keys = tuple(os.path.abspath(f) if os.path.exists(f) else f for f in dataset.files)
        self._states: dict[str, FileState] = {}  # of files, by path, as they were asked on other threads
        self._sound: dict[tuple[str, str], bool] = {}  # whether statistics can be looked at, by file and column

    def verified(self) -> ParquetSource:
        """Return the same files. Pages that have checksums are compared with them as they are read."""
        found = copy.copy(self)
        found.verify = True
        return found

    @cached_property
    def _files(self) -> list[StoredFile]:
        """The files. Reads the footer of each once, and compares their schemas."""
        files = []
        if is_remote(self.filesystem):
            together(self._ask, self.fragments)
        for fragment in self.fragments:
            try:
                state = self._states.get(fragment.path) or FileState.of(fragment.path, self.filesystem)
                file = StoredFile(fragment.path, self.filesystem, state)
                file.__dict__["metadata"] = fragment.metadata
                difference = schema_difference(fragment, self._stored_schema)
            except Exception as error:  # as above
                raise unreadable(fragment.path, error) from None
            if difference is not None:
                name, wanted, found = difference
                raise LogError(
                    f"files differ: column {name!r} is {wanted} in {self.fragments[0].path}, but {found} in "
                    f"{fragment.path}. Give files of one schema, or a pyarrow dataset with the schema you want"
                )
            if min(file.rows, default=0) < 0:
                raise LogError(f"cannot read {fragment.path}: a row group has {min(file.rows)} rows. Is it damaged?")
            files.append(file)
        return files

    def _ask(self, fragment: ds.ParquetFileFragment) -> None:
        """Read a footer now, on a thread of its own. An error is raised again where the footer is used."""
        with suppress(Exception):
            fragment.ensure_complete_metadata()
            self._states[fragment.path] = FileState.of(fragment.path, self.filesystem)

    @cached_property
    def _groups(self) -> list[Sequence[int]]:
        """The row groups of each file that belong to the log. A dataset of the user's may have some of them only."""
        return [
            range(len(file.rows))
            if fragment.num_row_groups == len(file.rows)
            else [group.id for group in fragment.row_groups]
            for fragment, file in zip(self.fragments, self._files, strict=True)
        ]

    @property
    def rows(self) -> int:
        return sum(file.rows[i] for file, own in zip(self._files, self._groups, strict=True) for i in own)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[RowGroup]:
        kinds = [self.schema.field(n).type for n in columns]
        views = kinds != [self._stored_schema.field(n).type for n in columns]
        text = [n for n in text if n in columns and _is_text(self.schema.field(n).type)]
        first_row = 0
        for fragment, file, own in zip(self.fragments, self._files, self._groups, strict=True):
            constants = {
                name: pa.scalar(value, self.schema.field(name).type)
                for name, value in ds.get_partition_keys(fragment.partition_expression).items()
                if name in columns
            }
            kept = own if filter is None else self._kept(fragment, file, filter, own)
            stored = [self._stored_name(file.metadata, n) for n in text if n not in constants]
            form = tuple(columns), constants, tuple(stored), views, self.verify, first_row
            for index in own:
                rows = file.rows[index]
                if index in kept and rows:
                    yield RowGroup(file, index, first_row, rows, *form)
                first_row += rows

    def _kept(
        self, fragment: ds.ParquetFileFragment, file: StoredFile, filter: ds.Expression, own: Sequence[int]
    ) -> Collection[int]:
        """Return the row groups that may have rows for a filter, by the path of the file and by statistics."""
        text, constants = str(filter), ds.get_partition_keys(fragment.partition_expression)
        names = [field.name for field in self._stored_schema if field.name in text and field.name not in constants]
        try:
            if all(self._is_sound(file, self._stored_name(file.metadata, name)) for name in names):
                return {group.row_groups[0].id for group in fragment.split_by_row_group(filter, self._stored_schema)}
            here = ds.FileSystemDataset([fragment], self._stored_schema, fragment.format, fragment.filesystem)
            return own if list(here.get_fragments(filter=filter)) else ()
        except (pa.ArrowException, OSError):
            return own  # what filters the rows says what is wrong

    def ranges(self, column: str) -> dict[int, tuple[int, int]]:
        """Return the range of a column of integers, or of lists of them, in each row group, by the group's first row.

        Groups whose range is not known are left out. Statistics are hints: rows tell whether they were right.
        """
        found: dict[int, tuple[int, int]] = {}
        first_row = 0
        for file, own in zip(self._files, self._groups, strict=True):
            name = self._stored_name(file.metadata, column)
            place = file.place_of(name) if self._is_sound(file, name) else None
            for index in own:
                known = None if place is None else _range(file.metadata, index, place)
                if known is not None:
                    found[first_row] = known
                first_row += file.rows[index]
        return found

    def _is_sound(self, file: StoredFile, column: str) -> bool:
        """Whether statistics of a stored column can be looked at."""
        key = file.path, column
        if looks_at_statistics and key not in self._sound:
            self._sound[key] = file.is_sound(column)
        return self._sound.get(key, False)

    def _stored_name(self, metadata: pq.FileMetaData, column: str) -> str:
        """Return the name by which Parquet knows a column; for one of lists, that of its items: items.list.element."""
        if not is_list(self.schema.field(column).type):
            return column
        stored = [metadata.schema.column(j) for j in range(metadata.num_columns)]
        items = [c.path for c in stored if c.max_repetition_level and c.path.startswith(f"{column}.")]
        return str(min(items, key=len))  # others would be of a column whose name goes on after the same dot


def _range(metadata: pq.FileMetaData, index: int, column: int) -> tuple[int, int] | None:
    """Return the smallest and the largest integer of a row group's column, if statistics tell."""
    try:
        known = metadata.row_group(index).column(column).statistics
        if known is None or not known.has_min_max:
            return None
        low, high = known.min, known.max
    except (pa.ArrowException, OSError, ValueError):  # damaged
        return None
    return (low, high) if isinstance(low, int) and isinstance(high, int) and low <= high else None


def schema_difference(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> tuple[str, Any, Any] | None:
    """Return the first column whose type differs in a file: its name, the wanted type and the found type."""
    constants = ds.get_partition_keys(fragment.partition_expression)
    stored = {column.name: column.type for column in fragment.physical_schema}
    for wanted in schema:
        found = stored.get(wanted.name, "missing")
        if wanted.name not in constants and found != wanted.type:
            return wanted.name, wanted.type, found
    return None


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind.value_type if is_list(kind) else kind)
