"""Marginal probabilities of categories: how likely a policy is to take any action of the logged action's category.

Matrices are (actions, events). codes[a] is the category of action a. Kernels called `ragged_...` are for events with
candidates of their own: those of event i are at starts[i]..starts[i + 1] of flat arrays.

Whether, given the category, actions matter to a reward is told by w' = ν(a|x) / p, scaled so that the covered actions
of a category have all of its ν(e|x): the weights w = ν(e|x) / μ(e|x) and w' have the same mean in each category. Where
ν is 0 for all covered actions, there is nothing to compare, and w' is w.
"""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8, F8_IN, F8_IN2, I4_IN, I8_IN, void


@kernel(void(F8_IN2, I8_IN, I4_IN, F8_IN, F8))
def marginal_propensities(mu, codes, action, p, out):
    """out <- μ(e|x), e the category of the logged action, whose own propensity is p."""
    own = np.empty(out.shape[0], np.int64)
    for i in range(out.shape[0]):
        own[i] = codes[action[i]]
        out[i] = p[i]
    for k in range(mu.shape[0]):
        row = mu[k]
        for i in range(out.shape[0]):
            out[i] += row[i] * ((own[i] == codes[k]) & (action[i] != k))


@kernel(void(F8_IN2, F8_IN2, I8_IN, I4_IN, F8_IN, F8, F8))
def marginal_probabilities(pi, mu, codes, action, logged, whole, covered):
    """whole <- ν(e|x), e the category of the logged action, whose own probability is `logged`.

    covered <- the part of it that is on the logged action, or on actions with μ(a|x) > 0.
    """
    own = np.empty(whole.shape[0], np.int64)
    for i in range(whole.shape[0]):
        own[i] = codes[action[i]]
        whole[i] = logged[i]
        covered[i] = logged[i]
    for k in range(pi.shape[0]):
        chance, there = pi[k], mu[k]
        for i in range(whole.shape[0]):
            other = chance[i] * ((own[i] == codes[k]) & (action[i] != k))
            whole[i] += other
            covered[i] += other * (there[i] > 0.0)


@kernel(void(I8_IN, F8_IN, I8_IN, I4_IN, F8_IN, F8))
def ragged_propensities(starts, mu, codes, position, p, out):
    """The same as `marginal_propensities`, for candidates: codes, too, has one for each of them."""
    for i in range(out.shape[0]):
        logged = starts[i] + position[i]
        total = p[i]
        for c in range(starts[i], starts[i + 1]):
            total += mu[c] * ((codes[c] == codes[logged]) & (c != logged))
        out[i] = total


@kernel(void(I8_IN, F8_IN, F8_IN, I8_IN, I4_IN, F8_IN, F8, F8))
def ragged_probabilities(starts, pi, mu, codes, position, own, whole, covered):
    """The same as `marginal_probabilities`, for candidates. `own` is the probability of the logged one."""
    for i in range(whole.shape[0]):
        logged = starts[i] + position[i]
        total = own[i]
        there = own[i]
        for c in range(starts[i], starts[i + 1]):
            other = pi[c] * ((codes[c] == codes[logged]) & (c != logged))
            total += other
            there += other * (mu[c] > 0.0)
        whole[i] = total
        covered[i] = there
