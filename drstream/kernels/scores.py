"""From scores to probabilities. Rows are actions and columns are events, so that inner loops run over events.

`bits` are the eligible sets of the events (see `sets.py`); None if all events could choose any action, so that no code
is compiled for them. Scores of other actions are not looked at, and their probabilities are 0.
"""

import math

import numpy as np

from drstream.kernels._jit import inlined, kernel, uncounted
from drstream.kernels._machine import as_exponent
from drstream.kernels._types import F4_2, F8_2, F8_IN, I4_IN, U4_IN2, none, void
from drstream.kernels.sets import BIT, FIVE, THIRTY_ONE

TILE = 512  # events worked on at a time: ten actions of them fit the first-level cache
# exp of numbers <= 0, in float64 and in float32: 2^k times a Taylor polynomial on [-ln2/2, ln2/2]
LOG2_E = math.log2(math.e)
LN2_HIGH = 6.93147180369123816490e-01  # ln 2 in two parts, so that k * LN2_HIGH is exact
LN2_LOW = 1.90821492927058770002e-10
SHIFT = 1.5 * 2.0**52 + 1023  # added to k, it leaves k + 1023, the exponent bits of 2^k, in the lowest bits
SMALLEST = np.float64(-700)  # exp of a smaller number is negligible beside the largest score's exp(0) = 1
SINGLE_LOG2_E = np.float32(math.log2(math.e))
SINGLE_LN2_HIGH, SINGLE_LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
SINGLE_SHIFT, SINGLE_SMALLEST = np.float32(1.5 * 2.0**23 + 127), np.float32(-87)
SIXTH, FIFTH, FOURTH, THIRD = np.float32(1 / 720), np.float32(1 / 120), np.float32(1 / 24), np.float32(1 / 6)
HALF, ONE = np.float32(1 / 2), np.float32(1)


@inlined
def _exp(x):
    """exp(x) for x <= 0, right to one unit in the last place. Unlike a call of the library's exp, it vectorises."""
    v = max(x, SMALLEST)
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
    return (p * f + 1.0) * as_exponent(shifted)


@inlined
def _single_exp(x):
    """The same in float32, right to two units in the last place."""
    v = max(x, SINGLE_SMALLEST)
    shifted = v * SINGLE_LOG2_E + SINGLE_SHIFT
    k = shifted - SINGLE_SHIFT
    f = (v - k * SINGLE_LN2_HIGH) - k * SINGLE_LN2_LOW
    p = f * SIXTH + FIFTH
    p = p * f + FOURTH
    p = p * f + THIRD
    p = p * f + HALF
    p = p * f + ONE
    return (p * f + ONE) * as_exponent(shifted)


@uncounted
def exp_row(x, shift, total):
    """x <- exp(x - shift), for x <= shift; total gains it."""
    if x.itemsize == 4:
        for i in range(x.shape[0]):
            x[i] = _single_exp(x[i] - shift[i])
            total[i] += x[i]
    else:
        for i in range(x.shape[0]):
            x[i] = _exp(x[i] - shift[i])
            total[i] += x[i]


@inlined
def word_of(bits, k, first, last):
    """The words of the columns first..last that have action k, and its place in them."""
    a = np.uint32(k)
    return bits[a >> FIVE][first:last], a & THIRTY_ONE


@uncounted
def _add_intercepts(scores, base, intercept, bits, first, last, largest, poison):
    """Add intercepts to the columns first..last of a policy's rows, and find their largest score.

    poison[i] is NaN if a score is NaN or infinite, which `max` would hide, and 0 otherwise.
    """
    largest[:] = -np.inf
    poison[:] = 0
    for k in range(intercept.shape[0]):
        row, shift = scores[base + k][first:last], intercept[k]
        if bits is not None:
            words, place = word_of(bits, k, first, last)
            _add_intercept(row, shift, words, place, largest, poison)
        else:
            for i in range(row.shape[0]):
                row[i] += shift
                poison[i] += row[i] - row[i]
                largest[i] = max(largest[i], row[i])


@uncounted
def _add_intercept(row, intercept, words, place, largest, poison):
    """The same for one action. Scores of events that could not choose it become -inf."""
    zero, hidden = row.dtype.type(0), row.dtype.type(-np.inf)
    for i in range(row.shape[0]):
        eligible = (words[i] >> place) & BIT != 0
        score = row[i] + intercept
        seen = score if eligible else zero
        poison[i] += seen - seen
        row[i] = score if eligible else hidden
        largest[i] = max(largest[i], row[i])


@uncounted
def exp_tile(scores, base, intercept, bits, first, last, scratch):
    """Softmax of the columns first..last of the rows from `base` on, but for a factor, which scratch[1] receives.

    scratch is 2 rows of TILE numbers. The factor is NaN if a score is NaN or infinite. Where the action is not
    eligible, a number is left that is negligible, and that the caller must set to 0.
    """
    largest = scratch[0][: last - first]
    total = scratch[1][: last - first]
    one = scores.dtype.type(1)
    _add_intercepts(scores, base, intercept, bits, first, last, largest, total)
    for k in range(intercept.shape[0]):
        exp_row(scores[base + k][first:last], largest, total)
    for i in range(total.shape[0]):
        total[i] = one / total[i]


@uncounted
def logistic_row(row, scratch):
    """row <- 1 / (1 + exp(-row)), for at most TILE numbers; scratch is 3 rows of TILE numbers."""
    small = scratch[0][: row.shape[0]]
    zero = scratch[1][: row.shape[0]]
    total = scratch[2][: row.shape[0]]
    one = row.dtype.type(1)
    for i in range(row.shape[0]):
        small[i] = -abs(row[i])
        zero[i] = 0
        total[i] = 1
    exp_row(small, zero, total)
    for i in range(row.shape[0]):
        row[i] = (one if row[i] >= 0 else small[i]) / total[i]


@kernel(void(F8_2, F8_IN, none), void(F8_2, F8_IN, U4_IN2))
def softmax(scores, intercept, bits):
    """scores (K, n) <- exp(scores + intercept) / sum over actions. A NaN score makes its column NaN."""
    scratch = np.empty((3, TILE), scores.dtype)
    for first in range(0, scores.shape[1], TILE):
        last = min(first + TILE, scores.shape[1])
        exp_tile(scores, 0, intercept, bits, first, last, scratch)
        for k in range(scores.shape[0]):
            row = scores[k][first:last]
            for i in range(row.shape[0]):
                row[i] *= scratch[1, i]
    hide_block(scores, bits)


@uncounted
def hide_block(matrix, bits):
    """matrix (K, n) <- 0 where the action is not eligible."""
    if bits is not None:
        for k in range(matrix.shape[0]):
            row = matrix[k]
            words, place = word_of(bits, k, 0, row.shape[0])
            for i in range(row.shape[0]):
                row[i] = row[i] if (words[i] >> place) & BIT != 0 else 0.0


@kernel(void(F8_2, U4_IN2))
def hide(matrix, bits):
    """The same, for a block."""
    hide_block(matrix, bits)


@uncounted
def _choose_or_not(row, intercept, words, place, k, largest, poison, choice):
    """Look at action k, after all actions before it, for the events that could choose it."""
    zero, hidden, action = row.dtype.type(0), row.dtype.type(-np.inf), np.int32(k)
    for i in range(row.shape[0]):
        eligible = (words[i] >> place) & BIT != 0
        score = row[i] + intercept
        seen = score if eligible else zero
        poison[i] += seen - seen
        a = score if eligible else hidden
        choice[i] = action if a > largest[i] else choice[i]
        largest[i] = max(largest[i], a)


@uncounted
def choose_tile(scores, base, intercept, bits, first, last, scratch, choice):
    """The first of the largest scores of the columns first..last; scratch is 2 rows of TILE numbers.

    Where a score is NaN or infinite, scratch[1] is NaN, and 0 otherwise.
    """
    largest, poison, chosen = scratch[0][: last - first], scratch[1][: last - first], choice[: last - first]
    hidden = scores.dtype.type(-np.inf)
    for i in range(chosen.shape[0]):
        largest[i], poison[i], chosen[i] = hidden, 0, 0
    for k in range(intercept.shape[0]):
        row, shift, action = scores[base + k][first:last], intercept[k], np.int32(k)
        if bits is not None:
            words, place = word_of(bits, k, first, last)
            _choose_or_not(row, shift, words, place, k, largest, poison, chosen)
        else:
            for i in range(row.shape[0]):  # no branch: an unpredictable one costs 25 ns an event
                score = row[i] + shift
                poison[i] += score - score
                chosen[i] = action if score > largest[i] else chosen[i]
                largest[i] = max(largest[i], score)


@kernel(void(F8_2, F8_IN, none), void(F8_2, F8_IN, U4_IN2))
def argmax(scores, intercept, bits):
    """scores (K, n) <- 1 for the first of the largest scores + intercept, 0 for the others; NaN for a NaN score."""
    scratch = np.empty((2, TILE), scores.dtype)
    choice = np.empty(TILE, np.int32)
    for first in range(0, scores.shape[1], TILE):
        last = min(first + TILE, scores.shape[1])
        choose_tile(scores, 0, intercept, bits, first, last, scratch, choice)
        for k in range(scores.shape[0]):
            row = scores[k][first:last]
            for i in range(row.shape[0]):
                row[i] = (1.0 if choice[i] == k else 0.0) + scratch[1, i]


@kernel(void(I4_IN, F8_2), void(I4_IN, F4_2))
def one_hot(choice, out):
    """out (K, n) <- 1 where the action, or the category, is the choice; else 0."""
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
