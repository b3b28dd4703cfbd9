"""Logarithmic buckets of values p/π in (0, 1), for trackers of constant size.

Bucket 0 holds values below 2**LOWEST. Then come 2**STEPS buckets for each octave up to 1. The width of a bucket is at
most ERROR times its lower edge.
"""

import math

from drstream.kernels._jit import helper

STEPS = 7
LOWEST = -64
BUCKETS = 1 + (-LOWEST << STEPS)
ERROR = 2.0**-STEPS


@helper
def bucket_of(value):
    """The bucket from the octave and the position in it. Values below 2**LOWEST are in bucket 0."""
    mantissa, exponent = math.frexp(value)  # 0.5 <= mantissa < 1
    if exponent <= LOWEST:
        return 0
    return 1 + ((exponent - 1 - LOWEST) << STEPS) + int((mantissa - 0.5) * (2 << STEPS))


@helper
def lower_edge(bucket):
    """The lower edge of a bucket >= 1. That of bucket BUCKETS, after the last one, is 1."""
    place = bucket - 1
    return math.ldexp(0.5 + (place & ((1 << STEPS) - 1)) / (2 << STEPS), int((place >> STEPS) + LOWEST + 1))
