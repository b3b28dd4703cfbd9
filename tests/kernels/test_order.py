"""Orders by group, arrays in that order, folds of rows, and sums of products by group: against NumPy."""

import numpy as np
import pytest

from drstream import sampling
from drstream.kernels import grams, order

pytestmark = pytest.mark.covers


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "groups"), [(0, 3), (1, 1), (500, 7), (500, 900)])
def test_sort_by_group_is_stable(kind, rows, groups):
    group = np.random.default_rng(0).integers(0, groups, rows).astype(kind)
    starts, places = np.full(groups + 1, -1), np.full(rows, -1)
    order.sort_by_group(group, starts, places)
    np.testing.assert_array_equal(places, np.argsort(group, kind="stable"))
    np.testing.assert_array_equal(starts, np.searchsorted(np.sort(group), np.arange(groups + 1)))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int64, np.uint64])
def test_gather(kind):
    rng = np.random.default_rng(1)
    values, places = rng.integers(0, 100, 50).astype(kind), rng.integers(0, 50, 70)
    values.flags.writeable = False
    out = np.empty(70, kind)
    order.gather(values, places, out)
    np.testing.assert_array_equal(out, values[places])


def test_gather_of_codes():
    codes, places, out = np.array([7, -1, 9], np.int32), np.array([2, 2, 0, 1], np.int32), np.empty(4, np.int32)
    order.gather(codes, places, out)
    assert out.tolist() == [9, 9, 7, -1]


def test_gather_columns():
    rng = np.random.default_rng(2)
    matrix, places = rng.random((3, 50)), rng.permutation(50)
    out = np.full((4, 50), 9.0)
    order.gather_columns(matrix, places, out)
    np.testing.assert_array_equal(out, np.vstack([matrix[:, places], np.full(50, 9.0)]))


@pytest.mark.parametrize("count", [2, 3, 5, 7, 10, 49, 999, 1000])
def test_folds_begin_at_equal_shares(count):
    rows = np.arange(20_000 if count == 5 else 2_000, dtype=np.uint64)
    u = sampling.at_rows(11, rows)
    wanted = np.searchsorted(np.arange(count) / count, u, side="right") - 1
    np.testing.assert_array_equal(sampling.folds_at_rows(11, rows, count), wanted)


def state(groups, variables):
    return np.zeros(groups), np.zeros((groups, variables)), np.zeros((groups, variables * variables))


def upper(products, g, variables):
    return np.triu(products[g].reshape(variables, variables))


@pytest.mark.parametrize("weighted", [False, True])
def test_products_about_the_means_of_groups(weighted):
    """Three groups: of no events, of few, and of more than one tile; far from 0, where products about 0 lose digits."""
    rng = np.random.default_rng(3)
    variables, starts = 5, np.array([0, 0, 40, 40 + grams.TILE + 100])
    terms = 1e6 + rng.random((variables, starts[-1]))
    weight = rng.random(starts[-1]) * (rng.random(starts[-1]) < 0.7) if weighted else np.empty(0)
    if weighted:
        weight[-100:] = 0  # all of the last tile
    found = state(3, variables)
    grams.add_groups(terms.copy(), weight, np.sqrt(weight), starts, *found)
    for g in range(3):
        x = terms[:, starts[g] : starts[g + 1]]
        w = weight[starts[g] : starts[g + 1]] if weighted else np.ones(x.shape[1])
        assert found[0][g] == pytest.approx(w.sum(), rel=1e-14)
        mean = x @ w / w.sum() if len(w) else np.zeros(variables)
        np.testing.assert_allclose(found[1][g], mean, rtol=1e-14)
        centred = x - mean[:, None]
        wanted = np.triu((centred * w) @ centred.T)
        np.testing.assert_allclose(upper(found[2], g, variables), wanted, rtol=1e-7, atol=1e-7)


def test_products_of_parts_merge():
    rng = np.random.default_rng(4)
    terms, variables = rng.random((3, 90)), 3
    whole, first, second = state(2, 3), state(2, 3), state(2, 3)
    none = np.empty(0)
    grams.add_groups(terms.copy(), none, none, np.array([0, 0, 90]), *whole)
    grams.add_groups(terms[:, :30].copy(), none, none, np.array([0, 0, 30]), *first)
    grams.add_groups(terms[:, 30:].copy(), none, none, np.array([0, 0, 60]), *second)
    grams.merge_groups(*second, *first)
    assert first[0].tolist() == whole[0].tolist() == [0, 90]
    np.testing.assert_allclose(first[1], whole[1], rtol=1e-13)
    for g in range(2):
        np.testing.assert_allclose(upper(first[2], g, variables), upper(whole[2], g, variables), rtol=1e-12)
    before = [values.copy() for values in whole]
    grams.merge_groups(*state(2, 3), *whole)
    assert all((mine == other).all() for mine, other in zip(whole, before, strict=True))


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 50])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_transposed(rows, kind):
    x = np.random.default_rng(rows).random((rows, 3)).astype(kind)
    for to in (np.float32, np.float64):
        out = np.empty((3, rows), to)
        order.transpose(x, out)
        assert (out == x.T.astype(to)).all()
