"""The compiled online policies: their probabilities π_t(·|x), and how they learn from an accepted event.

The state of a policy is one flat array of float64: a header of HEADER numbers, then what the policy learns.
`drstream.policies` makes it.
"""

import math

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels.eligible import ELIGIBLE_PROBABILITIES, ELIGIBLE_UPDATE, SPARSE_ELIGIBLE_PROBABILITIES
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, SPARSE_UPDATE, UPDATE
from drstream.kernels.sums import dot

HEADER = 8
N_ACTIONS, UPDATES = 0, 1  # in all headers; the meaning of the other places depends on the policy
PARAMETER, PARAMETER_DECAY, RATE, RATE_DECAY, LOGISTIC, KIND = 2, 3, 4, 5, 6, 7
EPSILON_GREEDY, BOLTZMANN, SQUARE_CB = 0.0, 1.0, 2.0  # KIND of policies with linear scores
HIDDEN = -np.inf  # score of an action that is not eligible

# Linear scores by stochastic gradient descent: K rows of d weights and an intercept. For sparse contexts, the state has
# d + 1 rows of K instead, the intercepts first: the weights that one entry of a context needs are contiguous.


@inlined
def affine(state, start, x):
    """state[start : start + d] @ x + state[start + d]. Rows of a reshaped state would take twice the time."""
    end = start + x.shape[0]
    return dot(x, state[start:end]) + state[end]


@inlined
def _scores(state, x, out):
    for k in range(out.shape[0]):
        out[k] = affine(state, HEADER + k * (x.shape[0] + 1), x)


@inlined
def _weights(actions, index):
    """Where a feature's weights begin. Unsigned: for a signed index, each access would test first if it is negative."""
    return np.uint64(HEADER + actions * (np.int64(index) + 1))


@inlined
def _sparse_scores(state, indices, values, out):
    """Four entries at a time, added in order. One at a time would take twice as long, because each waits for out[k]."""
    actions = out.shape[0]
    entries = indices.shape[0]
    whole = entries // 4 * 4
    for k in range(actions):
        out[k] = state[HEADER + k]
    for j in range(0, whole, 4):
        a = _weights(actions, indices[j])
        b = _weights(actions, indices[j + 1])
        c = _weights(actions, indices[j + 2])
        d = _weights(actions, indices[j + 3])
        x, y, z, w = values[j], values[j + 1], values[j + 2], values[j + 3]
        for k in range(actions):
            i = np.uint64(k)
            out[k] = out[k] + x * state[a + i] + y * state[b + i] + z * state[c + i] + w * state[d + i]
    for j in range(whole, entries):
        a = _weights(actions, indices[j])
        x = values[j]
        for k in range(actions):
            out[k] += x * state[a + np.uint64(k)]


@inlined
def decayed(state):
    return state[PARAMETER] / (1.0 + state[PARAMETER_DECAY] * state[UPDATES])


@inlined
def _argmax(values):
    """The index of the largest value; in a tie, the first."""
    best = 0
    top = values[0]
    for k in range(1, values.shape[0]):
        if values[k] > top:
            top = values[k]
            best = k
    return best


@inlined
def take_best(out):
    """Probability 1 for the first of the largest values. If one is NaN, all become NaN, which the loop reports."""
    broken = False
    for k in range(out.shape[0]):
        broken = broken or out[k] != out[k]
    best = _argmax(out)
    out[:] = np.nan if broken else 0.0
    out[best] += 1.0


@inlined
def epsilon_greedy_from(state, out, size):
    """The largest scores share 1 - epsilon: at first all are 0, and the order of the labels must not matter."""
    top = out[0]
    for k in range(1, out.shape[0]):
        top = max(top, out[k])
    best = 0
    for k in range(out.shape[0]):
        best += out[k] == top
    epsilon = decayed(state)
    for k in range(out.shape[0]):
        if out[k] == HIDDEN:
            out[k] = 0.0
        else:
            out[k] = epsilon / size + (out[k] == top) * ((1.0 - epsilon) / max(best, 1))


@kernel(PROBABILITIES, counted=False)
def epsilon_greedy(state, x, out):
    _scores(state, x, out)
    epsilon_greedy_from(state, out, out.shape[0])


@kernel(SPARSE_PROBABILITIES, counted=False)
def sparse_epsilon_greedy(state, indices, values, out):
    _sparse_scores(state, indices, values, out)
    epsilon_greedy_from(state, out, out.shape[0])


@inlined
def boltzmann_from(state, out):
    """exp(score / temperature), normalised."""
    top = out[_argmax(out)]
    temperature = decayed(state)
    total = 0.0
    for k in range(out.shape[0]):
        out[k] = math.exp((out[k] - top) / temperature)
        total += out[k]
    for k in range(out.shape[0]):
        out[k] /= total


@kernel(PROBABILITIES, counted=False)
def boltzmann(state, x, out):
    _scores(state, x, out)
    boltzmann_from(state, out)


@kernel(SPARSE_PROBABILITIES, counted=False)
def sparse_boltzmann(state, indices, values, out):
    _sparse_scores(state, indices, values, out)
    boltzmann_from(state, out)


@inlined
def square_cb_from(state, out, size):
    """Inverse gap weighting (Foster, Rakhlin 2020), γ growing as updates**exponent."""
    best = _argmax(out)
    top = out[best]
    gamma = state[PARAMETER] * (1.0 + state[UPDATES]) ** state[PARAMETER_DECAY]
    total = 0.0
    for k in range(out.shape[0]):
        if out[k] == HIDDEN:
            out[k] = 0.0
        elif k != best:
            out[k] = 1.0 / (size + gamma * (top - out[k]))
            total += out[k]
    out[best] = 1.0 - total


@kernel(PROBABILITIES, counted=False)
def square_cb(state, x, out):
    _scores(state, x, out)
    square_cb_from(state, out, out.shape[0])


@kernel(SPARSE_PROBABILITIES, counted=False)
def sparse_square_cb(state, indices, values, out):
    _sparse_scores(state, indices, values, out)
    square_cb_from(state, out, out.shape[0])


@inlined
def from_scores(state, out, size):
    """Turn linear scores into probabilities, for any KIND of policy. `size` actions are eligible."""
    if state[KIND] == EPSILON_GREEDY:
        epsilon_greedy_from(state, out, size)
    elif state[KIND] == BOLTZMANN:
        boltzmann_from(state, out)
    else:
        square_cb_from(state, out, size)


@inlined
def pace_of(state, score, size, reward):
    """The factor of x in the update of the chosen action's weights; size is |x|², plus 1 for the intercept.

    The divisor makes the update implicit (Toulis, Airoldi 2017), so no feature is too large for it.
    """
    curvature = 1.0
    if state[LOGISTIC] == 1.0:
        score = 1.0 / (1.0 + math.exp(-score))
        curvature = 0.25
    rate = state[RATE] / (1.0 + state[RATE_DECAY] * state[UPDATES])
    return rate * (reward - score) / (1.0 + rate * curvature * size)


@inlined
def descend_with(state, x, action, reward):
    start = HEADER + action * (x.shape[0] + 1)
    pace = pace_of(state, affine(state, start, x), dot(x, x) + 1.0, reward)
    for j in range(x.shape[0]):
        state[start + j] += pace * x[j]
    state[start + x.shape[0]] += pace
    state[UPDATES] += 1.0


@kernel(UPDATE, counted=False)
def descend(state, x, action, reward):
    descend_with(state, x, action, reward)


@kernel(SPARSE_UPDATE, counted=False)
def sparse_descend(state, indices, values, action, reward):
    """No index may occur twice, or |x|² would be wrong."""
    actions = np.int64(state[N_ACTIONS])
    k = np.uint64(action)
    score = state[HEADER + action]
    for j in range(indices.shape[0]):
        score += values[j] * state[_weights(actions, indices[j]) + k]
    pace = pace_of(state, score, dot(values, values) + 1.0, reward)
    for j in range(indices.shape[0]):
        state[_weights(actions, indices[j]) + k] += pace * values[j]
    state[HEADER + action] += pace
    state[UPDATES] += 1.0


# LinUCB with a model for each action (Li, Chu, Langford, Schapire 2010, algorithm 1), with an intercept. The state has
# for each action b (d + 1), then A⁻¹ (d + 1, d + 1), which is updated by the formula of Sherman and Morrison.


@helper
def _feature(x, i):
    return x[i] if i < x.shape[0] else 1.0


@inlined
def _lin_ucb_bound(state, x, k):
    size = x.shape[0] + 1
    b = HEADER + k * size * (size + 1)
    mean = 0.0
    variance = 0.0
    for i in range(size):
        z = affine(state, b + size * (i + 1), x)
        mean += state[b + i] * z
        variance += z * _feature(x, i)
    return mean + state[PARAMETER] * math.sqrt(max(variance, 0.0))


@kernel(PROBABILITIES, counted=False)
def lin_ucb(state, x, out):
    for k in range(out.shape[0]):
        out[k] = _lin_ucb_bound(state, x, k)
    take_best(out)


@kernel(UPDATE)
def lin_ucb_update(state, x, action, reward):
    size = x.shape[0] + 1
    b = HEADER + action * size * (size + 1)
    z = np.empty(size)
    scale = 1.0
    for i in range(size):
        z[i] = affine(state, b + size * (i + 1), x)
        state[b + i] += reward * _feature(x, i)
        scale += z[i] * _feature(x, i)
    for i in range(size):
        for j in range(size):
            state[b + size * (i + 1) + j] -= z[i] * z[j] / scale
    state[UPDATES] += 1.0


# Policies without contexts. The state has for each action a count and a sum of rewards, or a log-weight.


@inlined
def _ucb1_bound(state, k, actions):
    count = state[HEADER + k]
    if count == 0.0:
        return np.inf
    bonus = math.sqrt(math.log(state[UPDATES]) / count)
    return state[HEADER + actions + k] / count + state[PARAMETER] * bonus


@kernel(PROBABILITIES, counted=False)
def ucb1(state, x, out):
    """Takes every action once, then the one with the largest upper bound (Auer, Cesa-Bianchi, Fischer 2002)."""
    for k in range(out.shape[0]):
        out[k] = _ucb1_bound(state, k, out.shape[0])
    take_best(out)


@kernel(UPDATE, counted=False)
def ucb1_update(state, x, action, reward):
    actions = np.int64(state[N_ACTIONS])
    state[HEADER + action] += 1.0
    state[HEADER + actions + action] += reward
    state[UPDATES] += 1.0


@helper
def _exp3_probability(state, action, actions, top, total):
    gamma = state[PARAMETER]
    return (1.0 - gamma) * math.exp(state[HEADER + action] - top) / total + gamma / actions


@helper
def _exp3_total(state, actions):
    top = state[HEADER]
    for k in range(1, actions):
        top = max(top, state[HEADER + k])
    total = 0.0
    for k in range(actions):
        total += math.exp(state[HEADER + k] - top)
    return top, total


@kernel(PROBABILITIES, counted=False)
def exp3(state, x, out):
    """Exponential weights mixed with the uniform distribution (Auer, Cesa-Bianchi, Freund, Schapire 2002)."""
    actions = out.shape[0]
    top, total = _exp3_total(state, actions)
    for k in range(actions):
        out[k] = _exp3_probability(state, k, actions, top, total)


@kernel(UPDATE, counted=False)
def exp3_update(state, x, action, reward):
    actions = np.int64(state[N_ACTIONS])
    top, total = _exp3_total(state, actions)
    pi = _exp3_probability(state, action, actions, top, total)
    state[HEADER + action] += state[PARAMETER] * reward / (pi * actions)
    state[UPDATES] += 1.0


# The same policies on logs with eligible sets: K is the number of eligible actions, for which `eligible` has 1. Scores
# of the others are HIDDEN.


@inlined
def _hide(eligible, out):
    """Hide the scores of actions that are not eligible. Returns the number of the others."""
    size = 0
    for k in range(out.shape[0]):
        out[k] = out[k] if eligible[k] != 0 else HIDDEN
        size += eligible[k] != 0
    return size


@kernel(ELIGIBLE_PROBABILITIES, counted=False)
def eligible_linear(state, x, eligible, out):
    """Any policy with linear scores."""
    _scores(state, x, out)
    from_scores(state, out, _hide(eligible, out))


@kernel(SPARSE_ELIGIBLE_PROBABILITIES, counted=False)
def sparse_eligible_linear(state, indices, values, eligible, out):
    _sparse_scores(state, indices, values, out)
    from_scores(state, out, _hide(eligible, out))


@kernel(ELIGIBLE_PROBABILITIES, counted=False)
def eligible_lin_ucb(state, x, eligible, out):
    for k in range(out.shape[0]):
        out[k] = _lin_ucb_bound(state, x, k) if eligible[k] != 0 else HIDDEN
    take_best(out)


@kernel(ELIGIBLE_PROBABILITIES, counted=False)
def eligible_ucb1(state, x, eligible, out):
    """The largest upper bound of the eligible actions, as in Kleinberg, Niculescu-Mizil, Sharma (2010)."""
    for k in range(out.shape[0]):
        out[k] = _ucb1_bound(state, k, out.shape[0]) if eligible[k] != 0 else HIDDEN
    take_best(out)


@helper
def _eligible_exp3_total(state, eligible):
    top = -np.inf
    size = 0
    for k in range(eligible.shape[0]):
        if eligible[k] != 0:
            top = max(top, state[HEADER + k])
            size += 1
    total = 0.0
    for k in range(eligible.shape[0]):
        if eligible[k] != 0:
            total += math.exp(state[HEADER + k] - top)
    return size, top, total


@kernel(ELIGIBLE_PROBABILITIES, counted=False)
def eligible_exp3(state, x, eligible, out):
    size, top, total = _eligible_exp3_total(state, eligible)
    for k in range(out.shape[0]):
        out[k] = _exp3_probability(state, k, size, top, total) if eligible[k] != 0 else 0.0


@kernel(ELIGIBLE_UPDATE, counted=False)
def eligible_exp3_update(state, x, eligible, action, reward):
    size, top, total = _eligible_exp3_total(state, eligible)
    pi = _exp3_probability(state, action, size, top, total)
    state[HEADER + action] += state[PARAMETER] * reward / (pi * size)
    state[UPDATES] += 1.0
