"""The quantile trackers: after every insertion as NumPy has it, or within the sketch's promise."""

import math
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from drstream.errors import DrstreamError
from drstream.replaying import trackers
from drstream.replaying.trackers import ERROR, Exact, Sketch
from tests.helpers import naive_replay
from tests.helpers.passes import PLAIN

pytestmark = pytest.mark.covers

LEVELS = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 0.01, 0.05, 1 / 3]), st.floats(0, 1))
VALUES = st.lists(
    st.one_of(st.sampled_from([0.5, 1.0, 0.25, math.inf]), st.floats(2.0**-64, 1e9)), min_size=1, max_size=60
)


def by_numpy(values, q):
    return [np.quantile(values[: i + 1], q, method="inverted_cdf") for i in range(len(values))]


@given(q=LEVELS, values=VALUES)
def test_exact_equals_numpy_after_every_insertion(q, values):
    got = Exact(q).insert(values)
    assert got.tolist() == by_numpy(values, q)
    assert got.tolist() == [naive_replay.quantile(values[: i + 1], q) for i in range(len(values))]


@given(q=LEVELS, values=VALUES, bound=st.sampled_from([1.0, 0.5, 0.1]))
def test_a_bound_caps_the_quantile(q, values, bound):
    assert Exact(q, bound).insert(values).tolist() == [min(bound, v) for v in by_numpy(values, q)]


@given(q=LEVELS, values=VALUES, bound=st.sampled_from([1.0, 0.3]))
def test_sketch_keeps_its_promise_after_every_insertion(q, values, bound):
    ref = np.minimum(bound, by_numpy(values, q))
    got = Sketch(q, bound).insert(values)
    assert (got <= ref).all()
    assert (got > ref * (1 - ERROR)).all()


@given(values=VALUES)
def test_sketch_knows_the_smallest_exactly(values):
    assert Sketch(0.0).insert(values).tolist() == Exact(0.0, 1.0).insert(values).tolist()


@given(q=LEVELS, values=VALUES, more=VALUES)
def test_an_exact_tracker_turns_into_a_sketch_of_the_same_values(q, values, more):
    tracker = Exact(q, 1.0)
    tracker.insert(values)
    wanted = Sketch(q, 1.0)
    wanted.insert(values)
    assert tracker.as_sketch().insert(more).tolist() == wanted.insert(more).tolist()


def test_insertions_may_come_in_any_portions():
    values = np.random.default_rng(0).exponential(size=500)
    for kind in (Exact, Sketch):
        whole, parts = kind(0.1, 1.0), kind(0.1, 1.0)
        got = np.concatenate([parts.insert(values[:7]), parts.insert(values[7:7]), parts.insert(values[7:])])
        assert got.tolist() == whole.insert(values).tolist()


def test_rising_falling_and_equal_values():
    for values in (np.arange(1, 400.0), np.arange(400.0, 1, -1), np.full(300, 0.7), np.full(50, math.inf)):
        for q in (0.0, 0.03, 0.9, 1.0):
            assert Exact(q).insert(values).tolist() == by_numpy(values, q)


def test_values_below_the_first_bucket_are_taken_for_the_smallest():
    values = [1e-30, 1e-25, 1e-28]
    assert Sketch(1.0).insert(values).tolist() == [1e-30] * 3


def test_a_sketch_has_no_buckets_above_one():
    with pytest.raises(DrstreamError, match="bound=2"):
        Sketch(0.1, 2)


@pytest.mark.skipif(PLAIN, reason="a million insertions")
@pytest.mark.parametrize("q", [0.01, 0.5, 0.95])
def test_exact_needs_at_most_16_bytes_a_value(q):
    n = 1_000_000
    values = np.random.default_rng(1).random(n)
    tracker = Exact(q)
    for part in np.array_split(values, 100):
        tracker.insert(part)
    assert tracker.kept == n
    assert tracker.low.nbytes + tracker.high.nbytes <= 16 * n


@pytest.mark.skipif(PLAIN, reason="a million insertions")
def test_sketch_memory_is_constant():
    tracker = Sketch(0.05)
    values = np.random.default_rng(1).random(10_000)
    tracker.insert(values)
    before = tracker.low.nbytes
    tracemalloc.start()
    for _ in range(100):
        tracker.insert(values)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tracker.low.nbytes == before
    assert grown < 100_000
    assert trackers.ERROR == 1 / 128
