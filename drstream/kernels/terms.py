"""Weights and terms of the estimators of sections 3.2 and 3.3, for a block of events at a time.

Matrices are (K, n): row a holds action a's value for each of the n events. Status: the first bad event, or -1. A block
takes few calls, because each call releases the interpreter's lock and must get it back from other threads.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel, unordered_helper
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, I4_IN, I8, I8_IN, float64, int64, void
from drstream.kernels.sums import ACCUMULATORS, plain_sum

TILE = 512  # events worked on at a time: ten actions of them fit the first-level cache
# Codes of the terms, from the weight w of an event, its reward r, a typical reward (the pivot), and the model r̂
WEIGHT = 0  # w; always the first term of a weight
WEIGHTED_REWARD = 1  # w r
CENTRED_REWARD = 2  # w (r - pivot)
RESIDUAL = 3  # w (r - r̂(x, a))
ROBUST = 4  # r̂(x, ν) + w (r - r̂(x, a)), eq. (3.1)
SHARE = 5  # 1: how much an event counts, before stretches of time are weighed
# Codes of terms that say where variance and bias come from; r̃ is a second model, and w₀ = ν / p
DISAGREEMENT = 6  # w (r̃(x, a) - r̂(x, a))
CUT = 7  # (w - w₀) (r - r̂(x, a)): what a limit of the weights changes
CUT_REWARD = 8  # (w - w₀) r
SECOND = 9  # w r̃(x, a)
ABSOLUTE, SQUARED = 10, 11  # w |r - r̂(x, a)|, w (r - r̂(x, a))²
ABSOLUTE_REWARD, SQUARED_REWARD = 12, 13  # w |r|, w r²
TOLERANCE = 1e-5  # on the sum of a policy's probabilities: float32 softmax over 1,000 actions stays within 3e-6


@helper
def _improper(pi, first, last, total, mass):
    """Whether any of the columns first..last is improper; `total` receives their sums, `mass` gains those of rows."""
    sums = total[first:last]
    sums[:] = 0.0
    bad = 0
    for k in range(pi.shape[0]):
        row = pi[k][first:last]
        for i in range(row.shape[0]):
            sums[i] += row[i]
            bad |= row[i] < 0.0
        mass[k] += plain_sum(row)
    for i in range(sums.shape[0]):
        bad |= not abs(sums[i] - 1.0) <= TOLERANCE
    return bad != 0


@helper
def _any_negative(pi, i):
    negative = False
    for k in range(pi.shape[0]):
        negative = negative or pi[k, i] < 0.0
    return negative


@kernel(int64(F8_IN2, F8, F8))
def first_improper(pi, total, mass):
    """The first event whose probabilities are negative, NaN, or do not sum to 1; `total` receives the sums.

    mass[k] gains the probabilities of action k.
    """
    for first in range(0, pi.shape[1], TILE):
        if _improper(pi, first, min(first + TILE, pi.shape[1]), total, mass):
            i = first
            while abs(total[i] - 1.0) <= TOLERANCE and not _any_negative(pi, i):
                i += 1
            return i
    return -1


@kernel(int64(F8_IN2, I4_IN, F8))
def logged_prediction(rhat, action, out):
    """out = r̂(x, a) of the logged action. Returns the flat index (action, event) of the first non-finite r̂, or -1."""
    actions, rows = rhat.shape
    bad = 0
    for k in range(actions):
        row = rhat[k]
        for i in range(rows):
            bad |= not abs(row[i]) < np.inf
    if bad != 0:
        place = 0
        while abs(rhat[place // rows, place % rows]) < np.inf:
            place += 1
        return place
    for i in range(rows):
        out[i] = rhat[action[i], i]
    return -1


@kernel(void(F8_IN2, I4_IN, F8))
def logged_probability(pi, action, out):
    """out = ν(a_k|x_k) of the logged action."""
    for i in range(out.shape[0]):
        out[i] = pi[action[i], i]


# Weights: each kernel fills `out` with a weight for every event, from ν(a_k|x_k) and p_k


@kernel(void(F8_IN, F8_IN, F8))
def importance(pi, p, out):
    """ν(a_k|x_k) / p_k"""
    for i in range(out.shape[0]):
        out[i] = pi[i] / p[i]


@kernel(void(F8_IN, F8_IN, float64, float64, float64, F8))
def capped(pi, p, floor, cap, inflation, out):
    """min(cap, ν / max(floor, c p)), c the inflation, as section 3.4's footnote inflates p."""
    for i in range(out.shape[0]):
        out[i] = min(pi[i] / max(p[i] * inflation, floor), cap)


@kernel(void(F8_IN, F8_IN, float64, F8))
def shrunk(pi, p, lambda_, out):
    """λ w / (w² + λ), the optimistic shrinkage of Su et al. (2020)."""
    for i in range(out.shape[0]):
        w = pi[i] / p[i]
        out[i] = lambda_ * w / (w * w + lambda_)


@kernel(void(F8_IN, F8_IN, float64, F8))
def switched(pi, p, lambda_, out):
    """w where w <= λ, else 0: there the model alone counts (Wang et al. 2017)."""
    for i in range(out.shape[0]):
        w = pi[i] / p[i]
        out[i] = w if w <= lambda_ else 0.0


@kernel(int64(F8, float64, float64))
def clamp(x, low, high):
    """Clip x to [low, high], in place, and return how many numbers changed. NaN stays."""
    count = 0
    for i in range(x.shape[0]):
        value = x[i]
        count += (value < low) | (value > high)
        x[i] = low if value < low else high if value > high else value
    return count


@kernel(int64(F8_IN2, F8_IN2, F8))
def inverse_overlap(pi, mu, out):
    """out = sum over a of ν(a|x)² / μ(a|x), the mean of w² given x. Returns the first event with ν > 0 = μ, or -1."""
    out[:] = 0.0
    for k in range(pi.shape[0]):
        for i in range(out.shape[0]):
            if pi[k, i] > 0.0:
                out[i] += pi[k, i] * pi[k, i] / mu[k, i] if mu[k, i] > 0.0 else np.inf
    for i in range(out.shape[0]):
        if not out[i] < np.inf:
            return i
    return -1


# What is known about weights: fields of `inspected`, for each policy and kind of weight
LARGEST = 0  # the largest weight
THIN = 1  # sum of the weights of events with a small propensity
REWARDED, REWARDED_SQUARES = 2, 3  # sums of w and w² over events with a reward other than 0
INSPECTED = 4  # number of fields


@helper
def _largest(x):
    """The largest of x and 0. It takes 64 values at a time, so that it vectorises."""
    found = np.zeros(ACCUMULATORS)
    whole = x.shape[0] // ACCUMULATORS * ACCUMULATORS
    for start in range(0, whole, ACCUMULATORS):
        for k in range(ACCUMULATORS):
            found[k] = max(found[k], x[start + k])
    largest = 0.0
    for k in range(ACCUMULATORS):
        largest = max(largest, found[k])
    for i in range(whole, x.shape[0]):
        largest = max(largest, x[i])
    return largest


@unordered_helper
def _sums_of_weights(w, p, r, thin):
    small = 0.0
    rewarded = 0.0
    squares = 0.0
    for i in range(w.shape[0]):
        small += w[i] * (p[i] < thin)
        with_reward = w[i] * (r[i] != 0.0)
        rewarded += with_reward
        squares += with_reward * with_reward
    return small, rewarded, squares


@kernel(void(F8_IN, F8_IN, F8_IN, float64, F8))
def inspect(w, p, r, thin, inspected):
    """Add weights to what is known about them. A propensity below `thin` is small."""
    inspected[LARGEST] = max(inspected[LARGEST], _largest(w))
    small, rewarded, squares = _sums_of_weights(w, p, r, thin)
    inspected[THIN] += small
    inspected[REWARDED] += rewarded
    inspected[REWARDED_SQUARES] += squares


@kernel(void(I4_IN, I8))
def count_actions(action, counts):
    for i in range(action.shape[0]):
        counts[action[i]] += 1


@kernel(int64(F8_IN))
def count_other_than_clicks(r):
    """How many rewards are neither 0 nor 1."""
    count = 0
    for i in range(r.shape[0]):
        count += (r[i] != 0.0) & (r[i] != 1.0)
    return count


@kernel(int64(F8_IN, float64, float64, I8))
def count_outside(x, low, high, first):
    """How many numbers lie outside of [low, high]; first[0] receives the index of the first one."""
    count = 0
    for i in range(x.shape[0]):
        count += (x[i] < low) | (x[i] > high)
    if count > 0:
        i = 0
        while low <= x[i] <= high:
            i += 1
        first[0] = i
    return count


@kernel(int64(F8_IN, F8_IN, F8_IN))
def count_reduced(w, pi, p):
    """How many weights are smaller than ν / p."""
    count = 0
    for i in range(w.shape[0]):
        count += w[i] < pi[i] / p[i]
    return count


# Terms


@helper
def _expected_reward(pi, rhat, first, last, out):
    """r̂(x, ν) = sum over a of ν(a|x) r̂(x, a), for the columns first..last."""
    b = out[first:last]
    b[:] = 0.0
    for k in range(pi.shape[0]):
        probability = pi[k][first:last]
        prediction = rhat[k][first:last]
        for i in range(b.shape[0]):
            b[i] += probability[i] * prediction[i]


@kernel(void(F8_IN2, F8_IN2, F8))
def expected_reward(pi, rhat, out):
    """out = r̂(x, ν), the term of DM."""
    for first in range(0, out.shape[0], TILE):
        _expected_reward(pi, rhat, first, min(first + TILE, out.shape[0]), out)


@kernel(void(I8_IN, F8_IN, F8_IN, F8_IN, float64, F8_2))
def fill_terms(codes, b, r, logged_rhat, pivot, out):
    """Fill the terms of one weight, which is in the first row of `out`. codes[t] says what row t is."""
    w = out[0]
    for t in range(1, codes.shape[0]):
        row = out[t]
        if codes[t] == WEIGHTED_REWARD:
            for i in range(row.shape[0]):
                row[i] = w[i] * r[i]
        elif codes[t] == CENTRED_REWARD:
            for i in range(row.shape[0]):
                row[i] = w[i] * (r[i] - pivot)
        elif codes[t] == RESIDUAL:
            for i in range(row.shape[0]):
                row[i] = w[i] * (r[i] - logged_rhat[i])
        elif codes[t] == ROBUST:
            for i in range(row.shape[0]):
                row[i] = b[i] + w[i] * (r[i] - logged_rhat[i])
        elif codes[t] == SHARE:
            for i in range(row.shape[0]):
                row[i] = 1.0


@kernel(void(I8_IN, F8_IN, F8_IN, F8_IN, F8_IN, F8_IN, F8_2))
def fill_extra_terms(codes, pi, p, r, logged_rhat, logged_second, out):
    """Fill the terms of one weight that explain an estimate. The weight is in the first row of `out`."""
    w = out[0]
    for t in range(1, codes.shape[0]):
        row = out[t]
        if codes[t] == DISAGREEMENT:
            for i in range(row.shape[0]):
                row[i] = w[i] * (logged_second[i] - logged_rhat[i])
        elif codes[t] == CUT:
            for i in range(row.shape[0]):
                row[i] = (w[i] - pi[i] / p[i]) * (r[i] - logged_rhat[i])
        elif codes[t] == CUT_REWARD:
            for i in range(row.shape[0]):
                row[i] = (w[i] - pi[i] / p[i]) * r[i]
        elif codes[t] == SECOND:
            for i in range(row.shape[0]):
                row[i] = w[i] * logged_second[i]
        elif codes[t] == ABSOLUTE:
            for i in range(row.shape[0]):
                row[i] = w[i] * abs(r[i] - logged_rhat[i])
        elif codes[t] == SQUARED:
            for i in range(row.shape[0]):
                row[i] = w[i] * (r[i] - logged_rhat[i]) ** 2
        elif codes[t] == ABSOLUTE_REWARD:
            for i in range(row.shape[0]):
                row[i] = w[i] * abs(r[i])
        elif codes[t] == SQUARED_REWARD:
            for i in range(row.shape[0]):
                row[i] = w[i] * r[i] ** 2
