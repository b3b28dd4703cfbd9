"""From scores to probabilities. Rows are actions and columns are events, so that inner loops run over events."""

import math

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8_2, F8_IN, I4_IN, void

LOG2_E = math.log2(math.e)
LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, so that k * LN2_HIGH is exact
LN2_LOW = 1.90821492927058770002e-10
SHIFT = 1.5 * 2.0**52 + 1023  # added to k, it leaves k + 1023, the exponent bits of 2^k, in the lowest bits
TILE = 512  # events worked on at a time: ten actions of them fit the first-level cache
SMALLEST = -700.0  # exp of a smaller number is negligible beside the largest score's exp(0) = 1


@helper
def _exp_parts(x, shift, scale):
    """exp(x - shift) for x <= shift, in two parts: x <- a polynomial's value, scale <- bits that make the power of two.

    It is 2^k times a Taylor polynomial on [-ln2/2, ln2/2], right to one unit in the last place. Unlike a call of the
    library's exp, the loop vectorises.
    """
    for i in range(x.shape[0]):
        v = max(x[i] - shift[i], SMALLEST)
        shifted = v * LOG2_E + SHIFT
        k = shifted - SHIFT
        f = (v - k * LN2_HIGH) - k * LN2_LOW
        p = f * (1 / 479001600) + 1 / 39916800
        p = p * f + 1 / 3628800
        p = p * f + 1 / 362880
        p = p * f + 1 / 40320
        p = p * f + 1 / 5040
        p = p * f + 1 / 720
        p = p * f + 1 / 120
        p = p * f + 1 / 24
        p = p * f + 1 / 6
        p = p * f + 1 / 2
        p = p * f + 1.0
        x[i] = p * f + 1.0
        scale[i] = shifted


@helper
def _softmax_tile(scores, intercept, first, last, scratch, bits):
    """Softmax of the columns first..last; scratch is 3 rows of TILE numbers, the third seen as integers by `bits`."""
    actions = scores.shape[0]
    largest = scratch[0][: last - first]
    total = scratch[1][: last - first]
    scale = scratch[2][: last - first]
    largest[:] = -np.inf
    total[:] = 0.0
    for k in range(actions):
        row = scores[k][first:last]
        for i in range(row.shape[0]):
            row[i] += intercept[k]
            total[i] += row[i] * 0.0  # NaN for a NaN or infinite score, which `max` would hide
            largest[i] = max(largest[i], row[i])
    for k in range(actions):
        row = scores[k][first:last]
        _exp_parts(row, largest, scale)
        for i in range(row.shape[0]):
            bits[i] = bits[i] << 52
        for i in range(row.shape[0]):
            row[i] *= scale[i]
            total[i] += row[i]
    for i in range(total.shape[0]):
        total[i] = 1.0 / total[i]
    for k in range(actions):
        row = scores[k][first:last]
        for i in range(row.shape[0]):
            row[i] *= total[i]


@kernel(void(F8_2, F8_IN))
def softmax(scores, intercept):
    """scores (K, n) <- exp(scores + intercept) / sum over actions. A NaN score makes its column NaN."""
    scratch = np.empty((3, TILE))
    bits = scratch[2].view(np.int64)
    for first in range(0, scores.shape[1], TILE):
        _softmax_tile(scores, intercept, first, min(first + TILE, scores.shape[1]), scratch, bits)


@helper
def _argmax_tile(scores, intercept, first, last, scratch):
    """Argmax of the columns first..last; scratch is 3 rows of TILE numbers."""
    actions = scores.shape[0]
    largest = scratch[0][: last - first]
    taken = scratch[1][: last - first]
    poison = scratch[2][: last - first]
    largest[:] = -np.inf
    taken[:] = 0.0
    poison[:] = 0.0
    for k in range(actions):
        row = scores[k][first:last]
        for i in range(row.shape[0]):
            row[i] += intercept[k]
            poison[i] += row[i] * 0.0
            largest[i] = max(largest[i], row[i])
    for k in range(actions):
        row = scores[k][first:last]
        for i in range(row.shape[0]):
            # `max` and products, not `if`: an unpredictable branch costs 25 ns an event
            chosen = (1.0 if row[i] == largest[i] else 0.0) * (1.0 - taken[i])
            taken[i] += chosen
            row[i] = chosen + poison[i]


@kernel(void(F8_2, F8_IN))
def argmax(scores, intercept):
    """scores (K, n) <- 1 for the first of the largest scores + intercept, 0 for the others; NaN for a NaN score."""
    scratch = np.empty((3, TILE))
    for first in range(0, scores.shape[1], TILE):
        _argmax_tile(scores, intercept, first, min(first + TILE, scores.shape[1]), scratch)


@kernel(void(I4_IN, F8_2))
def one_hot(choice, out):
    """out (K, n) <- 1 where the action is the choice."""
    actions, rows = out.shape
    for k in range(actions):
        row = out[k]
        for i in range(rows):
            row[i] = 1.0 if choice[i] == k else 0.0


@kernel(void(F8_2, F8_IN))
def add_column(matrix, column):
    """matrix (K, n) += column (K), e.g. intercepts."""
    for k in range(matrix.shape[0]):
        row = matrix[k]
        for i in range(row.shape[0]):
            row[i] += column[k]
