"""Compensated sums, and dot products that are summed in any order.

64 independent accumulators keep the processor's vector units busy and fix the order of addition.
"""

from drstream.kernels._jit import uncounted, unordered_helper
from drstream.kernels._machine import scratch

ACCUMULATORS = 64


@uncounted
def two_sum(a, b):
    """Knuth: a + b = total + error, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@unordered_helper
def dot(x, y):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@unordered_helper
def plain_sum(x):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
    return total


@uncounted
def compensated_sum(x):
    """The sum of x, and what rounding took from it."""
    high, low = scratch(ACCUMULATORS, x), scratch(ACCUMULATORS, x)
    for k in range(ACCUMULATORS):
        high[k] = 0.0
        low[k] = 0.0
    whole = x.shape[0] // ACCUMULATORS * ACCUMULATORS
    for start in range(0, whole, ACCUMULATORS):
        for k in range(ACCUMULATORS):
            total, error = two_sum(high[k], x[start + k])
            high[k] = total
            low[k] += error
    for i in range(whole, x.shape[0]):
        total, error = two_sum(high[i - whole], x[i])
        high[i - whole] = total
        low[i - whole] += error
    result = 0.0
    errors = 0.0
    for k in range(ACCUMULATORS):
        result, error = two_sum(result, high[k])
        errors += error + low[k]
    return result, errors
