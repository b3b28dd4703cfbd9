"""Means and co-moments of many variables at once: compensated sums, Chan's update (Chan, Golub, LeVeque 1983).

Variables are the rows of `terms`. A group is a set of variables whose covariances are needed. Group g is
`members[starts[g]:starts[g + 1]]`. Its co-moment matrix is row by row in `comoments` (upper triangle only).
A record is an array: the number of events, the sums of the variables, what rounding took from these, the co-moments,
and perhaps more.
"""

import numpy as np

from drstream.kernels._jit import kernel, uncounted, unordered_helper
from drstream.kernels._types import F8, F8_2, I8_IN, void
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
def add_shift(shift, factor, members, out):
    """Chan's cross term: factor * shift shift' on the upper triangle."""
    size = members.shape[0]
    for i in range(size):
        scaled = factor * shift[members[i]]
        for j in range(i, size):
            out[i * size + j] += scaled * shift[members[j]]


@uncounted
def chan_factor(n, m):
    return n * m / (n + m) if n > 0 else 0.0


@uncounted
def update_tile(terms, m, members, starts, count, sums, carries, comoments, shift):
    """Add the first m columns, of at most a tile, of the first rows of `terms`; they are left centred.

    `shift` is scratch, a number for each of these rows.
    """
    n = count[0]
    for v in range(sums.shape[0]):
        x = terms[v][:m]
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
        add_products(terms, 0, m, group, out)
        add_shift(shift, chan_factor(n, m), group, out)
        flat += size * size
    count[0] = n + m


@kernel(void(F8_2, I8_IN, I8_IN, F8))
def update(terms, members, starts, record):
    """Add the columns of `terms` (variables x rows) to a record."""
    variables = terms.shape[0]
    shift, tile = np.empty(variables), np.empty((variables, TILE))
    for first in range(0, terms.shape[1], TILE):
        m = min(TILE, terms.shape[1] - first)
        for v in range(variables):
            tile[v, :m] = terms[v, first : first + m]
        sums, carries, comoments = record[1:], record[1 + variables :], record[1 + 2 * variables :]
        update_tile(tile, m, members, starts, record[:1], sums[:variables], carries[:variables], comoments, shift)
