"""Weighted means of groups of events, and products about the means (Chan, Golub, LeVeque 1983).

The matrix of group g is row by row in products[g]. Only its upper triangle means anything.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, I8_IN, void
from drstream.kernels.moments import add_products
from drstream.kernels.sums import dot, plain_sum

TILE = 1024  # events whose products are summed at a time: those of 21 variables stay in the second-level cache


@helper
def _merge(g, other_weight, other_mean, weight, mean, products):
    """Chan's rule, after the products about the other mean were added."""
    both = weight[g] + other_weight
    factor = weight[g] * other_weight / both
    size = other_mean.shape[0]
    for i in range(size):
        scaled = factor * (other_mean[i] - mean[g, i])
        for j in range(i, size):
            products[g, i * size + j] += scaled * (other_mean[j] - mean[g, j])
    for i in range(size):
        mean[g, i] += (other_mean[i] - mean[g, i]) * (other_weight / both)
    weight[g] = both


@helper
def _centre(x, total):
    mean = plain_sum(x) / total
    for i in range(x.shape[0]):
        x[i] -= mean
    return mean


@helper
def _centre_weighted(x, event_weight, root, total):
    mean = dot(x, event_weight) / total
    for i in range(x.shape[0]):
        x[i] = (x[i] - mean) * root[i]
    return mean


@kernel(void(F8_2, F8_IN, F8_IN, I8_IN, F8, F8_2, F8_2))
def add_groups(terms, event_weight, root, starts, weight, mean, products):
    """Add events, columns of `terms`; those of group g are at starts[g]..starts[g + 1]. `terms` is overwritten.

    `event_weight` and its `root` are empty if all weights are 1.
    """
    members = np.arange(terms.shape[0])
    centre = np.empty(terms.shape[0])
    for g in range(weight.shape[0]):
        for first in range(starts[g], starts[g + 1], TILE):
            last = min(first + TILE, starts[g + 1])
            total = float(last - first) if root.shape[0] == 0 else plain_sum(event_weight[first:last])
            if total == 0.0:
                continue
            for v in range(terms.shape[0]):
                x = terms[v][first:last]
                if root.shape[0] == 0:
                    centre[v] = _centre(x, total)
                else:
                    centre[v] = _centre_weighted(x, event_weight[first:last], root[first:last], total)
            add_products(terms, first, last, members, products[g])
            _merge(g, total, centre, weight, mean, products)


@kernel(void(F8_IN, F8_IN2, F8_IN2, F8, F8_2, F8_2))
def merge_groups(weight2, mean2, products2, weight, mean, products):
    """Add a second state, group by group, to the first."""
    for g in range(weight.shape[0]):
        if weight2[g] > 0.0:
            for k in range(products.shape[1]):
                products[g, k] += products2[g, k]
            _merge(g, weight2[g], mean2[g], weight, mean, products)
