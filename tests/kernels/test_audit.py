"""Sums of an audit over columns and neighbouring rows, against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drstream.kernels import audit

pytestmark = pytest.mark.covers
SPECIAL = np.array([-99.0, -999.0, 9999.0])
values = st.sampled_from([0.0, -0.0, 1.5, -2.0, 99.0, -99.0, -999.0, 9999.0, -9999.0, 1e6, np.nan])


@settings(deadline=None)
@given(st.lists(st.tuples(values, st.booleans(), st.integers(0, 2)), min_size=1, max_size=40))
def test_columns(rows):
    x, rewarded, group = (np.array(column) for column in zip(*rows, strict=True))
    cells, counts, low, high = np.zeros(4, np.int64), np.zeros(6, np.int64), np.array([np.inf]), np.array([-np.inf])
    audit.add_column(x, rewarded.view(np.uint8), SPECIAL, cells, counts, low, high)
    other = (x != 0) & ~np.isnan(x)
    assert cells.tolist() == [int((other == a)[rewarded == b].sum()) for a in (False, True) for b in (False, True)]
    assert counts.tolist() == [int((x == v).sum()) for v in (*SPECIAL, *-SPECIAL)]
    rest = x[~np.isin(x, SPECIAL) & ~np.isnan(x)]
    assert (low[0], high[0]) == (rest.min(initial=np.inf), rest.max(initial=-np.inf))
    table, edges = np.zeros((4, 3), np.int64), np.array([-1.0, 100.0])
    audit.add_bins(x, edges, group.astype(np.int32), table)
    bins = np.where(other, 1 + np.searchsorted(edges, x), 0)
    assert table.tolist() == [[int(((bins == b) & (group == g)).sum()) for g in range(3)] for b in range(4)]


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 2**32))
def test_products_with_neighbouring_rewards(n, seed):
    rng = np.random.default_rng(seed)
    features, reward = rng.integers(-3, 4, (n, 2)).astype(float), rng.integers(-3, 4, n).astype(float)
    group, alone = rng.integers(0, 2, n).astype(np.int32), rng.integers(0, 2, n).astype(np.uint8)
    products, squares = np.zeros((3, 2, 2)), np.zeros((3, 2, 2))
    sums, sums2 = np.zeros((2, 2)), np.zeros((2, 2))
    audit.add_lags(features, reward, group, alone, products, squares, sums, sums2)
    inside = np.array([i for i in range(1, n - 1) if not alone[i]], int)
    for g in range(2):
        rows = inside[group[inside] == g]
        assert sums[g].tolist() == features[rows].sum(axis=0).tolist()
        assert sums2[g].tolist() == (features[rows] ** 2).sum(axis=0).tolist()
        for lag in (-1, 0, 1):
            product = features[rows] * reward[rows + lag, None]
            assert products[lag + 1, g].tolist() == product.sum(axis=0).tolist()
            assert squares[lag + 1, g].tolist() == (product**2).sum(axis=0).tolist()
