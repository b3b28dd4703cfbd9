"""Opens paths, tables, datasets and streams as sources."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from drstream.errors import DrstreamError, LogError, MissingFileError, without_secrets
from drstream.sources.arrow import open_arrow
from drstream.sources.base import SameObject, Source
from drstream.sources.memory import StreamSource, TableSource
from drstream.sources.names import arrow_says, expand, is_arrow, unreadable
from drstream.sources.parquet import ParquetSource, schema_difference
from drstream.sources.remote import open_uris


def open_source(source: Any) -> Source:
    """Open a source."""
    if isinstance(source, str | os.PathLike):
        return _open_paths(os.fspath(source))
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return _open_paths(*(os.fspath(s) for s in source))
    if isinstance(source, pa.Table):
        return TableSource(source, "table", (SameObject(source),))
    if isinstance(source, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([source]), "record batch", (SameObject(source),))
    if isinstance(source, ds.Dataset):
        return _open_dataset(source)
    if isinstance(source, pa.RecordBatchReader):
        return StreamSource(lambda: source, "record batch reader", source.schema, one_shot=True, repeatable=False)
    if hasattr(source, "__arrow_c_stream__"):
        return _open_stream(source)
    if isinstance(source, Source):
        return source
    raise LogError(
        f"cannot read a log from {type(source).__name__}: pass a path, a list of paths, a glob, a directory, "
        "a pyarrow Table, Dataset or RecordBatchReader, or an object with __arrow_c_stream__ (polars, pandas, duckdb)"
    )


def _open_paths(*names: str) -> Source:
    name = without_secrets(names[0]) if len(names) == 1 else f"{len(names)} paths"
    if any("://" in one for one in names):
        return _open_uris(name, names)
    paths = [path for n in names for path in expand(n)]
    check_no_file_twice(paths)
    arrow = [path for path in paths if is_arrow(path)]
    if arrow and len(arrow) == len(paths):
        return open_arrow(paths, name)
    if arrow:
        raise LogError(f"{name} holds Parquet and Arrow files, e.g. {arrow[0]}: choose one kind, e.g. with a glob")
    try:
        target: Any = paths[0] if len(paths) == 1 else paths
        return ParquetSource(ds.dataset(target, format="parquet", partitioning="hive"), name)
    except FileNotFoundError as error:
        raise MissingFileError(f"no such file: {without_secrets(arrow_says(error))}") from None
    except DrstreamError:
        raise
    except Exception as error:  # pyarrow raises ArrowException, OSError, ValueError, UnicodeDecodeError and others
        raise unreadable(name, error) from None


def _open_uris(name: str, names: tuple[str, ...]) -> Source:
    check_no_file_twice(list(names))
    filesystem, paths = open_uris(names)
    check_no_file_twice([f"://{path}" for path in paths])
    try:
        return ParquetSource(ds.dataset(paths, filesystem=filesystem, format="parquet", partitioning="hive"), name)
    except DrstreamError:
        raise
    except Exception as error:  # as above
        raise unreadable(name, error) from None


def check_no_file_twice(paths: list[str]) -> None:
    """Raise an error if two paths are the same file, be it through a link or another spelling."""
    seen: dict[str, str] = {}
    for path in paths:
        real = path if "://" in path else os.path.realpath(path)
        if real in seen:
            names = "" if path == seen[real] else f", as {seen[real]!r} and as {path!r}"
            twice = f"the file {real!r} is given twice{names}: its events would count twice. Give it once"
            raise LogError(without_secrets(twice))
        seen[real] = path


def _open_dataset(dataset: ds.Dataset) -> Source:
    """Read row groups if all files are Parquet with the dataset's own schema, else the batches of its scanner."""
    parquet = isinstance(dataset, ds.FileSystemDataset) and isinstance(dataset.format, ds.ParquetFileFormat)
    if isinstance(dataset, ds.FileSystemDataset):
        local = isinstance(dataset.filesystem, pa.fs.LocalFileSystem)
        check_no_file_twice(dataset.files if local else [f"://{path}" for path in dataset.files])
    if parquet and not getattr(dataset, "_scan_options", None):
        source = ParquetSource(dataset, "dataset")
        try:
            if all(schema_difference(fragment, dataset.schema) is None for fragment in source.fragments):
                return source
        except (pa.ArrowException, OSError) as error:
            raise unreadable("dataset", error) from None
    return StreamSource(lambda: dataset.scanner().to_reader(), "dataset", dataset.schema, keys=(SameObject(dataset),))


def _open_stream(source: Any) -> Source:
    """Open an object with an Arrow stream. A data frame is a table. Other objects give a new stream for each pass."""
    library = type(source).__module__.split(".")[0]
    if library in ("pandas", "polars") and type(source).__name__ == "DataFrame":
        return TableSource(pa.table(source), f"{library} frame", (SameObject(source),))
    name = f"{library} {type(source).__name__}"

    def fresh() -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(source)
        except Exception as error:
            raise LogError(
                f"the {name} gave no Arrow stream: {arrow_says(error)}. If it can be read only once, "
                "pass a pyarrow Table or a Parquet path instead"
            ) from None

    first = [fresh()]  # tells the schema and serves the first pass: the object may give no second stream
    schema = first[0].schema
    known = library == "duckdb"  # duckdb gives more, and a stream that stays open would block its connection
    if known:
        first.clear()
    return StreamSource(
        lambda: first.pop() if first else fresh(), name, schema, (SameObject(source),), repeatable=known
    )
