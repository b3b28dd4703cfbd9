"""Action labels: what stands in the action column, and its index 0..K-1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError
from drstream.log.schema import is_string
from drstream.log.source import ParquetSource, Source, StreamSource

MOST = 1_000_000  # more actions than this is an identifier, not a set to choose from
SCAN_ROWS = 1 << 16


def given_labels(actions: int | Sequence[Any]) -> Sequence[Any]:
    """`actions=` of a log: a number K, or the labels in the order of the policies' rows."""
    if isinstance(actions, int):
        if actions < 1:
            raise LogError(f"actions={actions}: there must be at least one")
        return range(actions)
    labels = list(actions)
    if not labels or len(set(labels)) < len(labels):
        twice = next((x for x in labels if labels.count(x) > 1), None)
        raise LogError(f"actions= holds {'no label' if not labels else f'{twice!r} more than once'}")
    return labels


def find_labels(source: Source, column: str) -> Sequence[Any]:
    """All labels of a log: 0..max for integers, else the sorted distinct ones (an ordered dictionary: its)."""
    kind = source.schema.field(column).type
    if isinstance(source, StreamSource):
        source = source.held()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        low, high = _range(source, column)
        if low < 0 or high >= MOST:
            raise LogError(
                f"action column {column!r} runs from {low} to {high}: integers are taken as 0..K-1. "
                "Pass the labels themselves with actions=[...]"
            )
        return range(high + 1)
    found: dict[Any, None] = {}
    for part in source.parts([column]):
        for batch in part.batches(SCAN_ROWS):
            found |= dict.fromkeys(_distinct(batch.column(0)))
            if len(found) > MOST:
                raise LogError(f"action column {column!r} holds over {MOST} different values: is it an identifier?")
    if not found:
        raise LogError("the log is empty")
    ordered = pa.types.is_dictionary(kind) and kind.ordered
    return list(found) if ordered else sorted(found)


def _distinct(column: pa.Array) -> list[Any]:
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else _plain(column).unique()
    return [v for v in values.to_pylist() if v is not None]


def _range(source: Source, column: str) -> tuple[int, int]:
    known = source.minimum_maximum(column) if isinstance(source, ParquetSource) else None
    if known is not None:
        return int(known[0]), int(known[1])
    lows, highs = [], []
    for part in source.parts([column]):
        for batch in part.batches(SCAN_ROWS):
            extremes = pc.min_max(batch.column(0).cast(pa.int64(), safe=False)).as_py()
            if extremes["min"] is not None:
                lows.append(extremes["min"])
                highs.append(extremes["max"])
    if not lows:
        raise LogError("the log is empty")
    return min(lows), max(highs)


def encode(column: pa.Array, labels: Sequence[Any]) -> NDArray[np.int32]:
    """Indices of the labels; -1 for one that is not among them. The column has no nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        of_dictionary = encode(column.dictionary, labels)
        return of_dictionary[column.indices.to_numpy(zero_copy_only=False)]
    if isinstance(labels, range):
        if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            return np.full(len(column), -1, np.int32)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype == np.int32:
            return values
        if values.dtype.itemsize > 4 or values.dtype == np.uint32:
            values = np.clip(values, -1 if values.dtype.kind == "i" else 0, len(labels))
        return values.astype(np.int32)
    try:
        wanted = pa.array(labels, type=pa.large_string() if is_string(kind) else None)
        index = pc.index_in(_plain(column), value_set=wanted.cast(_plain(column).type))
    except (pa.ArrowException, TypeError):  # labels of another type than the column: none of them is in it
        return np.full(len(column), -1, np.int32)
    return pc.fill_null(index, -1).to_numpy(zero_copy_only=False)


def _plain(column: pa.Array) -> pa.Array:
    """Text in one representation: not every compute function knows string views."""
    return column.cast(pa.large_string()) if is_string(column.type) else column
