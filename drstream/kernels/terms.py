"""The terms of one event in the estimators of sections 3.2 and 3.3, for a block of events at a time.

Matrices are (K, n): row a holds action a's value for each of the n events. Status: the first bad event, or -1. A block
costs few calls: each one lets go of the interpreter's lock and must get it back from the other threads.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, I4_IN, float64, int64, void
from drstream.kernels.sums import LANES

TILE = 512  # events worked on at a time: ten actions of them fit the first-level cache
TOLERANCE = 1e-5  # on the sum of a policy's probabilities: float32 softmax over 1,000 actions stays within 3e-6


@helper
def _improper(pi, first, last, total):
    """Whether any of the columns first..last is improper; `total` receives their sums."""
    sums = total[first:last]
    sums[:] = 0.0
    bad = 0
    for k in range(pi.shape[0]):
        row = pi[k][first:last]
        for i in range(row.shape[0]):
            sums[i] += row[i]
            bad |= row[i] < 0.0
    for i in range(sums.shape[0]):
        bad |= not abs(sums[i] - 1.0) <= TOLERANCE
    return bad != 0


@kernel(int64(F8_IN2, F8))
def first_improper(pi, total):
    """The first event whose probabilities are negative, NaN, or do not sum to 1; `total` receives the sums."""
    for first in range(0, pi.shape[1], TILE):
        if _improper(pi, first, min(first + TILE, pi.shape[1]), total):
            i = first
            while abs(total[i] - 1.0) <= TOLERANCE and pi[:, i].min() >= 0.0:
                i += 1
            return i
    return -1


@kernel(int64(F8_IN2, I4_IN, F8))
def logged_prediction(rhat, action, out):
    """out = r̂(x, a) of the logged action; returns the first (action, event), flat, that is not finite."""
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


@helper
def _raise_to_largest(x, largest):
    """largest[0] <- the largest of it and x; in 64 lanes, so that it vectorises."""
    lanes = np.zeros(LANES)
    whole = x.shape[0] // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] = max(lanes[lane], x[start + lane])
    for lane in range(LANES):
        largest[0] = max(largest[0], lanes[lane])
    for i in range(whole, x.shape[0]):
        largest[0] = max(largest[0], x[i])


@kernel(void(F8_IN, F8_IN, F8_IN, float64, F8_2, F8))
def weigh(pi, p, r, pivot, out, largest):
    """Rows of out: w = ν(a_k|x_k) / p_k, u = w (r - pivot), y = w r; largest[0] is raised to the largest weight."""
    w = out[0]
    u = out[1]
    y = out[2]
    for i in range(w.shape[0]):
        weight = pi[i] / p[i]
        w[i] = weight
        u[i] = weight * (r[i] - pivot)
        y[i] = weight * r[i]
    _raise_to_largest(w, largest)


@kernel(int64(F8_IN, F8_IN, F8_IN, float64, float64, F8_2, F8))
def weigh_capped(pi, p, r, floor, cap, out, largest):
    """Rows w = min(cap, ν / max(floor, p)), as section 3.4's footnote inflates p, and w r; returns how many changed."""
    w = out[0]
    y = out[1]
    changed = 0
    for i in range(w.shape[0]):
        weight = min(pi[i] / max(p[i], floor), cap)
        changed += weight < pi[i] / p[i]
        w[i] = weight
        y[i] = weight * r[i]
    _raise_to_largest(w, largest)
    return changed


@helper
def _expected_reward(pi, rhat, first, last, out):
    """r̂(x, ν) = sum over a of ν(a|x) r̂(x, a), of the columns first..last."""
    b = out[first:last]
    b[:] = 0.0
    for k in range(pi.shape[0]):
        probability = pi[k][first:last]
        prediction = rhat[k][first:last]
        for i in range(b.shape[0]):
            b[i] += probability[i] * prediction[i]


@kernel(void(F8_IN2, F8_IN2, F8_IN, F8_IN, F8_IN, F8_2))
def robust(pi, rhat, w, r, logged_rhat, out):
    """Rows of out: b = r̂(x, ν), the term of DM; b + w (r - r̂(x, a)), eq. (3.1)."""
    b = out[0]
    dr = out[1]
    for first in range(0, b.shape[0], TILE):
        _expected_reward(pi, rhat, first, min(first + TILE, b.shape[0]), b)
    for i in range(b.shape[0]):
        dr[i] = b[i] + w[i] * (r[i] - logged_rhat[i])


@kernel(void(F8_IN, F8_IN, F8_IN, F8_IN, F8))
def corrected(b, w, r, logged_rhat, out):
    """out = b + w (r - r̂(x, a)), for another weight or another b than in `robust`."""
    for i in range(out.shape[0]):
        out[i] = b[i] + w[i] * (r[i] - logged_rhat[i])
