"""Parquet files: their row groups are the parts of a log, and are decoded here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drstream.errors import LogError
from drstream.log.files import State, arrow_says, unreadable
from drstream.log.schema import is_list
from drstream.log.source import Place, Source

DECODE_BYTES = 1 << 25  # most that each thread decodes of a row group at a time
LIST_ROWS = 1 << 15  # the same for lists, in rows: their levels take much memory, and larger batches are slower, too


@dataclass
class RowGroup:
    """One row group of a Parquet file."""

    path: str
    filesystem: pa.fs.FileSystem
    index: int
    first_row: int
    rows: int
    columns: tuple[str, ...]
    constants: dict[str, pa.Scalar]  # values of columns that the partitioned path gives
    dictionaries: tuple[str, ...]  # text columns to decode as dictionaries
    metadata: pq.FileMetaData  # of the file; without it, each row group would read it again
    state: State  # of the file when its metadata were read
    row_bytes: int  # approximate size of a decoded row
    lists: bool  # some column holds lists
    verify: bool = False  # whether to compare pages with their checksums, if they have any

    @property
    def place(self) -> Place:
        return Place(self.first_row, self.path, self.index)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        stored = [name for name in self.columns if name not in self.constants]
        rows = rows or (LIST_ROWS if self.lists else max(1, DECODE_BYTES // self.row_bytes))
        try:
            with self.filesystem.open_input_file(self.path) as source:  # mapped, a file that shrinks kills the process
                self._check_state(source)
                file = pq.ParquetFile(
                    source,
                    metadata=self.metadata,
                    read_dictionary=self.dictionaries,
                    page_checksum_verification=self.verify,
                )
                if rows >= self.rows:  # a third faster than in batches, for 20 columns
                    whole = file.read_row_group(self.index, columns=stored, use_threads=False)
                    batches = iter(whole.to_batches())
                else:
                    batches = file.iter_batches(rows, row_groups=[self.index], columns=stored, use_threads=False)
                for batch in batches:
                    self._check_state(source)
                    yield self._with_constants(batch)
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read {self.place}: {arrow_says(error)}. Is the file damaged?") from None

    def _check_state(self, source: pa.NativeFile) -> None:
        """Raise an error if the file is not the one whose metadata were read: its row groups may hold anything."""
        found = State.of(self.path, self.filesystem, source)
        if found != self.state:
            raise LogError(
                f"{self.path} changed while it was read: {self.state.difference(found)}. Some of its events are of one "
                "file and some of another. Start again when nothing writes to it"
            )

    def _with_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in self.constants.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch


class ParquetSource:
    """Parquet files of one schema, in the order given."""

    def __init__(self, dataset: ds.FileSystemDataset, name: str) -> None:
        self.name = name
        self.filesystem = dataset.filesystem
        self.schema = dataset.schema
        self.fragments = list(dataset.get_fragments())
        self._states: list[State] = []  # of the files, when their footers were read
        self.keys = tuple(os.path.abspath(f) if os.path.exists(f) else f for f in dataset.files)

    @cached_property
    def _row_groups(self) -> list[list[tuple[int, int]]]:
        """Number and size of each row group of each file. Reads every footer once and compares the schemas."""
        groups, states = [], []
        for fragment in self.fragments:
            try:
                states.append(State.of(fragment.path, self.filesystem))
                groups.append([(group.id, group.num_rows) for group in fragment.row_groups])
                difference = schema_difference(fragment, self.schema)
            except (pa.ArrowException, OSError) as error:
                raise unreadable(fragment.path, error) from None
            if difference is not None:
                name, wanted, found = difference
                raise LogError(
                    f"files differ: column {name!r} is {wanted} in {self.fragments[0].path}, but {found} in "
                    f"{fragment.path}. Give files of one schema, or a pyarrow dataset with the schema you want"
                )
        self._states = states
        return groups

    @property
    def rows(self) -> int:
        return sum(rows for groups in self._row_groups for _, rows in groups)

    def peek(self, rows: int | None = None) -> Source:
        return self

    def parts(
        self, columns: Sequence[str], filter: ds.Expression | None = None, text: Sequence[str] = ()
    ) -> Iterator[RowGroup]:
        kinds = [self.schema.field(n).type for n in columns]
        size = sum(map(_bytes, kinds)) or 1, any(is_list(kind) or pa.types.is_map(kind) for kind in kinds)
        text = [n for n in text if n in columns and _is_text(self.schema.field(n).type)]
        first_row = 0
        for fragment, groups, state in zip(self.fragments, self._row_groups, self._states, strict=True):
            constants = {
                name: pa.scalar(value, self.schema.field(name).type)
                for name, value in ds.get_partition_keys(fragment.partition_expression).items()
                if name in columns
            }
            kept = {index for index, _ in groups}
            if filter is not None:
                pieces = fragment.split_by_row_group(filter=filter, schema=self.schema)
                kept = {group.id for piece in pieces for group in piece.row_groups}
            stored = [self._stored_name(fragment.metadata, n) for n in text if n not in constants]
            form = tuple(columns), constants, tuple(stored)
            for index, rows in groups:
                if index in kept and rows:
                    where = fragment.path, self.filesystem, index, first_row, rows
                    yield RowGroup(*where, *form, fragment.metadata, state, *size)
                first_row += rows

    def ranges(self, column: str) -> dict[int, tuple[int, int]]:
        """Return the range of a column of integers, or of lists of them, in each row group, by the group's first row.

        Groups whose range is not known are left out.
        """
        found, first_row = {}, 0
        for fragment in self.fragments if self._row_groups else []:
            for group in fragment.row_groups:
                if is_list(self.schema.field(column).type):
                    statistics = _statistics(group.metadata, self._stored_name(fragment.metadata, column))
                else:
                    statistics = (group.statistics or {}).get(column) or {}
                if "min" in statistics and "max" in statistics:
                    found[first_row] = int(statistics["min"]), int(statistics["max"])
                first_row += group.num_rows
        return found

    def _stored_name(self, metadata: pq.FileMetaData, column: str) -> str:
        """Return the name by which Parquet knows a column; for one of lists, that of its items: items.list.element."""
        if not is_list(self.schema.field(column).type):
            return column
        stored = [metadata.schema.column(j) for j in range(metadata.num_columns)]
        items = [c.path for c in stored if c.max_repetition_level and c.path.startswith(f"{column}.")]
        return str(min(items, key=len))  # others would be of a column whose name goes on after the same dot

    def minimum_maximum(self, column: str) -> tuple[Any, Any] | None:
        """Return the range of a column from the row groups' statistics; None if a row group has none."""
        lows, highs = [], []
        for fragment in self.fragments if self._row_groups else []:  # _row_groups reads and checks the footers
            for group in fragment.row_groups:
                statistics = (group.statistics or {}).get(column)
                if not statistics or "min" not in statistics:
                    return None
                lows.append(statistics["min"])
                highs.append(statistics["max"])
        return (min(lows), max(highs)) if lows else None


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


def _statistics(group: pq.RowGroupMetaData, name: str) -> dict[str, Any]:
    """Return the smallest and the largest value of a stored column in a row group, if they are known."""
    columns = [group.column(j) for j in range(group.num_columns)]
    found = next(c.statistics for c in columns if c.path_in_schema == name)
    return {"min": found.min, "max": found.max} if found is not None and found.has_min_max else {}


def _bytes(kind: pa.DataType) -> int:
    """Return the approximate size of a value of this type in memory."""
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 16
