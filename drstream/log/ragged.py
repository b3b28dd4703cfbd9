"""Columns of lists whose lengths differ: where each list begins, and the items of all lists in one flat array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.types import Bools, Ints


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is values[starts[i]:starts[i + 1]]. Several flat arrays may share the starts."""

    starts: Ints  # one more than there are rows; the first need not be 0
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice) -> Ragged:
        """Return consecutive rows, without a copy."""
        start, stop, _ = rows.indices(len(self))
        return Ragged(self.starts[start : stop + 1], self.values)

    def take(self, rows: Ints) -> Ragged:
        """Return a copy of these rows."""
        starts, places = places_of(self.starts, rows)
        return Ragged(starts, self.values[places])

    @property
    def flat(self) -> NDArray[Any]:
        """The items of these rows alone."""
        return self.values[self.starts[0] : self.starts[-1]]


def flat_lists(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Return where each list begins, from 0, and all items, of a column without nulls, which may be a slice."""
    if pa.types.is_fixed_size_list(column.type):
        return np.arange(len(column) + 1, dtype=np.int64) * column.type.list_size, column.flatten()
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets - first, column.values.slice(first, last - first)


def places_of(starts: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return where these rows begin in a copy of them, and the places of their items in the flat array."""
    size = np.diff(starts)[rows]
    begin = np.concatenate([[0], np.cumsum(size)])
    return begin, np.repeat(starts[rows] - begin[:-1], size) + np.arange(begin[-1])


def repeats(starts: Ints, keys: NDArray[Any]) -> Bools:
    """Return which items have the key of an earlier item of the same list."""
    row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((keys, row))  # stable
    found = np.zeros(len(keys), bool)
    found[order[1:]] = (row[order[1:]] == row[order[:-1]]) & (keys[order[1:]] == keys[order[:-1]])
    return found
