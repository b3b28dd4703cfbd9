"""Columns of lists: flat items, rows of them, and copies of rows."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from drstream.log.ragged import Ragged, flat_lists

LISTS = [[3, 1], [], [4], [1, 5, 9]]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64())])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_flat_lists_are_the_items_of_a_slice(kind: pa.DataType, first: int) -> None:
    starts, items = flat_lists(pa.array(LISTS, kind).slice(first))
    assert starts[0] == 0
    assert [items[a:b].to_pylist() for a, b in itertools.pairwise(starts)] == LISTS[first:]


def test_flat_lists_of_a_fixed_size() -> None:
    starts, items = flat_lists(pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)).slice(1))
    assert starts.tolist() == [0, 2, 4]
    assert items.to_pylist() == [3, 4, 5, 6]


def test_rows_and_copies_of_rows() -> None:
    starts, items = flat_lists(pa.array(LISTS))
    ragged = Ragged(starts, items.to_numpy())
    assert len(ragged) == len(LISTS)
    part = ragged[1:4]
    assert part.flat.tolist() == [4, 1, 5, 9]
    copy = part.take(np.array([2, 0, 1]))
    assert copy.starts.tolist() == [0, 3, 3, 4]
    assert copy.flat.tolist() == [1, 5, 9, 4]
