"""Arrow columns as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.types import Bools, Floats, Ints


def numbers(column: pa.Array) -> NDArray[Any]:
    """float32 and float64 as views; smaller types become float32, which holds them exactly, others float64."""
    kind = column.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return column.to_numpy(zero_copy_only=True)
    small = (
        pa.types.is_boolean(kind) or pa.types.is_float16(kind) or (pa.types.is_integer(kind) and kind.bit_width <= 16)
    )
    return column.cast(pa.float32() if small else pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def floats(column: pa.Array) -> Floats:
    """The same as float64, for a column without nulls."""
    values = numbers(column)
    return values if values.dtype == np.float64 else values.astype(np.float64)


def floats_or_nan(column: pa.Array) -> Floats:
    """Nulls as NaN."""
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def has_nulls(column: pa.Array) -> bool:
    """Also through a null in a dictionary."""
    if isinstance(column, pa.DictionaryArray) and column.dictionary.null_count:
        return bool(nulls(column).any())
    return column.null_count > 0


def nulls(column: pa.Array) -> Bools:
    if not isinstance(column, pa.DictionaryArray):
        return column.is_null().to_numpy(zero_copy_only=False)
    found = nulls(column.indices)
    if column.dictionary.null_count:  # not decoded: Arrow decodes no dictionary of string views
        found |= nulls(column.dictionary)[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def lengths(column: pa.Array) -> Ints:
    """Of the lists in a column; where one is null, 0 or the size that its type gives."""
    if pa.types.is_fixed_size_list(column.type):
        return np.full(len(column), column.type.list_size)
    return column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
