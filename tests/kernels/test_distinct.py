"""The hash table of distinct integers, against Python's set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drstream.kernels.distinct import add_distinct, fill_places, find_places

pytestmark = pytest.mark.covers


def added(values, size):
    table, counts = np.zeros(size, np.uint64), np.zeros(2, np.int64)
    done = add_distinct(values, table, counts)
    found = set(table[table != 0].tolist()) | ({0} if counts[1] else set())
    assert len(found) == counts.sum()
    return done, found


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=30), st.sampled_from([2, 8, 64]))
def test_values_are_added_until_the_table_is_half_full(values, size):
    done, found = added(np.array(values, np.uint64), size)
    assert found == set(values[:done])
    if done < len(values):
        assert len(found - {0}) == size // 2
        assert values[done] not in found


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1])
def test_one_value_many_times(value):
    assert added(np.full(100, value, np.uint64), 4) == (100, {value})


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)), min_size=1, max_size=30, unique=True))
def test_places_of_values(values):
    """0 is a value like others, and what is not in the table has no place."""
    table, places = np.zeros(64, np.uint64), np.zeros(64, np.int32)
    fill_places(np.array(values, np.uint64), table, places)
    asked = [*reversed(values), *(v for v in range(12) if v not in values)]
    out = np.empty(len(asked), np.int32)
    find_places(np.array(asked, np.uint64), table, places, out)
    assert out.tolist() == [values.index(v) if v in values else -1 for v in asked]
