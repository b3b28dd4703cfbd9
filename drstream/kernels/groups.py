"""Sums of terms over groups of events: buckets of hashed clusters or rows, stretches of time, and segments."""

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8, F8_2, F8_IN2, I8_IN, int64, void
from drstream.kernels.moments import add_products
from drstream.kernels.sums import plain_sum


@kernel(void(F8_IN2, I8_IN, F8, F8_2))
def add_to_buckets(terms, bucket, counts, sums):
    """Add each event's column of `terms` to the row of its bucket in `sums`."""
    for i in range(bucket.shape[0]):
        g = bucket[i]
        counts[g] += 1.0
        for v in range(terms.shape[0]):
            sums[g, v] += terms[v, i]


@kernel(void(F8_IN2, int64, int64, I8_IN, I8_IN, F8, F8))
def add_to_stretch(terms, first, last, members, starts, sums, products):
    """Add the columns first..last of `terms` to the sums of a stretch, and their products to those of its groups."""
    for v in range(terms.shape[0]):
        sums[v] += plain_sum(terms[v][first:last])
    flat = 0
    for g in range(starts.shape[0] - 1):
        group = members[starts[g] : starts[g + 1]]
        size = group.shape[0]
        add_products(terms, first, last, group, products[flat : flat + size * size])
        flat += size * size


@kernel(void(F8_IN2, I8_IN, I8_IN, F8))
def divide_columns(terms, order, bounds, out):
    """Copy the columns order[bounds[s]:bounds[s + 1]] for each segment s: their matrices stand one after the other.

    Row by row, so that one row at a time is in cache.
    """
    rows = terms.shape[0]
    for v in range(rows):
        row = terms[v]
        for s in range(bounds.shape[0] - 1):
            first = bounds[s]
            size = bounds[s + 1] - first
            place = rows * first + v * size
            for i in range(size):
                out[place + i] = row[order[first + i]]
