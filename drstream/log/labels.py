"""Action labels: the values in the action column, and their indices 0..K-1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError, parameter, phrase
from drstream.log.columns import floats_or_nan
from drstream.log.parquet import ParquetSource
from drstream.log.schema import Roles, is_string
from drstream.log.source import Source

MOST = 1_000_000  # a column with more values is an identifier, not a set of actions
SCAN_ROWS = 1 << 16


def given_labels(actions: Any, kind: pa.DataType) -> Sequence[Any]:
    """Check `actions=` of a log, a number K or the labels, and return the labels."""
    text = is_string(_values(kind))
    if isinstance(actions, str):
        raise LogError(f"{parameter('actions', actions)}: pass a list of labels, or their number")
    if isinstance(actions, Integral):
        if actions < 1 or text:
            why = "the actions are text: pass their labels" if text else "there must be at least one"
            raise LogError(f"{parameter('actions', actions)}: {why}")
        return range(int(actions))
    labels = [str(x) if text else x for x in actions]
    wrong = next((x for x in labels if not text and not isinstance(x, Integral)), None)
    if wrong is not None:
        raise LogError(f"{parameter('actions')} holds {wrong!r}, but the action column holds {kind}")
    if not labels or len(set(labels)) < len(labels):
        twice = next((x for x in labels if labels.count(x) > 1), None)
        raise LogError(f"{parameter('actions')} holds {'no label' if not labels else f'{twice!r} more than once'}")
    return labels


def find_labels(source: Source, roles: Roles, skip_bad_rows: bool) -> Sequence[Any]:
    """Return all labels of a log: 0..max for integers, else the distinct labels.

    Labels are sorted, except those of an ordered dictionary, which keep its order. Rows that will be skipped for a bad
    reward or propensity do not count.
    """
    kind = source.schema.field(roles.action).type
    if not is_string(_values(kind)):
        low, high = _range(source, roles, skip_bad_rows)
        if low < 0 or high >= MOST:
            raise LogError(
                f"action column {roles.action!r} runs from {low} to {high}: integers are taken as 0..K-1. "
                f"Pass the labels themselves with {phrase('actions=[...]', '--actions LABEL,LABEL,...')}"
            )
        return range(high + 1)
    found: dict[Any, None] = {}
    for column in _columns(source, roles, skip_bad_rows):
        found |= dict.fromkeys(_distinct(column))
        if len(found) > MOST:
            raise LogError(f"action column {roles.action!r} holds over {MOST} different values: is it an identifier?")
    if not found:
        raise _empty(skip_bad_rows)
    return list(found) if pa.types.is_dictionary(kind) and kind.ordered else sorted(found)


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _columns(source: Source, roles: Roles, skip_bad_rows: bool) -> Iterator[pa.Array]:
    """Yield the action column, batch by batch, less rows with a bad reward or propensity if these are skipped."""
    names = [roles.action]
    if skip_bad_rows:
        names += [roles.reward] if roles.propensity is None else [roles.reward, roles.propensity]
    for part in source.peek().parts(names, text=[roles.action]):
        for batch in part.batches(SCAN_ROWS):
            if skip_bad_rows:
                good = np.isfinite(floats_or_nan(batch.column(roles.reward)))
                if roles.propensity is not None:
                    p = floats_or_nan(batch.column(roles.propensity))
                    good &= (p > 0) & (p <= 1)
                batch = batch.filter(pa.array(good))
            yield batch.column(roles.action)


def _distinct(column: pa.Array) -> list[Any]:
    values = column.unique()
    if isinstance(values, pa.DictionaryArray):
        used = set(values.dictionary_decode().to_pylist())
        return [v for v in values.dictionary.to_pylist() if v is not None and v in used]
    return [v for v in values.to_pylist() if v is not None]


def _range(source: Source, roles: Roles, skip_bad_rows: bool) -> tuple[int, int]:
    if isinstance(source, ParquetSource) and not skip_bad_rows:
        known = source.minimum_maximum(roles.action)
        if known is not None:
            return int(known[0]), int(known[1])
    lows, highs = [], []
    for column in _columns(source, roles, skip_bad_rows):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if skip_bad_rows:
            column = column.filter(pc.greater_equal(column, 0))  # rows with a negative label will be skipped
        extremes = pc.min_max(column).as_py()
        if extremes["min"] is not None:
            lows.append(extremes["min"])
            highs.append(extremes["max"])
    if not lows:
        raise _empty(skip_bad_rows)
    return min(lows), max(highs)


def _empty(skip_bad_rows: bool) -> LogError:
    return LogError("the log is empty" + (", or no row of it can be used" if skip_bad_rows else ""))


def encode(column: pa.Array, labels: Sequence[Any]) -> NDArray[np.int32]:
    """Return the index of each label. An unknown label gets -1, or K or more. The column has no nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        of_dictionary = encode(column.dictionary.fill_null("" if is_string(kind.value_type) else 0), labels)
        return of_dictionary[column.indices.to_numpy(zero_copy_only=False)]
    if isinstance(labels, range):
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype == np.int32:
            return values
        if values.dtype.itemsize > 4 or values.dtype == np.uint32:
            values = np.clip(values, -1 if values.dtype.kind == "i" else 0, len(labels))
        return values.astype(np.int32)
    common = pa.large_string() if is_string(kind) else pa.int64()
    index = pc.index_in(column.cast(common, safe=False), value_set=pa.array(labels, type=common))
    return pc.fill_null(index, -1).to_numpy(zero_copy_only=False)
