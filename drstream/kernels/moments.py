"""Means and co-moments of many variables at once: compensated sums, Chan's update (Chan, Golub, LeVeque 1983).

Variables are the rows of `terms`. A group is a set of variables whose covariances are wanted among each other: group g
is `members[starts[g]:starts[g + 1]]`, and its co-moment matrix stands row by row in `comoments` (upper triangle only).
"""

import numpy as np

from drstream.kernels._jit import helper, kernel, unordered_helper
from drstream.kernels._types import F8, F8_2, F8_IN, I8, I8_IN, void
from drstream.kernels.sums import LANES, lane_sum, two_sum

CHUNK = 1024  # rows centred at a time: 8 KB a variable stays in the first-level cache


@unordered_helper
def _dot(x, y):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@unordered_helper
def _dot4(x, a, b, c, d):
    """Four products with one reading of x."""
    to_a = 0.0
    to_b = 0.0
    to_c = 0.0
    to_d = 0.0
    for i in range(x.shape[0]):
        to_a += x[i] * a[i]
        to_b += x[i] * b[i]
        to_c += x[i] * c[i]
        to_d += x[i] * d[i]
    return to_a, to_b, to_c, to_d


@helper
def _add_products(terms, first, last, members, out):
    """Add the products of the members' rows to the upper triangle of their matrix, which is flat in `out`.

    Rows are sliced one by one: a slice of the matrix is not contiguous, and its rows would not vectorise.
    """
    size = members.shape[0]
    for i in range(size):
        x = terms[members[i]][first:last]
        j = i
        while j + 4 <= size:
            place = i * size + j
            a, b, c, d = _dot4(
                x,
                terms[members[j]][first:last],
                terms[members[j + 1]][first:last],
                terms[members[j + 2]][first:last],
                terms[members[j + 3]][first:last],
            )
            out[place] += a
            out[place + 1] += b
            out[place + 2] += c
            out[place + 3] += d
            j += 4
        while j < size:
            out[i * size + j] += _dot(x, terms[members[j]][first:last])
            j += 1


@helper
def _add_shift(shift, factor, members, out):
    """Chan's cross term: factor * shift shift' on the upper triangle."""
    size = members.shape[0]
    for i in range(size):
        scaled = factor * shift[members[i]]
        for j in range(i, size):
            out[i * size + j] += scaled * shift[members[j]]


@helper
def _chan_factor(n, m):
    return n * m / (n + m) if n > 0 else 0.0


@kernel(void(F8_2, I8_IN, I8_IN, I8, F8, F8, F8))
def update(terms, members, starts, count, sums, carries, comoments):
    """Add the columns of `terms` (variables x rows) to a state; `terms` is left centred."""
    variables, rows = terms.shape
    high = np.empty(LANES)
    low = np.empty(LANES)
    shift = np.empty(variables)
    for first in range(0, rows, CHUNK):
        last = min(first + CHUNK, rows)
        m = last - first
        n = count[0]
        for v in range(variables):
            x = terms[v][first:last]
            total, lost = lane_sum(x, high, low)
            mean = (total + lost) / m
            for i in range(m):
                x[i] -= mean
            shift[v] = mean - (sums[v] + carries[v]) / n if n > 0 else 0.0
            sums[v], error = two_sum(sums[v], total)
            carries[v] += error + lost
        flat = 0
        for g in range(starts.shape[0] - 1):
            group = members[starts[g] : starts[g + 1]]
            size = group.shape[0]
            out = comoments[flat : flat + size * size]
            _add_products(terms, first, last, group, out)
            _add_shift(shift, _chan_factor(n, m), group, out)
            flat += size * size
        count[0] = n + m


@kernel(void(I8_IN, I8_IN, I8, F8, F8, F8, I8_IN, F8_IN, F8_IN, F8_IN))
def merge(members, starts, count, sums, carries, comoments, count2, sums2, carries2, comoments2):
    """Add a second state to the first."""
    n = count[0]
    m = count2[0]
    if m == 0:
        return
    shift = np.empty(sums.shape[0])
    for v in range(sums.shape[0]):
        mean2 = (sums2[v] + carries2[v]) / m
        shift[v] = mean2 - (sums[v] + carries[v]) / n if n > 0 else 0.0
        sums[v], error = two_sum(sums[v], sums2[v])
        carries[v] += error + carries2[v]
    flat = 0
    for g in range(starts.shape[0] - 1):
        group = members[starts[g] : starts[g + 1]]
        size = group.shape[0]
        out = comoments[flat : flat + size * size]
        for i in range(size * size):
            out[i] += comoments2[flat + i]
        _add_shift(shift, _chan_factor(n, m), group, out)
        flat += size * size
    count[0] = n + m
