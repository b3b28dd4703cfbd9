"""The bias mass of a multiplier c, measured on the events so far, and the largest c whose mass is at most a target.

With weights w = π/p, the mass is ε̂(c) = Σ (w - 1/c)₊ / Σ w: the share of the policy's probability that is lost where
c w > 1. Events are kept as counts and sums of w in buckets of p/π = 1/w, so that ε̂ is known exactly at the edges of
buckets. A tracker is a record STATE and two arrays of BUCKETS numbers, which `drstream.replaying.trackers` makes.
"""

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels._types import F8, F8_IN, record, void
from drstream.kernels.buckets import BUCKETS, bucket_of, lower_edge

STATE = np.dtype(
    [
        ("target", "f8"),  # largest bias mass that is allowed
        ("bound", "f8"),  # upper limit of c, at most 1
        ("weight", "f8"),  # Σ w of all events
        ("bucket", "i8"),  # the answer was last the lower edge of this bucket; BUCKETS stands for 1
        ("events_below", "f8"),  # in buckets before `bucket`
        ("weight_below", "f8"),  # Σ w in buckets before `bucket`
        ("smallest", "f8"),  # p/π of all events
    ],
    align=True,
)
TRACKER = record(STATE)


@inlined
def insert(tracker, events, weights, value, w):
    """Add an event with p/π = value and π/p = w. Values at or above the bound only count in Σ w."""
    tracker.weight += w
    tracker.smallest = min(tracker.smallest, value)
    if value < tracker.bound:
        bucket = bucket_of(value)
        events[bucket] += 1.0
        weights[bucket] += w
        if bucket < tracker.bucket:
            tracker.events_below += 1.0
            tracker.weight_below += w


@helper
def multiplier(tracker, events, weights):
    """The largest edge of a bucket whose mass is at most the target. At the smallest p/π, which may be larger, it is 0.

    The search starts at the last answer. Without any weight, the answer is the bound.
    """
    if tracker.weight == 0.0:
        return tracker.bound
    allowed = tracker.target * tracker.weight
    while tracker.bucket > 1 and tracker.weight_below - tracker.events_below / lower_edge(tracker.bucket) > allowed:
        tracker.bucket -= 1
        tracker.events_below -= events[tracker.bucket]
        tracker.weight_below -= weights[tracker.bucket]
    while tracker.bucket < BUCKETS:
        below = tracker.events_below + events[tracker.bucket]
        weight = tracker.weight_below + weights[tracker.bucket]
        if weight - below / lower_edge(tracker.bucket + 1) > allowed:
            break
        tracker.bucket += 1
        tracker.events_below = below
        tracker.weight_below = weight
    return min(tracker.bound, max(tracker.smallest, lower_edge(tracker.bucket)))


@kernel(void(TRACKER, F8, F8, F8_IN, F8))
def track(tracker, events, weights, values, out):
    """out[i] = the multiplier after values[0..i] of p/π, for `drstream.replaying.trackers`."""
    state = tracker[0]
    for i in range(values.shape[0]):
        insert(state, events, weights, values[i], 1.0 / values[i])
        out[i] = multiplier(state, events, weights)
