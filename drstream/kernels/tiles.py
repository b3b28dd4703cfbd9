"""Contexts, predictions and sets in tiles of TILE consecutive events: (tiles, d, TILE) and (tiles, K, TILE).

Event i is at place i % TILE of tile i // TILE. Within a tile, the numbers of one feature or action lie side by side, so
loops over events vectorise, and a tile fits the first-level cache. Places of the last tile without an event hold 0, or
predictions for such a context, and no action is eligible there.
"""

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._machine import scratch
from drstream.kernels._types import (
    F4_3,
    F4_IN,
    F4_IN2,
    F4_IN3,
    F8,
    F8_3,
    F8_IN,
    F8_IN2,
    F8_IN3,
    I4_IN,
    I8_IN,
    U1_3,
    U1_IN3,
    float64,
    void,
)

TILE = 64


@kernel(void(F4_IN2, F4_3), void(F8_IN2, F8_3), counted=False)
def from_rows(x, out):
    """out (tiles, d, TILE) <- contexts x (n, d)."""
    for t in range(out.shape[0]):
        first = t * TILE
        rows = min(TILE, x.shape[0] - first)
        for j in range(out.shape[1]):
            for i in range(rows):
                out[t, j, i] = x[first + i, j]
            for i in range(rows, TILE):
                out[t, j, i] = 0.0


@inlined
def add_products(weights, start, x, t, first, places, out):
    """out[i] += weights[start : start + d] @ x[t, :, i] for i from first to places - 1, four features at a time.

    They are added in order. A loop over a whole tile is faster if `places` is a constant, one over less if it is not.
    """
    features = x.shape[1]
    whole = features // 4 * 4
    for j in range(0, whole, 4):
        a, b, c, d = weights[start + j], weights[start + j + 1], weights[start + j + 2], weights[start + j + 3]
        for i in range(first, places):
            out[i] = out[i] + a * x[t, j, i] + b * x[t, j + 1, i] + c * x[t, j + 2, i] + d * x[t, j + 3, i]
    for j in range(whole, features):
        a = weights[start + j]
        for i in range(first, places):
            out[i] += a * x[t, j, i]


@inlined
def add_products_of_two(weights, start, other, x, t, out, more):
    """`add_products` for two rows of weights, which read each context once."""
    features = x.shape[1]
    places = x.shape[2]
    whole = features // 4 * 4
    for j in range(0, whole, 4):
        a, b, c, d = weights[start + j], weights[start + j + 1], weights[start + j + 2], weights[start + j + 3]
        e, f, g, h = weights[other + j], weights[other + j + 1], weights[other + j + 2], weights[other + j + 3]
        for i in range(places):
            out[i] = out[i] + a * x[t, j, i] + b * x[t, j + 1, i] + c * x[t, j + 2, i] + d * x[t, j + 3, i]
            more[i] = more[i] + e * x[t, j, i] + f * x[t, j + 1, i] + g * x[t, j + 2, i] + h * x[t, j + 3, i]
    for j in range(whole, features):
        a, e = weights[start + j], weights[other + j]
        for i in range(places):
            out[i] += a * x[t, j, i]
            more[i] += e * x[t, j, i]


@kernel(
    void(F4_IN, F4_IN, F4_IN3, F8_3),
    void(F8_IN, F8_IN, F4_IN3, F8_3),
    void(F8_IN, F8_IN, F8_IN3, F8_3),
    counted=False,
)
def affine(weights, intercept, x, out):
    """out (tiles, K, TILE) <- weights (K d, flat) times contexts + intercept, in the precision of the weights."""
    row, other = scratch(TILE, weights), scratch(TILE, weights)
    for t in range(x.shape[0]):
        for k in range(0, intercept.shape[0], 2):
            m = min(k + 1, intercept.shape[0] - 1)
            for i in range(x.shape[2]):
                row[i] = intercept[k]
                other[i] = intercept[m]
            add_products_of_two(weights, k * x.shape[1], m * x.shape[1], x, t, row, other)
            for i in range(x.shape[2]):
                out[t, k, i] = row[i]
            for i in range(x.shape[2]):
                out[t, m, i] = other[i]


@kernel(void(F8_IN3, I4_IN, F8), counted=False)
def of_actions(values, action, out):
    """out[i] <- the number of event i for its action."""
    for i in range(action.shape[0]):
        out[i] = values[i // TILE, action[i], i % TILE]


@kernel(void(F8_IN3, F8), counted=False)
def totals(values, out):
    """out[i] <- the sum over the numbers of event i."""
    for t in range(values.shape[0]):
        row = out[t * TILE : t * TILE + TILE]
        for i in range(row.shape[0]):
            row[i] = 0.0
        for k in range(values.shape[1]):
            numbers = values[t, k]
            for i in range(row.shape[0]):
                row[i] += numbers[i]


@kernel(void(I8_IN, I4_IN, U1_3), counted=False)
def from_sets(starts, actions, out):
    """out (tiles, K, TILE) <- 1 for the actions of the set of event i, actions[starts[i] : starts[i + 1]], else 0."""
    for t in range(out.shape[0]):
        for k in range(out.shape[1]):
            for i in range(TILE):
                out[t, k, i] = 0
        for i in range(t * TILE, min(t * TILE + TILE, starts.shape[0] - 1)):
            for j in range(starts[i], starts[i + 1]):
                out[t, actions[j], i % TILE] = 1


@kernel(void(F8_3, U1_IN3, float64), counted=False)
def hide(values, eligible, other):
    """Replace the numbers for actions that are not eligible."""
    for t in range(values.shape[0]):
        for k in range(values.shape[1]):
            for i in range(TILE):
                values[t, k, i] = values[t, k, i] if eligible[t, k, i] != 0 else other
