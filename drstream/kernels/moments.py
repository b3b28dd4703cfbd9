"""Means and co-moments of many variables at once: compensated sums, Chan's update (Chan, Golub, LeVeque 1983).

Variables are the rows of `terms`. A group is a set of variables whose covariances are needed. Group g is
`members[starts[g]:starts[g + 1]]`. Its co-moment matrix is row by row in `comoments` (upper triangle only).
"""

import numpy as np

from drstream.kernels._jit import kernel, uncounted, unordered_helper
from drstream.kernels._types import F8, F8_2, F8_IN, I8, I8_IN, void
from drstream.kernels.sums import compensated_sum, two_sum

TILE = 1024  # rows centred at a time: 8 KB a variable stays in the first-level cache


@unordered_helper
def _dot2x4(x, y, a, b, c, d):
    """Eight products that read each row once."""
    xa = 0.0
    xb = 0.0
    xc = 0.0
    xd = 0.0
    ya = 0.0
    yb = 0.0
    yc = 0.0
    yd = 0.0
    for i in range(x.shape[0]):
        xa += x[i] * a[i]
        xb += x[i] * b[i]
        xc += x[i] * c[i]
        xd += x[i] * d[i]
        ya += y[i] * a[i]
        yb += y[i] * b[i]
        yc += y[i] * c[i]
        yd += y[i] * d[i]
    return xa, xb, xc, xd, ya, yb, yc, yd


@uncounted
def add_products(terms, first, last, members, out):
    """Add the products of the members' rows to the upper triangle of their matrix, which is flat in `out`.

    Two rows at a time, each with four: where fewer are left, the last one is taken again, and not stored. So every
    product is summed in the same way, and its bits do not depend on its place in the group. Rows are sliced one by one:
    a slice of the matrix is not contiguous, and its rows would not vectorise. Nothing reads what falls below the
    diagonal.
    """
    size = members.shape[0]
    for i in range(0, size, 2):
        x = terms[members[i]][first:last]
        y = terms[members[min(i + 1, size - 1)]][first:last]
        for j in range(i, size, 4):
            a = terms[members[j]][first:last]
            b = terms[members[min(j + 1, size - 1)]][first:last]
            c = terms[members[min(j + 2, size - 1)]][first:last]
            d = terms[members[min(j + 3, size - 1)]][first:last]
            products = _dot2x4(x, y, a, b, c, d)
            for k in range(min(4, size - j)):
                out[i * size + j + k] += products[k]
                if i + 1 < size:
                    out[(i + 1) * size + j + k] += products[4 + k]


@uncounted
def _add_shift(shift, factor, members, out):
    """Chan's cross term: factor * shift shift' on the upper triangle."""
    size = members.shape[0]
    for i in range(size):
        scaled = factor * shift[members[i]]
        for j in range(i, size):
            out[i * size + j] += scaled * shift[members[j]]


@uncounted
def _chan_factor(n, m):
    return n * m / (n + m) if n > 0 else 0.0


@uncounted
def update_tile(terms, first, last, members, starts, count, sums, carries, comoments, shift):
    """Add the columns first..last, at most TILE, of the first rows of `terms`; they are left centred.

    `shift` is scratch, a number for each of these rows.
    """
    m = last - first
    n = count[0]
    for v in range(sums.shape[0]):
        x = terms[v][first:last]
        total, lost = compensated_sum(x)
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
        add_products(terms, first, last, group, out)
        _add_shift(shift, _chan_factor(n, m), group, out)
        flat += size * size
    count[0] = n + m


@kernel(void(F8_2, I8_IN, I8_IN, I8, F8, F8, F8))
def update(terms, members, starts, count, sums, carries, comoments):
    """Add the columns of `terms` (variables x rows) to a state; `terms` is left centred."""
    shift = np.empty(sums.shape[0])
    for first in range(0, terms.shape[1], TILE):
        last = min(first + TILE, terms.shape[1])
        update_tile(terms, first, last, members, starts, count, sums, carries, comoments, shift)


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
