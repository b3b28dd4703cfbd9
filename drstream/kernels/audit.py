"""Sums for the audit of a log: inverse propensities by action, shapes of propensities, and hashes of rows."""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8, F8_2, F8_3, F8_IN, F8_IN2, I4_IN, I8, I8_2, I8_IN, U1_IN, U8, U8_IN, int64, void
from drstream.kernels.random import GAMMA, mix

SAME = 2.0**-22  # relative: a number of few digits that was stored as float32 is still one


@kernel(void(I4_IN, F8_IN, I8, F8, F8, F8, F8))
def add_inverses(action, propensity, counts, sums, squares, least, largest):
    """Add events to the count of each action, to the sums of its 1/p and of their squares, and to its range of 1/p."""
    for i in range(action.shape[0]):
        a = action[i]
        inverse = 1.0 / propensity[i]
        counts[a] += 1
        sums[a] += inverse
        squares[a] += inverse * inverse
        least[a] = min(least[a], inverse)
        largest[a] = max(largest[a], inverse)


@helper
def _is_round(p, digits):
    scaled = p * digits
    return abs(scaled - np.floor(scaled + 0.5)) <= scaled * SAME


@kernel(int64(F8_IN, I8, F8))
def add_propensities(propensity, counts, excess):
    """Count the propensities that are 1, that have two digits, and that have three. Return the smallest one's place.

    `excess` holds the sums of h and h², where h is 1 - p for p > 1/2, p - 1 for p < 1/2, and 0 for p = 1/2.
    """
    smallest = 0
    for i in range(propensity.shape[0]):
        p = propensity[i]
        counts[0] += p == 1.0
        counts[1] += _is_round(p, 100.0)
        counts[2] += _is_round(p, 1000.0)
        h = 1.0 - p if p > 0.5 else (p - 1.0 if p < 0.5 else 0.0)
        excess[0] += h
        excess[1] += h * h
        if p < propensity[smallest]:
            smallest = i
    return smallest


@kernel(void(U8, I8_IN, U8_IN))
def add_to_hashes(hashes, starts, keys):
    """Let the hash of row i depend on keys[starts[i]:starts[i + 1]], too."""
    for i in range(hashes.shape[0]):
        h = mix(hashes[i] ^ np.uint64(starts[i + 1] - starts[i]))
        for j in range(starts[i], starts[i + 1]):
            h = mix(mix(keys[j] * GAMMA + h) ^ h)
        hashes[i] = h


@kernel(void(F8_IN, U1_IN, F8_IN, I8, I8, F8, F8))
def add_column(x, rewarded, special, cells, counts, low, high):
    """Count rows by whether x is 0 or missing, and by reward; those of special values, with and without their sign.

    low[0] and high[0] are the range of all other values.
    """
    least, most = low[0], high[0]
    for i in range(x.shape[0]):
        v = x[i]
        cells[2 * (v != 0.0 and v == v) + rewarded[i]] += 1
        usual = True
        if abs(v) >= 99.0:  # the smallest of the special values
            for k in range(special.shape[0]):
                if v == special[k]:
                    counts[k] += 1
                    usual = False
                elif v == -special[k]:
                    counts[special.shape[0] + k] += 1
        if usual:
            least = min(least, v) if v == v else least
            most = max(most, v) if v == v else most
    low[0], high[0] = least, most


@kernel(void(F8_IN, F8_IN, I4_IN, I8_2))
def add_bins(x, edges, group, table):
    """Count rows by bin and group. Bin 0 is for 0 and for missing values, others are between edges."""
    for i in range(x.shape[0]):
        v = x[i]
        bin = 0
        if v != 0.0 and v == v:
            bin = 1
            for k in range(edges.shape[0]):
                bin += v > edges[k]
        table[bin, group[i]] += 1


@kernel(void(F8_IN2, F8_IN, I4_IN, U1_IN, F8_3, F8_3, F8_2, F8_2))
def add_lags(features, reward, group, alone, products, squares, sums, sums2):
    """Add products of features with the reward of the row before, of their own row, and of the next one, by group.

    A row that is `alone` does not stand between its neighbours in the log: it is left out.
    """
    for i in range(1, reward.shape[0] - 1):
        if alone[i]:
            continue
        g = group[i]
        for j in range(features.shape[1]):
            u = features[i, j]
            sums[g, j] += u
            sums2[g, j] += u * u
            for lag in range(3):
                product = u * reward[i + lag - 1]
                products[lag, g, j] += product
                squares[lag, g, j] += product * product
