"""Compares predictions r̂ of logged actions with rewards, by counts and sums in buckets of r̂. Tables can be merged.

Buckets are in the order of r̂. There are 32 for each power of two of the distance to a pivot. So the range of r̂ need
not be known in advance, and buckets near the pivot are as fine, relative to the distance, as those far from it.
"""

import numpy as np

from drstream.kernels._jit import kernel, uncounted
from drstream.kernels._machine import scratch
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, float64, void

OCTAVES, TO_OCTAVE, LEAST = 80, 32, -50  # powers of two from 2^LEAST on
HALF = OCTAVES * TO_OCTAVE
BUCKETS = 2 * HALF
EVENTS, PREDICTED, REWARD = 0, 1, 2  # rows of the table
PIECE = 256  # events whose buckets are found at a time


@uncounted
def _find_buckets(prediction, pivot, distance):
    """Leave the buckets' distances from the middle of the table in the bits of `distance`."""
    for i in range(prediction.shape[0]):
        distance[i] = abs(prediction[i] - pivot)
    bits = distance.view(np.int64)
    for i in range(prediction.shape[0]):  # the exponent, and the first five digits after it, are the bucket
        bits[i] = min(max((bits[i] >> 47) - ((1023 + LEAST) << 5), 0), HALF - 1)


@uncounted
def add_to_table(prediction, reward, pivot, table, sums):
    distance = scratch(PIECE, prediction)
    bits = distance.view(np.int64)
    first = 0.0
    second = 0.0
    misses = 0.0
    for start in range(0, prediction.shape[0], PIECE):
        rhat, r = prediction[start : start + PIECE], reward[start : start + PIECE]
        _find_buckets(rhat, pivot, distance)
        for i in range(rhat.shape[0]):
            bucket = HALF + bits[i] if rhat[i] >= pivot else HALF - 1 - bits[i]
            table[EVENTS, bucket] += 1.0
            table[PREDICTED, bucket] += rhat[i]
            table[REWARD, bucket] += r[i]
            above = r[i] - pivot
            first += above
            second += above * above
            miss = r[i] - rhat[i]
            misses += miss * miss
    sums[0] += prediction.shape[0]
    sums[1] += first
    sums[2] += second
    sums[3] += misses


@kernel(void(F8_2, F8, F8_IN2, F8_IN))
def merge_tables(table, sums, other_table, other_sums):
    """Add a second table, and its sums. Most of its buckets are empty."""
    for bucket in range(BUCKETS if other_sums[0] > 0.0 else 0):
        if other_table[EVENTS, bucket] > 0.0:
            for k in range(3):
                table[k, bucket] += other_table[k, bucket]
    for k in range(sums.shape[0]):
        sums[k] += other_sums[k]


@kernel(void(F8_IN, F8_IN, float64, F8_2, F8))
def tally(prediction, reward, pivot, table, sums):
    """Add events to the table (3, BUCKETS), and to sums of 1, r - pivot, its square, and (r - r̂)²."""
    add_to_table(prediction, reward, pivot, table, sums)
