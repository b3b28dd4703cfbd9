"""Direct loss minimisation (appendix D of the paper): the actions taken, better actions, and the sums of moves.

Several runs go side by side. Action k of run r has row r K + k of the scores and of the sums.
"""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import DOUBLE, F8, F8_2, F8_IN, F8_IN2, I4_2, I4_IN2, SINGLE, U4_IN2, float64, int64, void
from drstream.kernels.sets import BIT, FIVE, THIRTY_ONE

BARRED = -1e99  # scores below are of actions that a policy must not take


@kernel(void(F8_2, int64, U4_IN2, float64))
def exclude(values, actions, bits, other):
    """Replace the numbers (R K, n) of actions that are not eligible. `bits` are the sets of the events (`sets.py`)."""
    for j in range(values.shape[0]):
        k = np.uint32(j % actions)
        row = values[j]
        words = bits[k >> FIVE]
        for i in range(row.shape[0]):
            row[i] = row[i] if (words[i] >> (k & THIRTY_ONE)) & BIT != 0 else other


@kernel(void(F8_IN2, F8_IN, F8_IN2, F8_IN, I4_2, I4_2, F8))
def choose(scores, intercept, losses, epsilon, taken, better, total):
    """Find two actions for every run r and event i; in a tie, the first one.

    taken[r, i] has the largest score, better[r, i] the largest score - epsilon[r] loss. total[r] += the loss of the
    actions taken.
    """
    actions, n = losses.shape
    largest = np.empty(n)
    improved = np.empty(n)
    for r in range(taken.shape[0]):
        at = taken[r]
        to = better[r]
        share = epsilon[r]
        largest[:] = -np.inf
        improved[:] = -np.inf
        for k in range(actions):
            row = scores[r * actions + k]
            shift = intercept[r * actions + k]
            loss = losses[k]
            for i in range(n):
                s = row[i] + shift
                at[i] = k if s > largest[i] else at[i]
                largest[i] = max(largest[i], s)
                v = s - share * loss[i]
                to[i] = k if v > improved[i] else to[i]
                improved[i] = max(improved[i], v)
        for i in range(n):
            total[r] += losses[at[i], i]


@kernel(void(F8_IN2, F8_IN, F8))
def add_margins(scores, intercept, total):
    """total[r] += the difference between the largest score and the second, for all events with two to choose from."""
    rows, n = scores.shape
    actions = rows // total.shape[0]
    largest = np.empty(n)
    second = np.empty(n)
    for r in range(total.shape[0]):
        largest[:] = -np.inf
        second[:] = -np.inf
        for k in range(actions):
            row = scores[r * actions + k]
            shift = intercept[r * actions + k]
            for i in range(n):
                s = row[i] + shift
                second[i] = max(second[i], min(largest[i], s))
                largest[i] = max(largest[i], s)
        for i in range(n):
            if second[i] > BARRED:
                total[r] += largest[i] - second[i]


@kernel(void(I4_IN2, I4_IN2, F8_IN2, F8_2, F8))
def add_moves(taken, better, contexts, out, count):
    """out[better] += x_i and out[taken] -= x_i if they differ; contexts are (n, d). `count` is the same for x = 1."""
    runs, n = taken.shape
    actions = count.shape[0] // runs
    for i in range(n):
        x = contexts[i]
        for r in range(runs):
            if taken[r, i] != better[r, i]:
                at = r * actions + taken[r, i]
                to = r * actions + better[r, i]
                count[to] += 1.0
                count[at] -= 1.0
                gain = out[to]
                loss = out[at]
                for j in range(x.shape[0]):
                    gain[j] += x[j]
                    loss[j] -= x[j]


@kernel(void(I4_IN2, I4_IN2, *SINGLE, F8_2, F8), void(I4_IN2, I4_IN2, *DOUBLE, F8_2, F8))
def add_sparse_moves(taken, better, indptr, indices, values, out, count):
    """`add_moves` for sparse contexts. `out` is (d, R K), so that the moves of a feature are contiguous."""
    runs, n = taken.shape
    actions = count.shape[0] // runs
    for i in range(n):
        for r in range(runs):
            if taken[r, i] != better[r, i]:
                at = r * actions + taken[r, i]
                to = r * actions + better[r, i]
                count[to] += 1.0
                count[at] -= 1.0
                for j in range(indptr[i], indptr[i + 1]):
                    row = out[indices[j]]
                    row[to] += values[j]
                    row[at] -= values[j]
