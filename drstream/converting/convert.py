"""Writes a log to a Parquet or Arrow IPC file, in one pass that checks every row."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from drstream.converting.columns import OutputColumns, plan_layout
from drstream.converting.readers import open_log
from drstream.converting.result import Conversion
from drstream.converting.target import PARQUET, check_apart, check_target
from drstream.converting.writing import CODECS, opened_writer, row_bytes
from drstream.errors import DrstreamError, LogError, because, parameter, suggest
from drstream.log import Log, Reader
from drstream.log.chunks import exact
from drstream.log.exporting import without_categories
from drstream.parameters import one_of, whole
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.running.progress import reporter
from drstream.sources.base import Part
from drstream.states.files import atomic_path

ROW_GROUP_ROWS = 1 << 17  # docs/convert.md has a provisional measurement
ROW_GROUP_BYTES = 1 << 26  # of a default row group in memory: those of wide logs have fewer rows
LEAST_ROWS = 1 << 13
AHEAD = 2  # batches that wait for the writer, for each thread


def convert(
    log: Any,
    out: str | os.PathLike[str],
    *,
    row_group_rows: int | None = None,
    columns: Sequence[str] | str | None = None,
    pack: str | None = None,
    codec: str | None = None,
    on_bad_row: str | None = None,
    format: str | None = None,
    bits: int | None = None,
    items: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Any = False,
    **options: Any,
) -> Conversion:
    """Write a log to a Parquet file, or to an Arrow IPC file that is not compressed. Every row is checked on the way.

    log         A `Log`, or what `Log` takes, or paths of text: CSV (.csv, .tsv), JSON lines (.jsonl, .ndjson, .json),
                Vowpal Wabbit's text (.vw) and dsjson (.dsjson), or Open Bandit's CSV, also compressed (.gz, .bz2,
                .zst). Rows that a filter or a split leaves out are not written.
    out         The file to write: .parquet, or .arrow, .ipc or .feather. It appears when it is complete, and replaces
                a file of that name.
    row_group_rows
                Number of rows of a row group, or of a record batch. By default 131,072, or fewer if rows are large.
    columns     Columns to write beside those with a role. By default, all columns.
    pack        Name of a column of lists that replaces the context columns. With the name "context" or "x", a log finds
                it by itself.
    codec       Compression of Parquet: "snappy" (the default), "zstd" or "none".
    on_bad_row  "error" or "skip", as in `Log`. Malformed lines of a text are bad rows, too.
    format      Format of a text: "csv", "tsv", "json", "vw", "dsjson" or "obp". By default, suffixes and beginnings of
                the files tell.
    bits        For Vowpal Wabbit's formats: features are hashed to 2^bits indices. By default 18.
    items       For Open Bandit: the file item_context.csv. By default, the one beside the log.
    threads     Number of threads that read. By default, all cores.
    progress    As in `drs.evaluate`.
    options     Roles and other parameters of `Log`, e.g. action="item", if `log` is not a `Log` yet.

    >>> import tempfile, pyarrow as pa
    >>> table = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5, 0.5], "x0": [3, 4]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     convert(table, f"{folder}/clicks.arrow", pack="context").rows
    2
    """
    path = Path(out)
    check_target(path)
    codec = _check_codec(codec, path)
    if row_group_rows is not None:
        whole("row_group_rows", row_group_rows, error=DrstreamError)
    workers = Workers.of(threads, progress=progress)
    if isinstance(log, Log):
        opened = _check_log(log, path, {**options, "format": format, "bits": bits, "items": items})
        opened = opened if on_bad_row is None else opened.with_bad_rows(on_bad_row)
    else:
        options = options if on_bad_row is None else {**options, "on_bad_row": on_bad_row}
        opened = _open(log, path, options, workers, format, bits, items)
    check_apart(path, [], opened.source.keys)
    layout = plan_layout(opened, columns, pack)
    rows = row_group_rows or _default_rows(layout.schema)
    try:
        return _write(opened, path, layout, rows, codec, workers)
    except DrstreamError:
        raise
    except OSError as error:
        raise DrstreamError(f"cannot write {path}: {because(error)}. Nothing was written") from None
    except pa.ArrowException as error:
        raise DrstreamError(
            f"cannot write {path}: {' '.join(str(error).split())}. Leave the column out with {parameter('columns')}, "
            "or choose another kind of file"
        ) from None


def _check_log(log: Log, path: Path, options: dict[str, Any]) -> Log:
    """Return a log that is open already, unless it cannot be written there. Options come too late."""
    late = next((name for name, value in options.items() if value is not None), None)
    if late in ("format", "bits", "items"):
        raise DrstreamError(f"{parameter(late)} is about text, but this log is open: pass it to drs.read_...")
    if late is not None:
        raise DrstreamError(f"{parameter(late)} is a parameter of drs.Log: pass it there")
    check_apart(path, [log.source.name] if log.source.keys else [], ())
    return log


def _open(
    log: Any, path: Path, options: dict[str, Any], workers: Workers, form: str | None, bits: int | None, items: Any
) -> Log:
    known = set(inspect.signature(Log).parameters) - {"source"}
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        own = set(inspect.signature(convert).parameters) - {"log", "out", "options"}
        raise DrstreamError(f"{unknown}= is no parameter of convert: {suggest(unknown, sorted(own | known))}")
    names = [log] if isinstance(log, str | os.PathLike) else log if isinstance(log, list | tuple) else []
    texts = [os.fspath(name) for name in names if isinstance(name, str | os.PathLike)]
    check_apart(path, texts, texts)
    found = open_log(log, form, options, bits=bits, items=items, progress=workers.progress)
    if found is not None:
        return found
    if bits is not None or items is not None:
        raise DrstreamError(f"{parameter('bits' if bits is not None else 'items')} is about text of other systems only")
    return Log(log, **options)


def _check_codec(codec: str | None, path: Path) -> str:
    if codec is None:
        return CODECS[0]
    one_of("codec", codec, CODECS, error=DrstreamError)
    if path.suffix not in PARQUET and codec != "none":
        raise DrstreamError(
            f"{parameter('codec', codec)}: {path} is not compressed, so that it can be mapped into memory. Leave "
            f"{parameter('codec')} out, or write a .parquet file"
        )
    return codec


def _default_rows(schema: pa.Schema) -> int:
    """Return a power of two."""
    rows = ROW_GROUP_ROWS
    while rows > LEAST_ROWS and rows * row_bytes(schema) > ROW_GROUP_BYTES:
        rows //= 2
    return rows


def _write(log: Log, path: Path, layout: OutputColumns, rows: int, codec: str, workers: Workers) -> Conversion:
    log = without_categories(log)  # a copy needs no features
    with_actions = log.roles.action is not None
    of_all = with_actions and bool(log.roles.propensities) and not log.spec.propensities_found
    features = log.has_candidates  # every row is checked
    reader = log.reader(
        context=True, action=with_actions, columns=layout.kept, propensities=of_all, candidates=features
    )
    skipped: Counter[str] = Counter()
    written = groups = 0
    with atomic_path(path) as unfinished:
        with ExitStack() as stack:
            tables = stack.enter_context(closing(_tables(log, reader, layout, workers, skipped)))
            for table in exact(tables, rows, pa.concat_tables):
                if not groups:
                    writer = stack.enter_context(opened_writer(unfinished, path.suffix, layout.schema, codec, table))
                writer.write(table)
                written, groups = written + table.num_rows, groups + 1
        if not groups:
            left_out = f", as all {skipped.total():,} rows are bad" if skipped else ""
            raise LogError(f"no row of the log is left to write{left_out}: {path} was not written")
        size = unfinished.stat().st_size
    first = dict(getattr(log.source, "left_out", {}))
    return Conversion(path, written, groups, size, dict(skipped), first)


def _tables(
    log: Log, reader: Reader, layout: OutputColumns, workers: Workers, skipped: Counter[str]
) -> Generator[pa.Table, None, None]:
    """Yield checked rows in order. Threads read ahead."""

    def produce(part: Part) -> Iterator[tuple[int, pa.Table | None, Counter[str]]]:
        count: Counter[str] = Counter()
        for batch in reader.batches(part, count):
            yield int(batch.rows[-1]) + 1, layout.table(batch), Counter()
        yield part.first_row + part.rows, None, count

    parts = log.parts(reader.columns)
    with (
        reporter(workers.progress, log.source_rows) as report,
        closing(execution.stream(produce, parts, workers.threads, AHEAD)) as items,
    ):
        for row, table, count in items:
            skipped += count
            if table is not None:
                yield table
            report(row)
