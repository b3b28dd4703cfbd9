"""The terms of one event in the estimators of sections 3.2 and 3.3, for a block of events at a time.

Matrices are (K, n): row a holds action a's value for each of the n events. Status: the first bad event, or -1.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8, F8_IN, F8_IN2, I4_IN, float64, int64, void
from drstream.kernels.sums import LANES

TOLERANCE = 1e-5  # on the sum of a policy's probabilities: float32 softmax over 1,000 actions stays within 3e-6


@kernel(int64(F8_IN2, F8))
def first_improper(pi, total):
    """The first event whose probabilities are negative, NaN, or do not sum to 1; `total` receives the sums."""
    actions, rows = pi.shape
    for i in range(rows):
        total[i] = 0.0
    negative = 0
    for k in range(actions):
        row = pi[k]
        for i in range(rows):
            total[i] += row[i]
            negative |= row[i] < 0.0
    off = 0
    for i in range(rows):
        off |= not abs(total[i] - 1.0) <= TOLERANCE
    if negative == 0 and off == 0:
        return -1
    i = 0
    while abs(total[i] - 1.0) <= TOLERANCE and pi[:, i].min() >= 0.0:
        i += 1
    return i


@kernel(void(F8_IN2, I4_IN, F8))
def pick(matrix, action, out):
    """out[i] = matrix[action[i], i]: the logged action's probability or predicted reward."""
    for i in range(out.shape[0]):
        out[i] = matrix[action[i], i]


@kernel(void(F8_IN2, F8_IN2, F8))
def expected_reward(pi, rhat, out):
    """out = r̂(x, ν) = sum over a of ν(a|x) r̂(x, a), the term of DM."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for k in range(pi.shape[0]):
        probability = pi[k]
        prediction = rhat[k]
        for i in range(out.shape[0]):
            out[i] += probability[i] * prediction[i]


@helper
def _raise_to_largest(x, largest):
    """largest[0] <- the largest of it and x; in 64 lanes, so that it vectorises."""
    lanes = np.zeros(LANES)
    whole = x.shape[0] // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] = x[start + lane] if x[start + lane] > lanes[lane] else lanes[lane]
    for lane in range(LANES):
        largest[0] = max(largest[0], lanes[lane])
    for i in range(whole, x.shape[0]):
        largest[0] = max(largest[0], x[i])


@kernel(void(F8_IN, F8_IN, F8_IN, F8, F8, F8))
def weigh(pi, p, r, w, y, largest):
    """w = ν(a_k|x_k) / p_k and y = w r, the term of IPS; largest[0] is raised to the largest weight."""
    for i in range(w.shape[0]):
        weight = pi[i] / p[i]
        w[i] = weight
        y[i] = weight * r[i]
    _raise_to_largest(w, largest)


@kernel(int64(F8_IN, F8_IN, F8_IN, float64, float64, F8, F8, F8))
def weigh_capped(pi, p, r, floor, cap, w, y, largest):
    """The same with w = min(cap, ν / max(floor, p)), as section 3.4's footnote inflates p; returns how many changed."""
    changed = 0
    for i in range(w.shape[0]):
        weight = min(pi[i] / max(p[i], floor), cap)
        changed += weight < pi[i] / p[i]
        w[i] = weight
        y[i] = weight * r[i]
    _raise_to_largest(w, largest)
    return changed


@kernel(void(F8_IN, F8_IN, F8_IN, F8))
def correction(w, r, rhat, out):
    """out = w (r - r̂(x, a)), the correction of eq. (3.1)."""
    for i in range(out.shape[0]):
        out[i] = w[i] * (r[i] - rhat[i])


@kernel(void(F8_IN, F8_IN, F8_IN, F8_IN, F8))
def dr(b, w, r, rhat, out):
    """out = r̂(x, ν) + w (r - r̂(x, a)), eq. (3.1)."""
    for i in range(out.shape[0]):
        out[i] = b[i] + w[i] * (r[i] - rhat[i])
