"""The running quantile of Algorithm 1's set Q, for one level q: exact in two heaps, or within a bound in buckets.

The quantile is min(bound, the ⌈q n⌉-th smallest of the n values inserted so far); for q = 0, it is the smallest. Values
at or above the bound need only be counted. A tracker is a record STATE and two arrays, which
`drstream.replaying.trackers` makes.
"""

import math

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import F8, F8_IN, record, void
from drstream.kernels.buckets import bucket_of, lower_edge

STATE = np.dtype(
    [
        ("q", "f8"),  # the level
        ("bound", "f8"),  # upper limit of the quantile
        ("count", "i8"),  # values inserted
        ("low", "i8"),  # values in the heap of small ones; in the sketch, values in buckets before `bucket`
        ("high", "i8"),  # values in the heap of large ones; in the sketch, values in all buckets
        ("bucket", "i8"),  # in the sketch: where the quantile was last found
        ("smallest", "f8"),  # of the values inserted
    ],
    align=True,
)
TRACKER = record(STATE)


@inlined
def rank_of(tracker):
    """⌈q n⌉, at least 1."""
    return max(1, math.ceil(tracker.q * tracker.count))


@helper
def start(tracker):
    """Forget all values. The sketch still looks first where the quantile was last found."""
    tracker.count = 0
    tracker.low = 0
    tracker.high = 0
    tracker.smallest = np.inf


# Exact: a heap of the ⌈q n⌉ smallest values with the largest on top, and one of the rest with the smallest on top. The
# first has negated values, so that both have their smallest number on top. Four children to a node: half as deep as
# with two, and the four lie side by side.


@helper
def _rise(heap, i, value):
    """Put `value` into the hole i."""
    while i > 0:
        parent = (i - 1) >> 2
        if heap[parent] <= value:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = value


@helper
def _sink(heap, size, value):
    """Put `value` into the hole at the top of a heap of this size."""
    i = 0
    child = 1
    while child + 3 < size:  # sums of comparisons are no branches, half of which would be mispredicted
        one = child + (heap[child + 1] < heap[child])
        two = child + 2 + (heap[child + 3] < heap[child + 2])
        best = two if heap[two] < heap[one] else one
        if heap[best] >= value:
            break
        heap[i] = heap[best]
        i = best
        child = 4 * i + 1
    else:
        best = child
        for other in range(child + 1, size):  # the last node may have fewer than four children
            if heap[other] < heap[best]:
                best = other
        if child < size and heap[best] < value:
            heap[i] = heap[best]
            i = best
    heap[i] = value


@inlined
def insert_exactly(tracker, low, high, value):
    tracker.count += 1
    tracker.smallest = min(tracker.smallest, value)
    if tracker.q == 0.0:  # only the smallest value matters
        return
    if value < tracker.bound:
        if tracker.low > 0 and value < -low[0]:
            value, top = -low[0], value
            _sink(low, tracker.low, -top)
        _rise(high, tracker.high, value)
        tracker.high += 1
    if tracker.low < rank_of(tracker) and tracker.high > 0:  # the rank has grown: one value moves to the low heap
        least = high[0]
        tracker.high -= 1
        _sink(high, tracker.high, high[tracker.high])
        _rise(low, tracker.low, -least)
        tracker.low += 1


@helper
def exact_quantile(tracker, low):
    if tracker.q == 0.0:
        return min(tracker.bound, tracker.smallest)
    return -low[0] if tracker.low == rank_of(tracker) else tracker.bound


# Sketch: counts in the buckets of `buckets.py`.


@helper
def clear(tracker, counts):
    """Empty the buckets from the smallest value on. They are few, because few values are far below 1."""
    if tracker.high > 0:
        counts[bucket_of(tracker.smallest) :] = 0.0


@inlined
def insert_roughly(tracker, counts, value):
    tracker.count += 1
    tracker.smallest = min(tracker.smallest, value)
    if value < tracker.bound:
        bucket = bucket_of(value)
        counts[bucket] += 1.0
        tracker.low += bucket < tracker.bucket
        tracker.high += 1


@helper
def rough_quantile(tracker, counts):
    """The lower edge of the bucket that holds the quantile. The search starts where it was last found."""
    if tracker.q == 0.0:
        return min(tracker.bound, tracker.smallest)
    rank = rank_of(tracker)
    if rank > tracker.high:
        return tracker.bound
    bucket = tracker.bucket
    below = tracker.low
    while below >= rank:
        bucket -= 1
        below -= np.int64(counts[bucket])
    while below + np.int64(counts[bucket]) < rank:
        below += np.int64(counts[bucket])
        bucket += 1
    tracker.bucket = bucket
    tracker.low = below
    return max(tracker.smallest, lower_edge(bucket)) if bucket > 0 else tracker.smallest


# The same for a sequence of values, for `drstream.replaying.trackers`.


@kernel(void(TRACKER, F8, F8, F8_IN, F8))
def track_exactly(tracker, low, high, values, out):
    """out[i] = the quantile after values[0..i]."""
    state = tracker[0]
    for i in range(values.shape[0]):
        insert_exactly(state, low, high, values[i])
        out[i] = exact_quantile(state, low)


@kernel(void(TRACKER, F8, F8_IN, F8))
def track_roughly(tracker, counts, values, out):
    state = tracker[0]
    for i in range(values.shape[0]):
        insert_roughly(state, counts, values[i])
        out[i] = rough_quantile(state, counts)
