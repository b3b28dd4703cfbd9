"""The hash table of labels, against a search through a list."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drstream.kernels.distinct import fill_places, find_places

pytestmark = pytest.mark.covers


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
