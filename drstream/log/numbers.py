"""Rows of columns that hold numbers and no nulls, in memory that they were read to.

An object of Arrow for each column of each part would hold the interpreter's lock for longer than all else about a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.log.memory import LINE, Lent
from drstream.types import Ints

KINDS = frozenset({pa.int32(), pa.int64(), pa.float32(), pa.float64()})  # of numbers
MOST_STARTS = 16  # that are kept: most parts of a log have one number of rows


@dataclass(frozen=True)
class Column:
    """A column of numbers, or of lists of `size` numbers each."""

    field: pa.Field
    number: np.dtype[Any]
    size: int  # 0 if it has no lists

    @property
    def row_bytes(self) -> int:
        return self.number.itemsize * (self.size or 1)


@dataclass(frozen=True, eq=False)
class Form:
    """The columns of some rows, in the order of the memory."""

    columns: tuple[Column, ...]
    _starts: dict[int, Ints] = field(default_factory=dict, repr=False)  # by number of rows

    @cached_property
    def places(self) -> dict[str, int]:
        return {column.field.name: place for place, column in enumerate(self.columns)}

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    @cached_property
    def row_bytes(self) -> list[int]:
        return [column.row_bytes for column in self.columns]

    def starts(self, rows: int) -> Ints:
        """Return where each column begins in memory for so many rows, and where the last one ends."""
        found = self._starts.get(rows)
        if found is None:
            sizes = (-(-width * rows // LINE) * LINE for width in self.row_bytes)
            found = np.array([0, *itertools.accumulate(sizes)], np.int64)
            if len(self._starts) >= MOST_STARTS:
                self._starts.clear()
            self._starts[rows] = found
        return found


def form_of(fields: Sequence[pa.Field]) -> Form | None:
    """Return the form of columns whose types alone say that they are numbers, or lists of one length; else None."""
    columns = []
    for one in fields:
        fixed = pa.types.is_fixed_size_list(one.type)
        kind, size = (one.type.value_type, one.type.list_size) if fixed else (one.type, 0)
        if kind not in KINDS or (fixed and not size):
            return None
        columns.append(Column(one, np.dtype(kind.to_pandas_dtype()), size))
    return Form(tuple(columns))


@dataclass(frozen=True)
class Numbers:
    """Some rows. Their memory is given back when nothing refers to it any more."""

    form: Form
    starts: Ints  # of columns in the memory
    memory: Lent
    rows: int

    def record_batch(self) -> pa.RecordBatch:
        """Return the rows as Arrow has them. Nothing is copied."""
        buffer = self.memory.buffer()
        arrays = [self._array(place, column, buffer) for place, column in enumerate(self.form.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.form.schema)

    def _array(self, place: int, column: Column, buffer: pa.Buffer) -> pa.Array:
        kind, rows = column.field.type, self.rows
        values = buffer.slice(int(self.starts[place]), rows * column.row_bytes)
        if column.size == 0:
            return pa.Array.from_buffers(kind, rows, [None, values], 0)
        numbers = pa.Array.from_buffers(kind.value_type, rows * column.size, [None, values], 0)
        buffers = [None]
        if not pa.types.is_fixed_size_list(kind):
            starts = np.arange(rows + 1, dtype=np.int64 if pa.types.is_large_list(kind) else np.int32) * column.size
            buffers.append(pa.py_buffer(starts))
        return pa.Array.from_buffers(kind, rows, buffers, 0, 0, [numbers])
