"""Weights and terms of the estimators of sections 3.2 and 3.3, for a block of events at a time.

Terms are rows, and events are columns. `policies.py` has what comes before: ν(a_k|x_k), r̂(x_k, a_k) and r̂(x_k, ν).
"""

import numpy as np

from drstream.kernels._jit import kernel, scratch, uncounted, unordered_helper
from drstream.kernels._types import F4_IN, F8, F8_2, F8_IN, F8_IN2, I4_IN, I8, I8_2, I8_IN, I8_IN2, float64, int64, void
from drstream.kernels.sums import ACCUMULATORS

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


# Weights, from ν(a_k|x_k) and p_k. The name of a helper, without the underscore, is that of the weight
GIVEN = -1  # the weights are there already


@uncounted
def _importance(pi, p, out):
    """ν(a_k|x_k) / p_k"""
    for i in range(out.shape[0]):
        out[i] = pi[i] / p[i]


@uncounted
def _capped(pi, p, floor, cap, inflation, out):
    """min(cap, ν / max(floor, c p)), c the inflation, as section 3.4's footnote inflates p."""
    for i in range(out.shape[0]):
        out[i] = min(pi[i] / max(p[i] * inflation, floor), cap)


@uncounted
def _shrunk(pi, p, lambda_, out):
    """λ w / (w² + λ), the optimistic shrinkage of Su et al. (2020)."""
    for i in range(out.shape[0]):
        w = pi[i] / p[i]
        out[i] = lambda_ * w / (w * w + lambda_)


@uncounted
def _switched(pi, p, lambda_, out):
    """w where w <= λ, else 0: there the model alone counts (Wang et al. 2017)."""
    for i in range(out.shape[0]):
        w = pi[i] / p[i]
        out[i] = w if w <= lambda_ else 0.0


WEIGHTS = ("importance", "capped", "shrunk", "switched")  # in the order of their codes
PARAMETERS = 3  # at most


@uncounted
def _fill_weights(code, parameters, pi, p, out):
    if code == 0:
        _importance(pi, p, out)
    elif code == 1:
        _capped(pi, p, parameters[0], parameters[1], parameters[2], out)
    elif code == 2:
        _shrunk(pi, p, parameters[0], out)
    elif code == 3:
        _switched(pi, p, parameters[0], out)


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


@uncounted
def _largest(x):
    """The largest of x and 0. It takes 64 values at a time, so that it vectorises."""
    found = scratch(ACCUMULATORS, x)
    for k in range(ACCUMULATORS):
        found[k] = 0.0
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


@uncounted
def inspect_weights(terms, rows, p, thin, inspected):
    """Add weights, some rows of the terms, to what is known about them. A propensity below `thin` is small."""
    for j in range(rows.shape[0]):
        w = terms[rows[j]]
        small, rewarded, squares = _sums_of_weights(w, p, terms[0], thin)
        inspected[j, LARGEST] = max(inspected[j, LARGEST], _largest(w))
        inspected[j, THIN] += small
        inspected[j, REWARDED] += rewarded
        inspected[j, REWARDED_SQUARES] += squares


@kernel(void(F8_IN2, I8_IN, F8_IN, float64, F8_2))
def inspect(terms, rows, p, thin, inspected):
    """The same, for a block."""
    inspect_weights(terms, rows, p, thin, inspected)


@kernel(void(I8_2, F8_2, I8, I8_IN2, F8_IN2, I8_IN))
def merge_counts(reduced, mass, logged, other_reduced, other_mass, other_logged):
    """Add the numbers of reduced weights, the mass of policies and the logged actions of other events.

    This is done for each part of a log with the interpreter's lock held, and NumPy's operators take longer (ADR 28).
    """
    for j in range(reduced.shape[0]):
        for k in range(reduced.shape[1]):
            reduced[j, k] += other_reduced[j, k]
    for j in range(mass.shape[0]):
        for k in range(mass.shape[1]):
            mass[j, k] += other_mass[j, k]
    for k in range(logged.shape[0]):
        logged[k] += other_logged[k]


@kernel(void(F8_2, F8_IN2))
def merge_inspected(inspected, others):
    """Add what is known about the weights of other events."""
    for j in range(inspected.shape[0]):
        largest = max(inspected[j, LARGEST], others[j, LARGEST])
        for k in range(INSPECTED):
            inspected[j, k] += others[j, k]
        inspected[j, LARGEST] = largest


@uncounted
def note_rewards(r, action, others, counts):
    """others[0] gains the number of rewards that are neither 0 nor 1, and `counts` the actions."""
    count = 0
    for i in range(r.shape[0]):
        count += (r[i] != 0.0) & (r[i] != 1.0)
    others[0] += count
    if counts.shape[0] > 0:
        for i in range(action.shape[0]):
            counts[action[i]] += 1


@kernel(void(F8_IN, I4_IN, I8, I8))
def note_events(r, action, others, counts):
    """The same, for a batch."""
    note_rewards(r, action, others, counts)


@kernel(int64(F8_IN, float64, float64, I8), int64(F4_IN, float64, float64, I8))
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


@uncounted
def number_reduced(w, pi, p):
    """How many weights are smaller than ν / p."""
    count = 0
    for i in range(w.shape[0]):
        count += w[i] < pi[i] / p[i]
    return count


@kernel(int64(F8_IN, F8_IN, F8_IN))
def count_reduced(w, pi, p):
    """The same, for a block."""
    return number_reduced(w, pi, p)


# Terms


@uncounted
def _fill_term(code, w, b, r, rhat, pivot, out):
    if code == WEIGHTED_REWARD:
        for i in range(out.shape[0]):
            out[i] = w[i] * r[i]
    elif code == CENTRED_REWARD:
        for i in range(out.shape[0]):
            out[i] = w[i] * (r[i] - pivot)
    elif code == RESIDUAL:
        for i in range(out.shape[0]):
            out[i] = w[i] * (r[i] - rhat[i])
    elif code == ROBUST:
        for i in range(out.shape[0]):
            out[i] = b[i] + w[i] * (r[i] - rhat[i])
    elif code == SHARE:
        for i in range(out.shape[0]):
            out[i] = 1.0


@uncounted
def fill_terms(code, parameters, codes, places, predicted, logged, p, r, logged_rhat, pivot, terms):
    """Fill in the terms of one kind of weight, for all policies: codes[t] says what row places[j] + t is for policy j.

    logged[j] is ν(a_k|x_k) of policy j, and terms[predicted[j]] is r̂(x_k, ν).
    """
    for j in range(places.shape[0]):
        w = terms[places[j]]
        _fill_weights(code, parameters, logged[j], p, w)
        for t in range(1, codes.shape[0]):
            _fill_term(codes[t], w, terms[predicted[j]], r, logged_rhat, pivot, terms[places[j] + t])


@kernel(void(int64, F8_IN, I8_IN, I8_IN, I8_IN, F8_IN2, F8_IN, F8_IN, F8_IN, float64, F8_2))
def weigh(code, parameters, codes, places, predicted, logged, p, r, logged_rhat, pivot, terms):
    """The same, for a block."""
    fill_terms(code, parameters, codes, places, predicted, logged, p, r, logged_rhat, pivot, terms)


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
