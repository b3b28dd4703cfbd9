"""Sets of actions in kernels, against Python's sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drstream.kernels import sets

pytestmark = pytest.mark.covers


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


@given(LISTS, st.booleans(), st.integers(-1, 5), st.booleans())
def test_bad_sets_are_found(lists, looks, logged, small):
    starts, actions = as_arrays(lists)
    wrong, seen = np.empty(len(lists), np.uint8), np.full(5, -1)
    words = np.empty(len(lists) if small else 0, np.uint64)
    action = np.full(len(lists), logged, np.int32) if looks else np.empty(0, np.int32)
    bad = sets.judge(starts, actions, 5, action, seen, wrong, words)
    assert wrong.tolist() == [wrong_with(row, 5, logged if looks else None) for row in lists]
    assert bad == np.count_nonzero(wrong)
    if small and not bad:
        assert words.tolist() == [sum(2**a for a in row) for row in lists]


@pytest.mark.parametrize("n_actions", [1, 3, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("with_words", [False, True])
def test_bits_are_the_sets(n_actions, with_words):
    rng = np.random.default_rng(n_actions)
    mask = rng.random((20, n_actions)) < 0.5
    starts, actions = as_arrays([rng.permutation(np.flatnonzero(row)) for row in mask])
    out = np.full((-(-n_actions // 32), 20), 99, np.uint32)
    words = [sum(2 ** int(a) for a in np.flatnonzero(row)) for row in mask] if with_words and n_actions <= 64 else []
    sets.fill_bits(starts, actions, np.array(words, np.uint64), out)
    found = [[int(out[a // 32, i]) >> (a % 32) & 1 for a in range(n_actions)] for i in range(20)]
    assert np.array_equal(found, mask)


def test_even_shares_of_the_sets():
    out = np.ones(4)
    sets.add_even(*as_arrays([[0, 3], [3], [1, 3, 0, 2]]), out)
    assert out.tolist() == [1.75, 1.25, 1.25, 2.75]


def test_copies_of_sets():
    starts, actions = as_arrays([[0, 3], [3], [1, 2, 0]])
    places, out = np.array([0, 3, 5, 8]), np.empty(8, np.int32)
    sets.take_rows(starts, actions, np.array([2, 0, 2]), places, out)
    assert out.tolist() == [1, 2, 0, 0, 3, 1, 2, 0]
