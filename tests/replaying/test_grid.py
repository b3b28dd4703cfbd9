"""Pooling simulations with growing targets: against plain loops, and what must hold whatever the numbers are."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from drstream.replaying.grid import Shared, Tried, choose
from tests.helpers import naive_grid

CONFIDENCE = 0.9


def drawn(seed, counts, spread=1.0, share=0.3):
    """Replicates, masses and what is shared, as a grid might have them."""
    rng = np.random.default_rng(seed)
    lanes = len(counts)
    tried = [Tried(rng.normal(0.5 + 0.3 * i, spread, n), 0.02 * (i + 1) ** 1.5) for i, n in enumerate(counts)]
    roots = rng.normal(size=(lanes, lanes + 2))
    noise = roots @ roots.T * share * spread**2 / (lanes + 2) / max(sum(counts) / lanes, 1)
    overlap = rng.uniform(0, 1, (lanes, lanes)) * share
    history = (overlap + overlap.T) / 2
    np.fill_diagonal(history, 1.0)
    return tried, Shared(noise, history)


def wide(lanes, **numbers):
    return Shared(*(np.full((lanes, lanes), numbers.get(name, 0.0)) for name in ("noise", "history")))


def agree(tried, shared, learned):
    got = choose(tried, shared, learned, CONFIDENCE)
    averages, masses = [one.averages for one in tried], [one.mass for one in tried]
    wanted = naive_grid.choose(averages, masses, shared.noise, shared.history, learned, CONFIDENCE)
    assert (got.lanes, got.n) == (wanted.pop("lanes"), wanted.pop("n"))
    for name, value in wanted.items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name
    return got


@settings(max_examples=300)
@given(
    seed=st.integers(0, 10_000),
    counts=st.lists(st.sampled_from([0, 1, 1, 2, 3, 10, 60]), min_size=1, max_size=5).filter(any),
    spread=st.sampled_from([0.01, 0.3, 3.0]),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    learned=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_it_equals_plain_loops(seed, counts, spread, share, learned):
    got = agree(*drawn(seed, counts, spread, share), learned)
    if sum(counts) > 1:
        assert got.low <= got.value <= got.high
        assert got.stderr > 0


def test_all_choices_occur():
    """The comparison above is about every number of lanes."""
    spreads = (0.05, 0.2, 0.5, 1.0, 3.0)
    lanes = {agree(*drawn(seed, [3, 6, 12, 24], spreads[seed % 5], 0.2), 5.0).lanes for seed in range(100)}
    assert lanes == {1, 2, 3, 4}


@pytest.mark.parametrize("noise", [math.nan, math.inf])
def test_weights_too_large_for_a_variance_give_no_bounds(noise):
    tried, shared = drawn(0, [3, 4])
    with np.errstate(all="ignore"):
        got = choose(tried, Shared(np.full((2, 2), noise), shared.history), 1.0, CONFIDENCE)
    assert (got.lanes, got.n) == (2, 7)
    assert got.value == pytest.approx(np.mean(np.concatenate([one.averages for one in tried])))
    assert all(math.isnan(x) for x in (got.stderr, got.low, got.high))


def test_one_replicate_in_all_has_no_bounds():
    for counts, lanes in (([1], 1), ([0, 1, 0], 2), ([0, 0, 1], 3)):
        tried, shared = drawn(0, counts)
        got = choose(tried, shared, 1.0, CONFIDENCE)
        assert (got.lanes, got.n, got.value) == (lanes, 1, tried[lanes - 1].averages[0])
        assert all(math.isnan(x) for x in (got.stderr, got.low, got.high, got.slope))


def test_lanes_without_replicates_are_left_out():
    tried, shared = drawn(1, [4, 0, 9, 0])
    few = choose([tried[0], tried[2]], shared.of([0, 2]), 1.0, CONFIDENCE)
    got = choose(tried, shared, 1.0, CONFIDENCE)
    assert got.lanes == {1: 1, 2: 3}[few.lanes]
    assert (got.value, got.low, got.high, got.n) == (few.value, few.low, few.high, few.n)


@pytest.mark.parametrize("copies", [2, 4])
@pytest.mark.parametrize("replicates", [4, 10, 100])
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_copies_of_a_lane_are_no_more_than_the_lane(copies, replicates, part):
    """Their histories are the same, and so is the noise, which makes up some part of the variance. Correlations above
    0.99 are not believed, so that the interval may be narrower by up to 1 %. The noise that lanes share is known from
    all events, so with noise there are more degrees of freedom than replicates, which is about the t score only."""
    one = Tried(np.random.default_rng(replicates).normal(0.5, 1, replicates), 0.03)
    noise = part * one.averages.var(ddof=1) / replicates
    alone = choose([one], wide(1, noise=noise, history=1.0), 1.0, CONFIDENCE)
    got = choose([one] * copies, wide(copies, noise=noise, history=1.0), 1.0, CONFIDENCE)
    assert got.value == pytest.approx(alone.value)
    assert 0.99 * alone.stderr <= got.stderr <= 1.01 * alone.stderr
    if not part:
        assert 0.99 * (alone.high - alone.low) <= got.high - got.low <= 1.01 * (alone.high - alone.low)


def test_independent_lanes_are_as_good_as_one_with_all_replicates():
    rng = np.random.default_rng(3)
    values = rng.normal(0.5, 1, 400)
    lanes = [Tried(part, 0.0) for part in np.split(values, 4)]
    got = choose(lanes, Shared(np.zeros((4, 4)), np.eye(4)), 1.0, CONFIDENCE)
    assert got.lanes == 4
    assert got.value == pytest.approx(values.mean())
    assert got.stderr == pytest.approx(values.std(ddof=4) / 20, rel=0.05)


def test_a_flat_curve_has_no_bias():
    """The policy learned nothing, so that its history does not matter: the slope is 0, and its prior as well."""
    tried, shared = drawn(2, [5, 5, 5])
    got = choose(tried, shared, 0.0, CONFIDENCE)
    assert (got.slope, got.slope_error) == (0.0, 0.0)
    assert got.lanes == 3
    assert got.value - got.low == pytest.approx(got.high - got.value)


def test_a_clear_bias_is_measured_and_carried_by_the_interval():
    """The value is 1 - 4 mass. Lanes of large mass are left out, and the interval reaches up to where 1 is."""
    rng = np.random.default_rng(4)
    masses = [0.01, 0.05, 0.2]
    tried = [Tried(rng.normal(1 - 4 * mass, 0.02, 200), mass) for mass in masses]
    got = choose(tried, Shared(np.zeros((3, 3)), np.eye(3)), 10.0, CONFIDENCE)
    assert got.lanes == 1
    assert got.slope == pytest.approx(-4, abs=5 * got.slope_error)
    assert got.low < got.value < 1 < got.high
    assert got.high - got.value > got.value - got.low


def test_no_spread_at_all():
    """All replicates are alike, as without any reward: the interval has no width but what the bias may be."""
    tried = [Tried(np.full(n, 0.25), 0.02 * n) for n in (2, 4)]
    flat = choose(tried, wide(2), 0.0, CONFIDENCE)
    assert (flat.low, flat.value, flat.high) == (0.25, 0.25, 0.25)
    got = choose(tried, wide(2), 1.0, CONFIDENCE)
    assert got.lanes == 1
    assert got.low < 0.25 < got.high


@given(seed=st.integers(0, 1000), counts=st.lists(st.sampled_from([1, 2, 7]), min_size=1, max_size=4))
def test_the_order_of_replicates_does_not_matter(seed, counts):
    tried, shared = drawn(seed, counts)
    rng = np.random.default_rng(seed)
    mixed = [Tried(rng.permutation(one.averages), one.mass) for one in tried]
    got, wanted = (choose(each, shared, 1.0, CONFIDENCE) for each in (mixed, tried))
    assert got.lanes == wanted.lanes
    for name in ("value", "stderr", "low", "high", "slope"):
        assert getattr(got, name) == pytest.approx(getattr(wanted, name), rel=1e-9, abs=1e-12, nan_ok=True)


def test_what_lanes_share_widens_the_interval():
    tried, _ = drawn(5, [20, 20, 20])
    widths = []
    for share in (0.0, 0.3, 0.9):
        history = np.full((3, 3), share)
        np.fill_diagonal(history, 1.0)
        got = choose(tried, Shared(np.zeros((3, 3)), history), 0.0, CONFIDENCE)
        assert got.lanes == 3
        widths.append(got.high - got.low)
    assert widths[0] < widths[1] < widths[2]


def test_bounds_cover_at_their_level():
    """4,000 grids of three lanes that share half of their variance, without bias: 90 % hold the truth, 0.5 % is one
    standard error. Three replicates in each lane."""
    rng = np.random.default_rng(6)
    lanes, n, noise = 3, 3, 0.5
    shared = Shared(np.full((lanes, lanes), noise / n), np.eye(lanes))
    hits = []
    for _ in range(4000):
        common = rng.normal(0, math.sqrt(noise), n)
        tried = [Tried(common + rng.normal(0, math.sqrt(1 - noise), n), 0.0) for _ in range(lanes)]
        got = choose(tried, shared, 0.0, CONFIDENCE)
        hits.append(got.low <= 0 <= got.high)
    assert np.mean(hits) > 0.9 - 5 * 0.0047
