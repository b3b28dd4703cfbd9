"""The tracker of the bias mass: after insertions, the multiplier that a search over all edges finds."""

import math
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from drstream.kernels import buckets
from drstream.replaying.trackers import ERROR, Mass
from tests.helpers import naive_replay
from tests.helpers.passes import PLAIN, not_plain

pytestmark = pytest.mark.covers

TARGETS = st.sampled_from([0.00137, 0.0109, 0.0523, 0.217, 0.613, 0.977])  # odd numbers: ties do not decide
VALUES = st.lists(
    st.one_of(st.sampled_from([0.5, 1.0, 0.25, math.inf]), st.floats(2.0**-5, 4.0)), min_size=1, max_size=25
)

bucket_of, lower_edge = (getattr(helper, "py_func", helper) for helper in (buckets.bucket_of, buckets.lower_edge))


def inverses(values):
    return np.array([1 / value for value in values])


@settings(max_examples=40 if PLAIN else 100)
@given(target=TARGETS, values=VALUES, bound=st.sampled_from([1.0, 0.3]))
def test_the_multiplier_is_the_largest_that_the_target_allows(target, values, bound):
    got = Mass(target, bound).insert(values)
    for n in {1, len(values) // 2, len(values)} - {0}:
        wanted = min(bound, naive_replay.targeted_c(inverses(values[:n]), target))
        assert math.isclose(got[n - 1], wanted, rel_tol=1e-15)  # the inverse of an inverse may be off by a bit


@given(target=TARGETS, values=VALUES)
def test_the_mass_is_at_most_the_target_and_hardly_less_than_it_could_be(target, values):
    """Without buckets: the answer is allowed, and one that is larger by the width of two of them is not."""
    c = Mass(target).insert(values)[-1]
    weights = inverses(values)
    if not any(weights):
        assert c == 1
        return
    assert 0 < c <= 1
    assert naive_replay.bias_mass(weights, c) <= target + 1e-12
    if c < 1:
        assert naive_replay.bias_mass(weights, c * (1 + 2 * ERROR)) > target


def test_by_hand():
    """w is 4, 2, 1 and 0. For 1/4 < c < 1/2 the mass is (4 - 1/c) / 7, which is 0.2 at c = 1 / 2.6 = 0.3846."""
    values = [0.25, 0.5, 1.0, math.inf]
    edge = 0.25 + math.floor((1 / 2.6 - 0.25) * 512) / 512  # 128 to an octave
    assert edge == 0.3828125
    assert Mass(0.2).insert(values)[-1] == edge
    assert Mass(1e-9).insert(values)[-1] == 0.25  # the smallest p/π loses nothing
    assert Mass(0.9).insert(values)[-1] == 1.0


def test_the_smallest_value_is_allowed_though_it_is_no_edge():
    assert Mass(1e-9).insert([0.3333]).tolist() == [0.3333]
    assert Mass(1e-9).insert([0.3333, 0.2111, 0.7]).tolist() == [0.3333, 0.2111, 0.2111]


def test_without_any_weight_the_multiplier_is_the_bound():
    assert Mass(0.01).insert([math.inf, math.inf]).tolist() == [1.0, 1.0]
    assert Mass(0.01, 0.4).insert([math.inf]).tolist() == [0.4]
    assert Mass(0.01).insert([math.inf, 0.5, math.inf]).tolist()[1:] == [0.50390625] * 2  # (1 - 0.5/c) <= 0.01


def test_values_above_one_cost_nothing_and_allow_more():
    """Five events have w = 10: 5 (10 - 1/c) <= 0.05 * 50 at c = 1 / 9.5, and <= 0.05 * 300 with 500 of w = 1/2."""
    few, many = Mass(0.05).insert([0.1] * 5)[-1], Mass(0.05).insert([0.1] * 5 + [2.0] * 500)[-1]
    assert 1 / 9.5 * (1 - ERROR) < few <= 1 / 9.5
    assert 1 / 7 * (1 - ERROR) < many <= 1 / 7


def test_values_below_the_first_bucket_count_and_the_answer_is_never_below_its_end():
    lowest = 2.0**buckets.LOWEST
    tiny = [1e-30, 1e-25]
    assert Mass(0.01).insert(tiny).tolist() == [lowest, lowest]
    tracker = Mass(0.01)
    tracker.insert([*tiny, 0.5])
    assert tracker.low[0] == 2
    assert tracker.low.sum() == 3
    assert Mass(0.01).insert([lowest])[-1] == pytest.approx(lowest / 0.99, rel=ERROR)


def test_the_edges_of_buckets():
    for value in (2.0**-64, 2.0**-63, 0.3, 0.5, 0.75, 1 - 1e-9):
        bucket = bucket_of(value)
        low, high = lower_edge(bucket), lower_edge(bucket + 1)
        assert low <= value < high
        assert high - low <= ERROR * low
        assert bucket_of(low) == bucket
    assert bucket_of(2.0**-65) == 0
    assert lower_edge(buckets.BUCKETS) == 1.0


def test_insertions_may_come_in_any_portions():
    values = np.random.default_rng(0).exponential(size=500)
    whole, parts = Mass(0.0523), Mass(0.0523)
    got = np.concatenate([parts.insert(values[:7]), parts.insert(values[7:7]), parts.insert(values[7:])])
    assert got.tolist() == whole.insert(values).tolist()


def test_the_search_goes_up_and_down():
    """The answer starts from the last one, which is now below and now above it."""
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.uniform(0.01, 0.02, 30), rng.uniform(0.5, 4, 300), rng.uniform(0.002, 0.003, 30)])
    got = Mass(0.0523).insert(values)
    assert (np.diff(got) > 0).any()
    assert (np.diff(got) < 0).any()
    for n in (30, 200, 330, 345, 360):
        assert got[n - 1] == Mass(0.0523).insert(values[:n])[-1]
        assert got[n - 1] == naive_replay.targeted_c(inverses(values[:n]), 0.0523)


@not_plain
def test_memory_is_constant():
    tracker = Mass(0.05)
    values = np.random.default_rng(1).random(10_000)
    tracker.insert(values)
    before = tracker.low.nbytes + tracker.high.nbytes
    tracemalloc.start()
    for _ in range(100):
        tracker.insert(values)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tracker.low.nbytes + tracker.high.nbytes == before
    assert grown < 100_000


@not_plain
def test_a_million_insertions_lose_nothing_to_rounding():
    """Sums below the answer are kept up by additions and subtractions. A fresh tracker of the same counts agrees."""
    rng = np.random.default_rng(2)
    values = np.exp(rng.normal(0, 2, 300_000))
    tracker, fresh = Mass(0.0109), Mass(0.0109)
    got = tracker.insert(values)
    fresh.insert(np.sort(values)[::-1])
    assert tracker.state[0].events_below == tracker.low[: tracker.state[0].bucket].sum()
    assert tracker.state[0].weight_below == pytest.approx(tracker.high[: tracker.state[0].bucket].sum(), rel=1e-9)
    assert got[-1] == min(1.0, lower_edge(fresh.state[0].bucket))
