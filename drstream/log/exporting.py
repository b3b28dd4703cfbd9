"""The rows of a log as record batches, tables and frames, and their number."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from drstream import sampling
from drstream.errors import LogError, parameter, suggest
from drstream.log.encoding import encoding_of
from drstream.log.finding import Found
from drstream.sources.base import Part


def names_of(log: Any, columns: Sequence[str] | str | None) -> list[str]:
    """Check `columns=` and return the names, by default those of all columns."""
    known = log.source.schema.names
    if columns is None:
        return list(known)
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in known:
            raise LogError(
                f"{parameter('columns')} names {name!r}, which is not a column of the log: {suggest(str(name), known)}"
            )
    return list(dict.fromkeys(names))


def batches_of(
    log: Any, columns: Sequence[str] | None, skipped: Counter[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """See `Log.batches`. `skipped` counts the bad rows that are left out."""
    names = names_of(log, columns)
    kinds = pa.schema([log.source.schema.field(name) for name in names], log.source.schema.metadata)
    log = without_categories(log)
    with_actions, with_features = log.roles.action is not None, log.has_candidates
    reader = log.reader(context=True, action=with_actions, columns=names, candidates=with_features)
    counts: Counter[str] = Counter() if skipped is None else skipped

    def batches() -> Iterator[pa.RecordBatch]:
        for part in log.parts(reader.columns):
            for batch in reader.batches(part, counts):
                yield _cast(batch.columns, kinds)

    return batches()


def without_categories(log: Any) -> Any:
    """Rows are as they are stored, so categories need not be found. Their context is for checks only."""
    roles = log.roles
    if not roles.categories:
        return log
    none = dict.fromkeys(roles.categories, Found((), null=False))
    return log.seen_by(encoding_of(log.source.schema, roles.context, none, roles.hashed, log.missing))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the types of the log. Text may have been read as a dictionary."""
    columns = [
        batch.column(i) if batch.column(i).type == field.type else batch.column(i).cast(field.type)
        for i, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def table_of(log: Any, columns: Sequence[str] | None) -> pa.Table:
    """See `Log.to_arrow`. If bad rows were left out, the metadata of the table counts them."""
    skipped: Counter[str] = Counter()
    names = names_of(log, columns)
    batches = list(batches_of(log, names, skipped))
    empty = log.source.schema.empty_table().select(names)
    table = pa.Table.from_batches(batches, batches[0].schema) if batches else empty
    if not skipped:
        return table
    about = {**(table.schema.metadata or {}), b"drstream": json.dumps({"skipped": dict(skipped)}).encode()}
    return table.replace_schema_metadata(about)


def frame_of(log: Any, columns: Sequence[str] | None, library: str) -> Any:
    """Return a frame of pandas or polars. If bad rows were left out, attrs of a pandas frame count them."""
    try:
        module = importlib.import_module(library)
    except ImportError:
        raise LogError(f"to_{library}() needs {library}: pip install {library}") from None
    table = table_of(log, columns)
    if library == "polars":
        return module.from_arrow(table)
    frame = table.to_pandas()
    about = (table.schema.metadata or {}).get(b"drstream")
    if about is not None:
        frame.attrs |= json.loads(about)
    return frame


def count_rows(log: Any) -> int | None:
    """Return the number of rows of a log, after its filter and splits. None if the source does not tell its own."""
    rows = log.source_rows
    if rows is None or (log.filter is None and not log.spec.splits and log.spec.stop is None):
        return rows
    reader = log.reader()
    if log.filter is None and not reader.clusters:
        return sum(_kept(log, part) for part in log.parts([log.roles.reward]))
    names = list(dict.fromkeys([*log.spec.filter_columns, *reader.clusters]))
    if not names:  # the filter is about no column
        names = log.source.schema.names[:1]
    return sum(batch.num_rows for part in log.parts(names) for batch in reader.chosen(part))


def _kept(log: Any, part: Part) -> int:
    """Return how many rows of a part splits by row number leave. Nothing is read."""
    last = part.first_row + part.rows
    rows = np.arange(part.first_row, last if log.spec.stop is None else min(last, log.spec.stop)).view(np.uint64)
    kept = np.ones(len(rows), bool)
    for split in log.spec.splits:
        kept &= split.keep(sampling.at_rows(split.seed, rows))
    return int(kept.sum())


def head_of(log: Any, rows: int) -> pa.Table:
    """See `Log.head`."""
    if rows < 0:
        raise LogError(f"head({rows}): at least 0")
    schema = log.source.schema
    found = []
    count = 0
    log = log if any(split.cluster for split in log.spec.splits) else log.with_bad_rows("error")
    reader = log.reader(columns=schema.names)  # bad rows are shown, except those whose cluster is null
    for part in log.source.parts(schema.names, log.filter):
        for batch in reader.rows(part):
            found.append(batch.select(schema.names).slice(0, rows - count))
            count += found[-1].num_rows
            if count >= rows:
                break
        if count >= rows:
            break
    plain = [pa.Table.from_batches([b]).cast(schema) for b in found]
    return pa.concat_tables(plain) if plain else schema.empty_table()
