"""Parquet files: their row groups are the parts of a log, and are decoded here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drstream.errors import DrstreamError, LogError
from drstream.log import pages
from drstream.log.chunks import exact
from drstream.log.files import State, check_names, checked, unreadable, unreadable_part
from drstream.log.footers import Footer
from drstream.log.memory import kept
from drstream.log.pages import Columns, Unusual, Use
from drstream.log.remote import forget, is_remote, together, with_retries
from drstream.log.schema import is_list
from drstream.log.source import Place, Source, without_views

DECODE_BYTES = 1 << 25  # most that each thread decodes of a row group at a time
LIST_ROWS = 1 << 15  # the same for lists, in rows: their levels take much memory, and larger batches are slower, too


@dataclass
class RowGroup:
    """One row group of a Parquet file."""

    footer: Footer  # of its file
    index: int
    first_row: int
    rows: int
    columns: tuple[str, ...]
    constants: dict[str, pa.Scalar]  # values of columns that the partitioned path gives
    dictionaries: tuple[str, ...]  # text columns to decode as dictionaries
    row_bytes: int  # approximate size of a decoded row
    lists: tuple[str, ...]  # columns that hold lists
    views: bool  # some column holds views of strings
    verify: bool = False  # whether to compare pages with their checksums, if they have any
    file_row: int = 0  # number of the file's first row in the log

    @property
    def path(self) -> str:
        return self.footer.path

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.path, self.index, self.file_row)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        try:
            with self._open() as opened:
                self._check_state(opened)
                for batch in self._decoded(opened, rows):
                    self._check_state(opened)
                    yield self._with_constants(without_views(batch) if self.views else batch)
                if self.index + 1 == len(self.footer.rows) and is_remote(self.footer.filesystem):
                    forget(self.footer.filesystem, self.path)  # so that the storage is asked once more
                    self._check_state(opened)
        except DrstreamError:
            raise
        except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError, UnicodeDecodeError and others
            raise unreadable_part(self.place, error) from None

    def hand_to(self, use: Use, chunk: int | None = None) -> bool:
        """Let all rows be used as they are decoded. Return False if they are not on the disk, or not just numbers.

        chunk  Rows to decode at a time, or a multiple of them. By default, as many as stay in cache.
        Then, or if `use` cannot take them, `batches` takes the rows in another way, or says what is wrong.
        """
        if self.constants or self.verify or not _on_disk(self.footer):
            return False
        with suppress(OSError, pa.ArrowException), self._open() as opened, suppress(Unusual):
            columns = self._all_numbers(opened, chunk)
            if columns is not None:
                columns.hand_to(use, chunk)
                self._check_state(opened)
                return True
        return False

    def _all_numbers(self, opened: Opened, chunk: int | None) -> Columns | None:
        """Return all columns, if they are decoded here and take little memory; else None."""
        try:
            columns = opened.numbers(self.index, self.columns)
        except DrstreamError:
            raise
        except Exception:
            return None  # `batches` says what is wrong
        if columns is None or len(columns.form.columns) < len(self.columns):
            return None
        return columns if columns.most_bytes(chunk) <= DECODE_BYTES else None

    def _decoded(self, opened: Opened, rows: int | None) -> Iterator[pa.RecordBatch]:
        """Decode numbers here, and everything else with pyarrow; with it also the rows that are left by `Unusual`."""
        names = [name for name in self.columns if name not in self.constants]
        done = 0
        columns = opened.numbers(self.index, tuple(names))
        if columns is not None:
            known = columns.form.places
            rest = [name for name in names if name not in known]
            listed = any(name not in known for name in self.lists)
            at_once = rows or self._rows(listed, max(self.row_bytes, columns.row_bytes))
            try:
                for batch in self._together(opened, columns, names, rest, at_once):
                    yield batch
                    done += batch.num_rows
                return
            except Unusual:
                pass
        for batch in self._by_pyarrow(opened, names, rows or self._rows(bool(self.lists), self.row_bytes)):
            skip = min(done, batch.num_rows)
            done -= skip
            if skip < batch.num_rows:
                yield batch.slice(skip)

    def _rows(self, listed: bool, row_bytes: int) -> int:
        """Rows to decode at a time, whether or not pyarrow decodes lists among them."""
        return LIST_ROWS if listed else max(1, DECODE_BYTES // row_bytes)

    def _together(
        self, opened: Opened, columns: Columns, names: Sequence[str], rest: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        numbers = (found.record_batch() for found in columns.batches(rows))
        if not rest:
            yield from numbers
            return
        for batch, other in zip(numbers, exact(self._by_pyarrow(opened, rest, rows), rows), strict=True):
            found = {name: part for part in (batch, other) for name in part.schema.names}
            schema = pa.schema([found[name].schema.field(name) for name in names])
            yield pa.RecordBatch.from_arrays([found[name].column(name) for name in names], schema=schema)

    def _by_pyarrow(self, opened: Opened, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        if rows >= self.rows:  # a third faster than in batches, for 20 columns
            batches = iter(opened.file.read_row_group(self.index, columns=names, use_threads=False).to_batches())
        else:
            batches = opened.file.iter_batches(rows, row_groups=[self.index], columns=names, use_threads=False)
        for batch in batches:
            yield checked(batch, self.place)

    @contextmanager
    def _open(self) -> Iterator[Opened]:
        """The file, which can stay open for this thread's next row group.

        Only a file on the disk does: elsewhere, a path and a size do not tell one file from another, and bytes that
        were read ahead would stay in memory, too.
        """
        opened, kept.opened = kept.opened, None  # another generator of this thread may need one of its own
        form = self.path, self.footer.state, self.dictionaries, self.verify
        if opened is not None and (not isinstance(opened, Opened) or opened.form != form):
            opened.close()
            opened = None
        if opened is None:
            opened = Opened(form, self.footer)
        keep = False
        try:
            yield opened
            last = self.index + 1 == len(self.footer.rows)
            keep = kept.allowed and not last and opened.on_disk
        finally:
            if keep:
                kept.opened = opened
            else:
                opened.close()

    def _check_state(self, opened: Opened) -> None:
        if opened.on_disk:  # the name tells
            found, state = os.stat(self.path), self.footer.state
            if (found.st_size, found.st_mtime_ns, found.st_ino) == (state.size, state.changed, state.number):
                return
        source = None if opened.on_disk else opened.source
        self.footer.check_state(State.of(self.path, self.footer.filesystem, source))

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch


class Opened:
    """A file that is open for reading, and for which row groups."""

    def __init__(self, form: tuple[Any, ...], footer: Footer) -> None:
        self.form = form
        self.footer = footer
        self.on_disk = _on_disk(footer)
        verify = form[-1]  # pyarrow compares pages with their checksums
        self.handle = pages.opened(footer.path) if self.on_disk and not verify else -1
        self.space = pages.Space(kept.pool)
        self.known: dict[tuple[str, ...], pages.Known | None] = {}  # by names; the last ones only
        if self.handle < 0:
            self.source  # noqa: B018  # raises an error if it cannot be opened

    def numbers(self, index: int, names: tuple[str, ...]) -> Columns | None:
        """Return the columns of a row group that are decoded here; None if there are none."""
        if self.handle < 0:
            return None
        if names not in self.known:
            self.known = {names: pages.known_columns(self.footer, names)}
        return pages.columns_of(self.known[names], index, self.footer.rows[index], self.handle, self.space)

    @cached_property
    def source(self) -> pa.NativeFile:
        return self.footer.open()  # not mapped: a file that shrinks would kill the process

    @cached_property
    def file(self) -> pq.ParquetFile:
        *_, dictionaries, verify = self.form
        return pq.ParquetFile(
            self.source,
            metadata=self.footer.metadata,
            read_dictionary=dictionaries,
            page_checksum_verification=verify,
            pre_buffer=is_remote(self.footer.filesystem),  # a few large reads instead of one for each column
        )

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
        if "source" in self.__dict__:
            self.source.close()

    __del__ = close  # of the file that a thread kept when it ended


class ParquetSource:
    """Parquet files of one schema, in the order given."""

    verify = False  # whether to compare pages with their checksums

    def __init__(self, dataset: ds.FileSystemDataset, name: str) -> None:
        self.name = name
        self.filesystem = with_retries(dataset.filesystem)
        check_names(dataset.schema, name)
        self._stored_schema = dataset.schema
        self.schema = without_views(dataset.schema.empty_table()).schema
        self.fragments = list(dataset.get_fragments())
        self.keys = tuple(os.path.abspath(f) if os.path.exists(f) else f for f in dataset.files)
        self._states: dict[str, State] = {}  # of files, by path, as they were asked on other threads

    @cached_property
    def _footers(self) -> list[Footer]:
        """The footer of each file. Reads all of them once, and compares their schemas."""
        footers = []
        if is_remote(self.filesystem):
            together(self._ask, self.fragments)
        for fragment in self.fragments:
            try:
                state = self._states.get(fragment.path) or State.of(fragment.path, self.filesystem)
                footer = Footer(fragment.path, self.filesystem, state)
                footer.__dict__["metadata"] = fragment.metadata
                difference = schema_difference(fragment, self._stored_schema)
            except Exception as error:  # as above
                raise unreadable(fragment.path, error) from None
            if difference is not None:
                name, wanted, found = difference
                raise LogError(
                    f"files differ: column {name!r} is {wanted} in {self.fragments[0].path}, but {found} in "
                    f"{fragment.path}. Give files of one schema, or a pyarrow dataset with the schema you want"
                )
            if min(footer.rows, default=0) < 0:
                raise LogError(f"cannot read {fragment.path}: a row group has {min(footer.rows)} rows. Is it damaged?")
            footers.append(footer)
        return footers

    def _ask(self, fragment: ds.ParquetFileFragment) -> None:
        """Read a footer now, on a thread of its own. An error is raised again where the footer is used."""
        with suppress(Exception):
            fragment.ensure_complete_metadata()
            self._states[fragment.path] = State.of(fragment.path, self.filesystem)

    def without_checksums(self) -> list[str]:
        """Return the files whose pages have no checksums."""

        def lacks(footer: Footer) -> bool:
            try:
                return footer.has_checksums() is False
            except (pa.ArrowException, OSError):  # what reads its rows says so
                return False

        found = together(lacks, self._footers) if is_remote(self.filesystem) else map(lacks, self._footers)
        return [footer.path for footer, lack in zip(self._footers, found, strict=True) if lack]

    @cached_property
    def _groups(self) -> list[Sequence[int]]:
        """The row groups of each file that belong to the log. A dataset of the user's may have some of them only."""
        return [
            range(len(footer.rows))
            if fragment.num_row_groups == len(footer.rows)
            else [group.id for group in fragment.row_groups]
            for fragment, footer in zip(self.fragments, self._footers, strict=True)
        ]

    @property
    def rows(self) -> int:
        return sum(footer.rows[i] for footer, own in zip(self._footers, self._groups, strict=True) for i in own)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[RowGroup]:
        kinds = [self.schema.field(n).type for n in columns]
        lists = tuple(n for n, kind in zip(columns, kinds, strict=True) if is_list(kind) or pa.types.is_map(kind))
        views = kinds != [self._stored_schema.field(n).type for n in columns]
        size = sum(map(_bytes, kinds)) or 1, lists, views
        text = [n for n in text if n in columns and _is_text(self.schema.field(n).type)]
        first_row = 0
        for fragment, footer, own in zip(self.fragments, self._footers, self._groups, strict=True):
            constants = {
                name: pa.scalar(value, self.schema.field(name).type)
                for name, value in ds.get_partition_keys(fragment.partition_expression).items()
                if name in columns
            }
            kept: Collection[int] = own
            if filter is not None:
                kept = footer.kept(filter, self.schema, fragment.partition_expression)
            stored = [self._stored_name(footer.metadata, n) for n in text if n not in constants]
            form = tuple(columns), constants, tuple(stored)
            file_row = first_row
            for index in own:
                rows = footer.rows[index]
                if index in kept and rows:
                    yield RowGroup(footer, index, first_row, rows, *form, *size, self.verify, file_row)
                first_row += rows

    def ranges(self, column: str) -> dict[int, tuple[int, int]]:
        """Return the range of a column of integers, or of lists of them, in each row group, by the group's first row.

        Groups whose range is not known are left out.
        """
        found, first_row = {}, 0
        kind = self.schema.field(column).type
        kind = kind.value_type if is_list(kind) else kind
        for footer, own in zip(self._footers, self._groups, strict=True):
            name = self._stored_name(footer.metadata, column)
            paths = [footer.metadata.schema.column(j).path for j in range(footer.columns)]
            bounds = footer.bounds(paths.index(name), kind) if name in paths else [None] * len(footer.rows)
            for index in own:
                if (known := bounds[index]) is not None:
                    found[first_row] = known
                first_row += footer.rows[index]
        return found

    def _stored_name(self, metadata: pq.FileMetaData, column: str) -> str:
        """Return the name by which Parquet knows a column; for one of lists, that of its items: items.list.element."""
        if not is_list(self.schema.field(column).type):
            return column
        stored = [metadata.schema.column(j) for j in range(metadata.num_columns)]
        items = [c.path for c in stored if c.max_repetition_level and c.path.startswith(f"{column}.")]
        return str(min(items, key=len))  # others would be of a column whose name goes on after the same dot


def schema_difference(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> tuple[str, Any, Any] | None:
    """Return the first column whose type differs in a file: its name, the wanted type and the found type."""
    constants = ds.get_partition_keys(fragment.partition_expression)
    stored = {column.name: column.type for column in fragment.physical_schema}
    for wanted in schema:
        found = stored.get(wanted.name, "missing")
        if wanted.name not in constants and found != wanted.type:
            return wanted.name, wanted.type, found
    return None


def _on_disk(footer: Footer) -> bool:
    return isinstance(footer.filesystem, pa.fs.LocalFileSystem)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind.value_type if is_list(kind) else kind)


def _bytes(kind: pa.DataType) -> int:
    """Return the approximate size of a value of this type in memory."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _bytes(kind.value_type)
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 16
