"""Sums: compensated ones, and products in any order.

64 independent lanes keep the processor's vector units busy and fix the order of addition.
"""

from drstream.kernels._jit import helper, unordered_helper

LANES = 64


@helper
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


@helper
def lane_sum(x, high, low):
    """Sum of x as (sum, what rounding took from it); `high` and `low` are scratch of LANES numbers."""
    for lane in range(LANES):
        high[lane] = 0.0
        low[lane] = 0.0
    whole = x.shape[0] // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            total, error = two_sum(high[lane], x[start + lane])
            high[lane] = total
            low[lane] += error
    for i in range(whole, x.shape[0]):
        total, error = two_sum(high[i - whole], x[i])
        high[i - whole] = total
        low[i - whole] += error
    result = 0.0
    errors = 0.0
    for lane in range(LANES):
        result, error = two_sum(result, high[lane])
        errors += error + low[lane]
    return result, errors
