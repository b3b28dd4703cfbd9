"""Arrow columns as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.types import Bools, Floats, Ints

STORED: dict[int, np.dtype[Any]] = {  # types that NumPy has, too
    pa.float32().id: np.dtype(np.float32),
    pa.float64().id: np.dtype(np.float64),
}


def numbers(column: pa.Array) -> NDArray[Any]:
    """Return float32 and float64 as views. Smaller types become float32, which holds them exactly, others float64."""
    kind = column.type
    stored = STORED.get(kind.id)
    if stored is not None and len(column):  # takes the interpreter's lock for a shorter time than to_numpy
        found = np.frombuffer(column.buffers()[1], stored, len(column), column.offset * stored.itemsize)
        found.setflags(write=False)
        return found
    return column.cast(pa.float32() if _fits_single(kind) else pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def known_numbers(column: pa.Array, instead: Any = None) -> NDArray[Any]:
    """Return the same, with NaN for nulls; or, if `instead` is a number, with it for nulls and NaN."""
    kind = pa.float32() if _fits_single(column.type) else pa.float64()
    values = numbers(column) if not has_nulls(column) else column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
    if isinstance(instead, float) and (unknown := np.isnan(values)).any():
        values = np.where(unknown, values.dtype.type(instead), values)
    return values


def number_type(kinds: Sequence[pa.DataType]) -> np.dtype[Any]:
    """Return the type that `numbers` of such columns have together."""
    return np.dtype(np.float32 if kinds and all(map(_fits_single, kinds)) else np.float64)


def _fits_single(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(kind.bit_width <= 16)
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind) or pa.types.is_boolean(kind))


def floats(column: pa.Array) -> Floats:
    """Return a column without nulls as float64."""
    values = numbers(column)
    return values if values.dtype == np.float64 else values.astype(np.float64)


def floats_or_nan(column: pa.Array) -> Floats:
    """Return a column as float64, with NaN for nulls."""
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def has_nulls(column: pa.Array) -> bool:
    """Whether a column has nulls, be it through a null in its dictionary."""
    if isinstance(column, pa.DictionaryArray) and column.dictionary.null_count:
        return bool(nulls(column).any())
    return column.null_count > 0


def nulls(column: pa.Array) -> Bools:
    if not isinstance(column, pa.DictionaryArray):
        return column.is_null().to_numpy(zero_copy_only=False)
    found = nulls(column.indices)
    if column.dictionary.null_count:  # by index, as Arrow cannot decode a dictionary of string views
        found |= nulls(column.dictionary)[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def lengths(column: pa.Array) -> Ints:
    """Return the lengths of the lists in a column. A null has length 0, or the fixed size of its type."""
    if pa.types.is_fixed_size_list(column.type):
        return np.full(len(column), column.type.list_size)
    return column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
