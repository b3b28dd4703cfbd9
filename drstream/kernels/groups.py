"""Sums of terms over groups of events: buckets of hashed clusters or rows, stretches of time, and segments."""

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, I8, I8_IN, int64, void
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


@kernel(void(F8_IN2, F8_IN, I8_IN, I8_IN, I8, F8))
def divide(terms, propensity, segment, starts, filled, out):
    """Copy each event's column, and its propensity below it, to the matrix of its segment.

    The matrices stand one after the other in `out`. That of segment s is for the events starts[s]..starts[s + 1], and
    filled[s] of its columns have been filled.
    """
    rows = terms.shape[0]
    for i in range(segment.shape[0]):
        s = segment[i]
        size = starts[s + 1] - starts[s]
        place = (rows + 1) * starts[s] + filled[s]
        for v in range(rows):
            out[place] = terms[v, i]
            place += size
        out[place] = propensity[i]
        filled[s] += 1
