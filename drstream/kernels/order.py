"""The order of events by group, and arrays in that order."""

from drstream.kernels._jit import kernel, uncounted
from drstream.kernels._types import (
    F4,
    F4_2,
    F4_IN,
    F4_IN2,
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
    void,
)


@uncounted
def sort_events(group, first, starts, order):
    """order <- the events first, first + 1, ... by group, those of a group in their own order.

    Group g is at starts[g]..starts[g + 1].
    """
    last = starts.shape[0] - 1
    for g in range(last + 1):
        starts[g] = 0
    for i in range(group.shape[0]):
        starts[group[i] + 1] += 1
    for g in range(last):
        starts[g + 1] += starts[g]
    for i in range(group.shape[0]):
        order[starts[group[i]]] = first + i
        starts[group[i]] += 1
    for g in range(last, 0, -1):  # each start has moved to the next group's
        starts[g] = starts[g - 1]
    starts[0] = 0


@kernel(void(I8_IN, I8, I8), void(I4_IN, I8, I8))
def sort_by_group(group, starts, order):
    """The same, from event 0 on."""
    sort_events(group, 0, starts, order)


@kernel(
    void(F4_IN, I8_IN, F4),
    void(F8_IN, I8_IN, F8),
    void(I4_IN, I8_IN, I4),
    void(I4_IN, I4_IN, I4),
    void(I8_IN, I8_IN, I8),
    void(U8_IN, I8_IN, U8),
)
def gather(values, order, out):
    """out[i] <- values[order[i]]. np.take needs twice the time, an index in brackets five times."""
    for i in range(order.shape[0]):
        out[i] = values[order[i]]


@kernel(void(F8_IN2, I8_IN, F8_2))
def gather_columns(matrix, order, out):
    """out[:, i] <- matrix[:, order[i]]; rows of `out` below those of the matrix stay as they are."""
    for v in range(matrix.shape[0]):
        values = matrix[v]
        row = out[v]
        for i in range(order.shape[0]):
            row[i] = values[order[i]]


ROWS = 16  # rows transposed at a time: their numbers fill a cache line of each column


@uncounted
def transpose_rows(x, out):
    """out (d, n) <- x (n, d)."""
    rows, columns = x.shape
    whole = rows // ROWS * ROWS
    for first in range(0, whole, ROWS):
        for j in range(columns):
            row = out[j]
            for i in range(ROWS):
                row[first + i] = x[first + i, j]
    for i in range(whole, rows):
        for j in range(columns):
            out[j, i] = x[i, j]


@kernel(void(F4_IN2, F4_2), void(F8_IN2, F8_2), void(F4_IN2, F8_2), void(F8_IN2, F4_2))
def transpose(x, out):
    """out (d, n) <- x (n, d). NumPy takes twice the time."""
    transpose_rows(x, out)
