"""Weights and terms of rankings: lists of different lengths, whose items are in flat arrays.

List i has the items starts[i] to starts[i + 1] - 1 of a flat array. The item at position l of a list has the propensity
p_l and the policy's probability π_l, and w_l = π_l / p_l. Positions are counted from the top of a list.
"""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8, F8_2, F8_IN, I4_IN, I8, I8_IN, U1, int64, void

LEAST = 1e-200  # smaller propensities of whole lists are raised to it, so that they do not become 0

# Codes of the terms of a list, from a weight v_l of each position
WEIGHT = 0  # mean of v_l
WEIGHTED_REWARD = 1  # Σ v_l r_l
ROBUST = 2  # Σ v_l (r_l - q_l) + v_(l-1) e_l, v_0 = 1: Kiyohara et al. 2022
BY_POSITION = 3  # from here on, with P positions: P times 1 if the list has position l, P times v_l, P times v_l r_l


@kernel(int64(I8_IN, F8_IN, F8_IN, F8, F8, F8))
def summarise(starts, p, r, joint, least, total):
    """Fill in the product of each list's propensities, the smallest one, and the sum of its rewards.

    Either p or r may be empty; what is made from it then stays as it is. Returns the first list with a propensity that
    is not in (0, 1], or a reward that is not finite, or -1.
    """
    first_bad = -1
    for i in range(starts.shape[0] - 1):
        good = True
        if p.shape[0] > 0:
            product = 1.0
            smallest = 1.0
            for k in range(starts[i], starts[i + 1]):
                good &= (p[k] > 0.0) & (p[k] <= 1.0)
                product *= p[k]
                smallest = min(smallest, p[k])
            joint[i] = max(product, LEAST)
            least[i] = smallest
        if r.shape[0] > 0:
            value = 0.0
            for k in range(starts[i], starts[i + 1]):
                value += r[k]
            good &= np.isfinite(value)
            total[i] = value
        if not good and first_bad < 0:
            first_bad = i
    return first_bad


@kernel(int64(I8_IN, I4_IN, I8, U1))
def note_repeats(starts, item, seen, bad):
    """bad[i] = 1 for each list that has an item twice, and their number. `seen` holds -1 for each item that exists."""
    count = 0
    for i in range(starts.shape[0] - 1):
        bad[i] = 0
        for k in range(starts[i], starts[i + 1]):
            bad[i] |= seen[item[k]] == i
            seen[item[k]] = i
        count += bad[i]
    return count


@kernel(int64(I8_IN, F8_IN, F8_IN, F8, F8, F8, F8))
def weigh(starts, pi, p, ratio, product, whole, pseudo):
    """Fill in the weights w_l of items, their products from the top of each list, and those of whole lists.

    whole   The product of all w_l.
    pseudo  1 + Σ (w_l - 1), the weight of the pseudo-inverse for loggers that fill positions independently
            (Swaminathan et al. 2017).

    Returns the first item whose probability is not in [0, 1], or -1.
    """
    first_bad = -1
    for i in range(starts.shape[0] - 1):
        running = 1.0
        excess = 0.0
        for k in range(starts[i], starts[i + 1]):
            if not 0.0 <= pi[k] <= 1.0 and first_bad < 0:
                first_bad = k
            w = pi[k] / p[k]
            ratio[k] = w
            running *= w
            product[k] = running
            excess += w - 1.0
        whole[i] = running
        pseudo[i] = 1.0 + excess
    return first_bad


@kernel(void(I8_IN, int64, I8_IN, F8_IN, F8_IN, F8_IN, F8_IN, F8_2))
def fill_terms(codes, positions, starts, v, r, q, e, out):
    """Fill in the terms of lists, codes[t] in row t, from the weights v of items, and their rewards r.

    q  Predicted rewards of the shown items, for ROBUST.
    e  Predicted rewards at the same positions, in expectation over the policy.
    """
    for t in range(codes.shape[0]):
        row = out[t]
        code = codes[t]
        kind = (code - BY_POSITION) // max(positions, 1)
        place = code - BY_POSITION - kind * positions
        for i in range(starts.shape[0] - 1):
            first, last = starts[i], starts[i + 1]
            value = 0.0
            if code == WEIGHT:
                for k in range(first, last):
                    value += v[k]
                value /= last - first
            elif code == WEIGHTED_REWARD:
                for k in range(first, last):
                    value += v[k] * r[k]
            elif code == ROBUST:
                before = 1.0
                for k in range(first, last):
                    value += v[k] * (r[k] - q[k]) + before * e[k]
                    before = v[k]
            else:
                k = first + place
                if k < last:
                    value = 1.0 if kind == 0 else v[k] if kind == 1 else v[k] * r[k]
            row[i] = value
