"""Contexts and predictions in tiles, against NumPy. Everything here also runs as plain Python."""

import numpy as np
import pytest

from drstream.kernels import tiles
from drstream.replaying.chunks import by_event

pytestmark = pytest.mark.covers


@pytest.mark.parametrize("rows", [1, 63, 64, 130])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_in_tiles(rows, kind):
    x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(kind)
    out = np.full((-(-rows // tiles.TILE), 3, tiles.TILE), np.nan, kind)
    tiles.from_rows(x, out)
    assert (by_event(out)[:rows] == x).all()
    assert (by_event(out)[rows:] == 0).all()


@pytest.mark.parametrize("features", [0, 1, 3, 4, 9])
@pytest.mark.parametrize(("weights", "contexts"), [("f4", "f4"), ("f8", "f4"), ("f8", "f8")])
def test_products_have_the_precision_of_the_weights(features, weights, contexts):
    rng = np.random.default_rng(features)
    x = rng.standard_normal((2 * tiles.TILE, features)).astype(contexts)
    w, b = rng.standard_normal((5, features)).astype(weights), rng.standard_normal(5).astype(weights)
    tiled, out = np.empty((2, features, tiles.TILE), contexts), np.empty((2, 5, tiles.TILE))
    tiles.from_rows(x, tiled)
    tiles.affine(w.reshape(-1), b, tiled, out)
    ref = x.astype("f8") @ w.T.astype("f8") + b
    got = by_event(out)
    tolerance = 1e-5 if weights == "f4" else 1e-13
    np.testing.assert_allclose(got, ref, rtol=tolerance, atol=tolerance)
    assert (got == got.astype(weights)).all()
    action = rng.integers(0, 5, len(x)).astype(np.int32)
    logged = np.empty(len(x))
    tiles.of_actions(out, action, logged)
    assert (logged == got[np.arange(len(x)), action]).all()


@pytest.mark.parametrize("rows", [1, 63, 64, 130])
def test_sets_in_tiles(rows):
    """Places without an event have no eligible action. Numbers of other actions are replaced."""
    rng = np.random.default_rng(rows)
    mask = rng.random((rows + 5, 3)) < 0.5
    starts = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    actions = np.concatenate([rng.permutation(np.flatnonzero(row)) for row in mask]).astype(np.int32)
    out = np.full((-(-rows // tiles.TILE), 3, tiles.TILE), 7, np.uint8)
    tiles.from_sets(starts[5:], actions, out)  # of a block, whose sets need not be the first
    assert (by_event(out)[:rows] == mask[5:]).all()
    assert (by_event(out)[rows:] == 0).all()
    values = rng.standard_normal(out.shape)
    wanted = np.where(out != 0, values, 0.25)
    tiles.hide(values, out, 0.25)
    assert (values == wanted).all()
