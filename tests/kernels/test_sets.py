"""Sets of actions in kernels, against Python's sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drstream.kernels import sets


def as_arrays(lists):
    starts = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
    return starts, np.array([a for row in lists for a in row], np.int32)


def wrong_with(row, n_actions, logged):
    """The naive form: what is wrong with one set."""
    if not row:
        return sets.EMPTY
    if sets.NULL_ACTION in row:
        return sets.NULL
    if not set(row) <= set(range(n_actions)):
        return sets.UNKNOWN
    if len(set(row)) < len(row):
        return sets.TWICE
    return sets.GOOD if logged is None or logged in row else sets.WITHOUT


LISTS = st.lists(st.lists(st.integers(-2, 5), max_size=4), min_size=1, max_size=8)


@given(LISTS, st.booleans(), st.integers(-1, 5))
def test_bad_sets_are_found(lists, looks, logged):
    starts, actions = as_arrays(lists)
    wrong, seen = np.empty(len(lists), np.uint8), np.full(5, -1)
    action = np.full(len(lists), logged, np.int32) if looks else np.empty(0, np.int32)
    bad = sets.judge(starts, actions, 5, action, seen, wrong)
    assert wrong.tolist() == [wrong_with(row, 5, logged if looks else None) for row in lists]
    assert bad == np.count_nonzero(wrong)


@pytest.mark.parametrize("n_actions", [1, 3, 64, 65, 200])
def test_bits_are_the_sets(n_actions):
    rng = np.random.default_rng(n_actions)
    mask = rng.random((20, n_actions)) < 0.5
    starts, actions = as_arrays([rng.permutation(np.flatnonzero(row)) for row in mask])
    out = np.empty((-(-n_actions // 64), 20), np.uint64)
    sets.fill_bits(starts, actions, out)
    found = [[int(out[a // 64, i]) >> (a % 64) & 1 for a in range(n_actions)] for i in range(20)]
    assert np.array_equal(found, mask)
