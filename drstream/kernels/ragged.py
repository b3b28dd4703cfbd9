"""Rows of different lengths: those of event i are at starts[i]..starts[i + 1] of flat arrays."""

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import (
    F4_IN,
    F8,
    F8_2,
    F8_IN,
    F8_IN2,
    I4,
    I4_IN,
    I8,
    I8_IN,
    U8,
    U8_IN,
    float64,
    int64,
    void,
)
from drstream.kernels.observe import TOLERANCE
from drstream.kernels.random import GAMMA
from drstream.kernels.scores import TILE, exp_row
from drstream.kernels.sums import dot

S32 = np.uint64(32)
NOWHERE, TWICE = -1, -2  # instead of a position: no candidate has the key; two have the same key


@inlined
def place_of(key, table, used, mark):
    """The place in an open-addressing table that holds the key, or where it belongs. Places of other marks are free."""
    mask = np.uint64(table.shape[0] - 1)
    place = ((key * GAMMA) >> S32) & mask
    while used[place] == mark and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@kernel(int64(I8_IN, U8_IN, U8_IN, U8, I8, I4))
def locate(starts, keys, logged, table, used, out):
    """out[i] <- where event i's logged key is among its own keys, `NOWHERE` or `TWICE`. Returns the first such event.

    logged       Empty if only keys that are there twice are looked for: out is 0 then.
    table, used  Scratch, as long as a power of two that is twice the longest list. `used` is -1 everywhere.
    """
    bad = -1
    for i in range(starts.shape[0] - 1):
        first = starts[i]
        found = 0 if logged.shape[0] == 0 else NOWHERE
        for c in range(first, starts[i + 1]):
            place = place_of(keys[c], table, used, i)
            if used[place] == i:
                found = TWICE
                break
            table[place] = keys[c]
            used[place] = i
            if logged.shape[0] > 0 and keys[c] == logged[i]:
                found = c - first
        out[i] = found
        if found < 0 and bad < 0:
            bad = i
    return bad


@kernel(int64(U8_IN, U8, I8))
def index_keys(keys, table, places):
    """Put keys into a table, whose `places` are -1. Returns the first key that is there twice, or -1."""
    for i in range(keys.shape[0]):
        place = _seat(keys[i], table, places)
        if places[place] >= 0:
            return i
        table[place] = keys[i]
        places[place] = i
    return -1


@inlined
def _seat(key, table, places):
    mask = np.uint64(table.shape[0] - 1)
    place = ((key * GAMMA) >> S32) & mask
    while places[place] >= 0 and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@kernel(int64(U8_IN, U8_IN, I8_IN, I8))
def look_up(keys, table, places, out):
    """out[c] <- the index of key c, or -1. Returns the first key that the table lacks, or -1."""
    bad = -1
    for c in range(keys.shape[0]):
        found = places[_seat(keys[c], table, places)]
        out[c] = found
        if found < 0 and bad < 0:
            bad = c
    return bad


# Scores, probabilities and predictions of candidates


@kernel(void(I8_IN, F8_IN2, F8_IN2, F8_2))
def weigh(fold, x, weights, out):
    """out (n, rows) <- the weights (folds * rows, d) of an event's fold times its context, x (d, n).

    Unlike a product of matrices, an event's numbers do not depend on how many others there are.
    """
    rows = out.shape[1]
    own = np.empty(x.shape[0])
    for i in range(out.shape[0]):
        for j in range(own.shape[0]):
            own[j] = x[j, i]
        for r in range(rows):
            out[i, r] = dot(weights[fold[i] * rows + r], own)


@kernel(
    void(I8_IN, F4_IN, I8_IN, F8_IN2, F8_IN2, F8_IN, F8),
    void(I8_IN, F8_IN, I8_IN, F8_IN2, F8_IN2, F8_IN, F8),
)
def score(starts, z, fold, by_event, weights, intercepts, out):
    """out[c] <- intercept + w . z_c, plus what the context of its event adds to both.

    z         Features (M, d) of all candidates, flat.
    fold      Which weights (folds, d) and intercepts (folds) an event has.
    by_event  What contexts add, (n, 1 + d): first to the intercept, then to each weight. With one column, weights do
              not change with contexts; with none, intercepts do not, either.
    """
    d = weights.shape[1]
    w = np.empty(d)
    for i in range(starts.shape[0] - 1):
        f = fold[i]
        base = intercepts[f]
        if by_event.shape[1] > 0:
            base += by_event[i, 0]
        for j in range(d):
            w[j] = weights[f, j]
        if by_event.shape[1] > 1:
            for j in range(d):
                w[j] += by_event[i, 1 + j]
        for c in range(starts[i], starts[i + 1]):
            total = base
            for j in range(d):  # plain: sums in another order take a third longer for ten features
                total += w[j] * z[c * d + j]
            out[c] = total


@helper
def _largest(x, first, last):
    """The largest of x[first:last], and 0 or NaN: whether all of them are finite."""
    largest, poison = -np.inf, 0.0
    for c in range(first, last):
        largest = max(largest, x[c])
        poison += x[c] - x[c]
    return largest, poison


@kernel(int64(I8_IN, F8))
def softmax(starts, scores):
    """scores <- exp(scores) / their sum over the candidates of an event. Returns the first event without it, or -1."""
    scratch = np.zeros((2, TILE))  # the second row receives sums that nothing needs
    bad = -1
    for i in range(starts.shape[0] - 1):
        largest, poison = _largest(scores, starts[i], starts[i + 1])
        if bad < 0 and poison != 0.0:
            bad = i
        for c in range(starts[i], starts[i + 1]):
            scores[c] -= largest
    if bad >= 0:
        return bad
    for first in range(0, scores.shape[0], TILE):
        part = scores[first : min(first + TILE, scores.shape[0])]
        exp_row(part, scratch[0], scratch[1])
    for i in range(starts.shape[0] - 1):
        total = 0.0
        for c in range(starts[i], starts[i + 1]):
            total += scores[c]
        for c in range(starts[i], starts[i + 1]):
            scores[c] /= total
    return -1


@kernel(int64(I8_IN, F8))
def argmax(starts, scores):
    """scores <- 1 for the first of an event's largest, else 0. Returns the first event with one not finite, or -1."""
    for i in range(starts.shape[0] - 1):
        first, last = starts[i], starts[i + 1]
        largest, poison = _largest(scores, first, last)
        if poison != 0.0:
            return i
        chosen = 0.0
        for c in range(first, last):
            found = 1.0 if scores[c] == largest and chosen == 0.0 else 0.0
            scores[c] = found
            chosen += found
    return -1


@kernel(void(I8_IN, float64, F8))
def mix(starts, epsilon, pi):
    """pi <- (1 - ε) pi + ε / the number of candidates."""
    for i in range(starts.shape[0] - 1):
        random = epsilon / (starts[i + 1] - starts[i])
        for c in range(starts[i], starts[i + 1]):
            pi[c] = (1.0 - epsilon) * pi[c] + random


@kernel(void(I8_IN, I8_IN, F8))
def one_hot(starts, position, out):
    """out <- 1 for the candidate at the position, else 0."""
    for i in range(starts.shape[0] - 1):
        for c in range(starts[i], starts[i + 1]):
            out[c] = 1.0 if c - starts[i] == position[i] else 0.0


@kernel(int64(I8_IN, F8_IN, F8_IN, I4_IN, F8, F8))
def observe(starts, pi, rhat, position, logged, expected):
    """logged <- ν(a_k|x_k) and, if there are predictions, expected <- r̂(x_k, ν) = Σ ν r̂ over an event's candidates.

    Returns the first event whose probabilities are negative, NaN, or do not sum to 1, or -1.
    """
    with_model = rhat.shape[0] > 0
    for i in range(starts.shape[0] - 1):
        first, last = starts[i], starts[i + 1]
        total, negative = 0.0, 0
        for c in range(first, last):
            total += pi[c]
            negative |= pi[c] < 0.0
        if negative != 0 or not abs(total - 1.0) <= TOLERANCE:
            return i
        logged[i] = pi[first + position[i]]
        if with_model:
            value = 0.0
            for c in range(first, last):
                value += pi[c] * rhat[c]
            expected[i] = value
    return -1


@kernel(int64(I8_IN, float64, float64, I4_IN, F8, F8, I8))
def predict(starts, low, high, position, rhat, logged, clipped):
    """Hold predictions within [low, high], in place, and logged <- r̂(x_k, a_k). clipped[0] gains how many changed.

    Returns the first candidate whose prediction is not finite, or -1.
    """
    bad = 0
    for c in range(rhat.shape[0]):
        bad |= not abs(rhat[c]) < np.inf
    if bad != 0:
        c = 0
        while abs(rhat[c]) < np.inf:
            c += 1
        return c
    if low > -np.inf or high < np.inf:
        for c in range(rhat.shape[0]):
            clipped[0] += (rhat[c] < low) | (rhat[c] > high)
            rhat[c] = min(max(rhat[c], low), high)
    for i in range(starts.shape[0] - 1):
        logged[i] = rhat[starts[i] + position[i]]
    return -1


@kernel(void(I8_IN, F4_IN, F8_IN, I4_IN, F8_2, F8_2), void(I8_IN, F8_IN, F8_IN, I4_IN, F8_2, F8_2))
def choice_slopes(starts, z, pi, position, slopes, spreads):
    """For a model that takes candidates with probabilities pi: what an event says about weights of features.

    slopes[i] <- Σ pi z - z of the logged candidate (n, d), the slope of -log pi of the logged one.
    spreads[i] <- Σ pi z z' - (Σ pi z)(Σ pi z)' (n, d²), its second derivatives.
    """
    d = slopes.shape[1]
    for i in range(starts.shape[0] - 1):
        first, last = starts[i], starts[i + 1]
        mean = slopes[i]
        mean[:] = 0.0
        for c in range(first, last):
            for j in range(d):
                mean[j] += pi[c] * z[c * d + j]
        spread = spreads[i]
        for j in range(d):
            for k in range(d):
                spread[j * d + k] = -mean[j] * mean[k]
        for c in range(first, last):
            for j in range(d):
                weighted = pi[c] * z[c * d + j]
                for k in range(d):
                    spread[j * d + k] += weighted * z[c * d + k]
        logged = (first + position[i]) * d
        for j in range(d):
            mean[j] -= z[logged + j]
