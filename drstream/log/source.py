"""From files and streams to parts: the row groups of Parquet files, or segments of 131,072 rows.

A part is the unit of parallel work and of merging. Everything that differs between kinds of sources is in this file.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drstream.errors import LogError, MissingFileError, near

SEGMENT = 131_072
HOLD_BYTES = 1 << 30
DECODE_BYTES = 1 << 26  # of a row group at a time, in each thread
IPC_MAGIC = b"ARROW1"


class Part(Protocol):
    """Some consecutive rows of a log."""

    @property
    def first_row(self) -> int:
        """Its number in the log."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def place(self) -> str:
        """For messages: where these rows stand."""

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Record batches in order, of at most so many rows; by default as is fastest."""


class Source(Protocol):
    name: str
    schema: pa.Schema

    @property
    def rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""

    def parts(self, columns: Sequence[str], filter: ds.Expression | None = None) -> Iterator[Part]:
        """The parts in order. Parts whose statistics exclude the filter may be left out; rows are not filtered."""


def open_source(source: Any) -> Source:
    """Anything that `drs.Log` takes."""
    if isinstance(source, str | os.PathLike):
        return _open_paths(os.fspath(source))
    if isinstance(source, pa.Table):
        return TableSource(source, "table")
    if isinstance(source, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([source]), "record batch")
    if isinstance(source, ds.Dataset):
        return _open_dataset(source)
    if isinstance(source, pa.RecordBatchReader):
        return StreamSource(lambda: source, "record batch reader", source.schema, one_shot=True)
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return _open_paths(*(os.fspath(s) for s in source))
    if hasattr(source, "__arrow_c_stream__"):
        return _open_stream(source)
    raise LogError(
        f"cannot read a log from {type(source).__name__}: pass a path, a list of paths, a glob, a directory, "
        "a pyarrow Table, Dataset or RecordBatchReader, or an object with __arrow_c_stream__ (polars, pandas, duckdb)"
    )


# Parquet


@dataclass
class RowGroup:
    """One row group of a Parquet file."""

    path: str
    filesystem: pa.fs.FileSystem
    index: int
    first_row: int
    rows: int
    columns: tuple[str, ...]
    constants: dict[str, pa.Scalar]  # the columns that the partitioned path gives
    dictionaries: tuple[str, ...]  # text columns, cheaper to decode as dictionaries
    metadata: pq.FileMetaData  # of the file, else read again for each row group
    row_bytes: int  # about what a decoded row takes

    @property
    def place(self) -> str:
        return f"row group {self.index} of {self.path}"

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        stored = [name for name in self.columns if name not in self.constants]
        rows = rows or max(1, DECODE_BYTES // self.row_bytes)
        try:
            options = {"metadata": self.metadata, "read_dictionary": self.dictionaries}
            with _open_parquet(self.path, self.filesystem, **options) as file:
                if rows >= self.rows:  # a third faster than in batches, for 20 columns
                    whole = file.read_row_group(self.index, columns=stored, use_threads=False)
                    batches = iter(whole.to_batches())
                else:
                    batches = file.iter_batches(rows, row_groups=[self.index], columns=stored, use_threads=False)
                for batch in batches:
                    yield self._with_constants(batch)
        except (pa.ArrowException, OSError) as error:
            raise LogError(
                f"cannot read {self.place}: {_one_line(error)}. The file is damaged: write it anew"
            ) from None

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

    @cached_property
    def _row_counts(self) -> list[list[int]]:
        """Rows of each row group of each file; reads every footer once and compares the schemas."""
        counts = []
        for fragment in self.fragments:
            try:
                counts.append([group.num_rows for group in fragment.row_groups])
                self._compare(fragment)
            except (pa.ArrowException, OSError) as error:
                raise _unreadable(fragment.path, error) from None
        return counts

    def _compare(self, fragment: ds.ParquetFileFragment) -> None:
        constants = ds.get_partition_keys(fragment.partition_expression)
        for wanted in self.schema:
            if wanted.name in constants:
                continue
            index = fragment.physical_schema.get_field_index(wanted.name)
            found = fragment.physical_schema.field(index).type if index >= 0 else None
            if found != wanted.type:
                raise LogError(
                    f"files differ: column {wanted.name!r} is {wanted.type} in {self.fragments[0].path}, "
                    f"but {'missing' if found is None else found} in {fragment.path}. "
                    "Give files of one schema, or a pyarrow dataset with the schema you want"
                )

    @property
    def rows(self) -> int:
        return sum(map(sum, self._row_counts))

    def parts(self, columns: Sequence[str], filter: ds.Expression | None = None) -> Iterator[RowGroup]:
        row_bytes = sum(_bytes(self.schema.field(n).type) for n in columns) or 1
        text = tuple(n for n in columns if pa.types.is_string(self.schema.field(n).type))
        first_row = 0
        for fragment, counts in zip(self.fragments, self._row_counts, strict=True):
            constants = {
                name: pa.scalar(value, self.schema.field(name).type)
                for name, value in ds.get_partition_keys(fragment.partition_expression).items()
                if name in columns
            }
            kept = range(len(counts))
            if filter is not None:
                groups = fragment.split_by_row_group(filter=filter, schema=self.schema)
                kept = {group.id for part in groups for group in part.row_groups}  # type: ignore[assignment]
            for index, rows in enumerate(counts):
                if index in kept and rows:
                    where = fragment.path, self.filesystem, index, first_row, rows
                    yield RowGroup(*where, tuple(columns), constants, text, fragment.metadata, row_bytes)
                first_row += rows

    def minimum_maximum(self, column: str) -> tuple[Any, Any] | None:
        """From the row groups' statistics; None where any lacks them."""
        lows, highs = [], []
        for fragment in self.fragments if self._row_counts else []:  # which reads and checks the footers
            for group in fragment.row_groups:
                statistics = (group.statistics or {}).get(column)
                if not statistics or "min" not in statistics:
                    return None
                lows.append(statistics["min"])
                highs.append(statistics["max"])
        return (min(lows), max(highs)) if lows else None


def _bytes(kind: pa.DataType) -> int:
    """What a value of this type takes in memory, about."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _bytes(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 64 * _bytes(kind.value_type)
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 16


def _open_parquet(path: str, filesystem: pa.fs.FileSystem, **options: Any) -> pq.ParquetFile:
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        return pq.ParquetFile(path, memory_map=True, **options)
    return pq.ParquetFile(filesystem.open_input_file(path), pre_buffer=True, **options)


# Tables: in memory, or Arrow IPC files mapped into it


@dataclass
class Segment:
    """Consecutive rows of a table or a stream, already in memory."""

    table: pa.Table
    first_row: int
    place: str

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=rows)


class TableSource:
    def __init__(self, table: pa.Table, name: str, place: str = "") -> None:
        self.table = table
        self.name = name
        self.place = place
        self.schema = table.schema

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def parts(self, columns: Sequence[str], filter: ds.Expression | None = None) -> Iterator[Segment]:
        table = self.table.select(list(columns))
        for start in range(0, self.rows, SEGMENT):
            yield Segment(table.slice(start, SEGMENT), start, self.place)


# Streams


@dataclass
class StreamSource:
    """Record batches that arrive one after the other; `open` starts again, unless the stream can be read once."""

    open: Callable[[], pa.RecordBatchReader]
    name: str
    schema: pa.Schema
    one_shot: bool = False
    spent: bool = field(default=False, init=False)
    rows: int | None = field(default=None, init=False)

    def parts(self, columns: Sequence[str], filter: ds.Expression | None = None) -> Iterator[Segment]:
        if self.spent:
            raise LogError(
                f"this log was read from a {self.name}, which can be read only once. "
                "Pass a pyarrow Table (reader.read_all()), a Parquet path or a pyarrow dataset to read it again"
            )
        self.spent = self.one_shot
        first_row, held, rows = 0, [], 0
        try:
            for batch in self.open():
                batch = batch.select(list(columns))
                while rows + batch.num_rows >= SEGMENT:
                    held.append(batch.slice(0, SEGMENT - rows))
                    batch = batch.slice(SEGMENT - rows)
                    yield Segment(pa.Table.from_batches(held), first_row, "")
                    first_row, held, rows = first_row + SEGMENT, [], 0
                if batch.num_rows:
                    held.append(batch)
                    rows += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise LogError(f"cannot read the {self.name} after row {first_row + rows}: {_one_line(error)}") from None
        if held:
            yield Segment(pa.Table.from_batches(held), first_row, "")

    def held(self) -> Source:
        """A source to look at before the pass proper; a stream that can be read once is held in memory for it."""
        if not self.one_shot or self.spent:
            return self
        batches, size = [], 0
        for batch in self.open():
            batches.append(batch)
            size += batch.nbytes
            if size > HOLD_BYTES:
                raise LogError(
                    f"the labels of a {self.name} are not known before it is read, and it is over "
                    f"{HOLD_BYTES >> 30} GiB: pass them with actions=, or pass a Parquet path"
                )
        table = pa.Table.from_batches(batches, self.schema)
        self.open = table.to_reader
        return TableSource(table, self.name)


def _open_stream(source: Any) -> StreamSource:
    """The first reader gives the schema and serves the first pass; later passes ask the object again."""
    name = f"{type(source).__module__.split('.')[0]} {type(source).__name__}"

    def fresh() -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(source)
        except Exception as error:
            raise LogError(
                f"the {name} gave no Arrow stream: {_one_line(error)}. If it can be read only once, "
                "pass a pyarrow Table or a Parquet path instead"
            ) from None

    first = [fresh()]
    return StreamSource(lambda: first.pop() if first else fresh(), name, first[0].schema)


def _open_dataset(dataset: ds.Dataset) -> Source:
    plain_parquet = isinstance(dataset, ds.FileSystemDataset) and isinstance(dataset.format, ds.ParquetFileFormat)
    if plain_parquet and not getattr(dataset, "_scan_options", None):
        return ParquetSource(dataset, "dataset")
    return StreamSource(lambda: dataset.scanner().to_reader(), "dataset", dataset.schema)


# Paths


def _open_paths(*names: str) -> Source:
    name = names[0] if len(names) == 1 else f"{len(names)} paths"
    paths = [path for n in names for path in _expand(n)]
    if not paths:
        raise MissingFileError(f"no file matches {name!r}")
    if all(_is_ipc(path) for path in paths):
        return TableSource(_map_ipc(paths), name, place=name)
    try:
        target: Any = paths[0] if len(paths) == 1 else paths
        dataset = ds.dataset(target, format="parquet", partitioning="hive")
        if not dataset.files:
            raise MissingFileError(f"there is no Parquet file in {name!r}")
        return ParquetSource(dataset, name)
    except FileNotFoundError as error:
        raise MissingFileError(f"no such file: {_one_line(error)}") from None
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(name, error) from None


def _expand(name: str) -> list[str]:
    """The files that a name means. A directory means its *.parquet files; if it has none, Arrow looks for them."""
    if "://" in name:
        return [name]
    if set("*?[") & set(name) and not os.path.exists(name):
        return sorted(glob.glob(name, recursive=True))
    if not os.path.exists(name):
        folder = os.path.dirname(name) or "."
        beside = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        hint = near(os.path.basename(name), beside) if beside else f"there is no folder {folder!r} either"
        raise MissingFileError(f"no such file or directory: {name!r}; {hint}")
    if os.path.isdir(name):
        return _parquet_files(name) or [name]
    return [name]


def _parquet_files(folder: str) -> list[str]:
    """In order; not those of folders like _temporary, which hold unfinished work."""
    found = glob.glob(os.path.join(glob.escape(folder), "**", "*.parquet"), recursive=True)
    return sorted(f for f in found if not re.search(r"(^|[/\\])_", os.path.relpath(f, folder)))


def _is_ipc(path: str) -> bool:
    if "://" in path or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(IPC_MAGIC)) == IPC_MAGIC


def _map_ipc(paths: list[str]) -> pa.Table:
    tables = []
    for path in paths:
        try:
            tables.append(pa.ipc.open_file(pa.memory_map(path)).read_all())
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error, "Arrow IPC") from None
        if tables[-1].schema != tables[0].schema:
            raise LogError(f"files differ: {path} has another schema than {paths[0]}")
    return pa.concat_tables(tables)


def _unreadable(path: str, error: Exception, kind: str = "Parquet") -> LogError:
    return LogError(f"cannot read {path} as {kind}: {_one_line(error)}. Is it a {kind} file, and complete?")


def _one_line(error: Exception) -> str:
    """Arrow's message, without what it says of the way to the error."""
    return re.sub(r"^.*input source '[^']*': ", "", " ".join(str(error).split())).rstrip(".")
