"""The compiled policies that learn: for each, its probabilities π_t(·|x) and what it does with an accepted event.

Their state is one flat array of float64: a header of HEADER numbers, then what the policy keeps. `drstream.policies`
makes it.
"""

import math

import numpy as np

from drstream.kernels._jit import helper, inlined, kernel
from drstream.kernels.replay import PROBABILITIES, UPDATE
from drstream.kernels.sums import dot

HEADER = 8
N_ACTIONS, UPDATES = 0, 1  # places of all headers; the others are each policy's own
PARAMETER, PARAMETER_DECAY, RATE, RATE_DECAY, LOGISTIC = 2, 3, 4, 5, 6

# Linear scores by stochastic gradient descent: K rows of d weights and an intercept.


@inlined
def _affine(state, start, x):
    """state[start : start + d] @ x + state[start + d]; rows of a reshaped state would take twice the time."""
    end = start + x.shape[0]
    return dot(x, state[start:end]) + state[end]


@inlined
def _scores(state, x, out):
    for k in range(out.shape[0]):
        out[k] = _affine(state, HEADER + k * (x.shape[0] + 1), x)


@inlined
def _decayed(state):
    return state[PARAMETER] / (1.0 + state[PARAMETER_DECAY] * state[UPDATES])


@inlined
def _argmax(values):
    """The first of the largest."""
    best = 0
    top = values[0]
    for k in range(1, values.shape[0]):
        if values[k] > top:
            top = values[k]
            best = k
    return best


@inlined
def _take_best(out):
    """Probability 1 for the first of the largest; NaN for all if one is NaN, which the loop reports."""
    broken = False
    for k in range(out.shape[0]):
        broken = broken or out[k] != out[k]
    best = _argmax(out)
    out[:] = np.nan if broken else 0.0
    out[best] += 1.0


@kernel(PROBABILITIES)
def epsilon_greedy(state, x, out):
    """The largest scores share what epsilon leaves: at first all are 0, and the order of the labels means nothing."""
    _scores(state, x, out)
    top = out[0]
    for k in range(1, out.shape[0]):
        top = max(top, out[k])
    best = 0
    for k in range(out.shape[0]):
        best += out[k] == top
    epsilon = _decayed(state)
    for k in range(out.shape[0]):
        out[k] = epsilon / out.shape[0] + (out[k] == top) * ((1.0 - epsilon) / max(best, 1))


@kernel(PROBABILITIES)
def boltzmann(state, x, out):
    """exp(score / temperature), normalised."""
    _scores(state, x, out)
    top = out[_argmax(out)]
    temperature = _decayed(state)
    total = 0.0
    for k in range(out.shape[0]):
        out[k] = math.exp((out[k] - top) / temperature)
        total += out[k]
    for k in range(out.shape[0]):
        out[k] /= total


@kernel(PROBABILITIES)
def square_cb(state, x, out):
    """Inverse gap weighting (Foster, Rakhlin 2020), γ growing as updates**exponent."""
    _scores(state, x, out)
    best = _argmax(out)
    top = out[best]
    gamma = state[PARAMETER] * (1.0 + state[UPDATES]) ** state[PARAMETER_DECAY]
    total = 0.0
    for k in range(out.shape[0]):
        if k != best:
            out[k] = 1.0 / (out.shape[0] + gamma * (top - out[k]))
            total += out[k]
    out[best] = 1.0 - total


@kernel(UPDATE)
def descend(state, x, action, reward):
    """One step on the chosen action's weights, divided by what makes it implicit (Toulis, Airoldi 2017): no feature is
    too large for it."""
    start = HEADER + action * (x.shape[0] + 1)
    score = _affine(state, start, x)
    curvature = 1.0
    if state[LOGISTIC] == 1.0:
        score = 1.0 / (1.0 + math.exp(-score))
        curvature = 0.25
    rate = state[RATE] / (1.0 + state[RATE_DECAY] * state[UPDATES])
    pace = rate * (reward - score) / (1.0 + rate * curvature * (dot(x, x) + 1.0))
    for j in range(x.shape[0]):
        state[start + j] += pace * x[j]
    state[start + x.shape[0]] += pace
    state[UPDATES] += 1.0


# LinUCB with a model for each action (Li, Chu, Langford, Schapire 2010, algorithm 1), with an intercept: for each
# action b (d + 1), then A⁻¹ (d + 1, d + 1), kept by the formula of Sherman and Morrison.


@helper
def _feature(x, i):
    return x[i] if i < x.shape[0] else 1.0


@kernel(PROBABILITIES)
def lin_ucb(state, x, out):
    size = x.shape[0] + 1
    for k in range(out.shape[0]):
        b = HEADER + k * size * (size + 1)
        mean = 0.0
        variance = 0.0
        for i in range(size):
            z = _affine(state, b + size * (i + 1), x)
            mean += state[b + i] * z
            variance += z * _feature(x, i)
        out[k] = mean + state[PARAMETER] * math.sqrt(max(variance, 0.0))
    _take_best(out)


@kernel(UPDATE)
def lin_ucb_update(state, x, action, reward):
    size = x.shape[0] + 1
    b = HEADER + action * size * (size + 1)
    z = np.empty(size)
    scale = 1.0
    for i in range(size):
        z[i] = _affine(state, b + size * (i + 1), x)
        state[b + i] += reward * _feature(x, i)
        scale += z[i] * _feature(x, i)
    for i in range(size):
        for j in range(size):
            state[b + size * (i + 1) + j] -= z[i] * z[j] / scale
    state[UPDATES] += 1.0


# Policies that do not look at the context: for each action a count and a sum of rewards, or a log-weight.


@kernel(PROBABILITIES)
def ucb1(state, x, out):
    """Every action once, then the largest upper bound (Auer, Cesa-Bianchi, Fischer 2002)."""
    actions = out.shape[0]
    for k in range(actions):
        count = state[HEADER + k]
        if count == 0.0:
            out[k] = np.inf
        else:
            bonus = math.sqrt(math.log(state[UPDATES]) / count)
            out[k] = state[HEADER + actions + k] / count + state[PARAMETER] * bonus
    _take_best(out)


@kernel(UPDATE)
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


@kernel(PROBABILITIES)
def exp3(state, x, out):
    """Exponential weights mixed with the uniform distribution (Auer, Cesa-Bianchi, Freund, Schapire 2002)."""
    actions = out.shape[0]
    top, total = _exp3_total(state, actions)
    for k in range(actions):
        out[k] = _exp3_probability(state, k, actions, top, total)


@kernel(UPDATE)
def exp3_update(state, x, action, reward):
    actions = np.int64(state[N_ACTIONS])
    top, total = _exp3_total(state, actions)
    pi = _exp3_probability(state, action, actions, top, total)
    state[HEADER + action] += state[PARAMETER] * reward / (pi * actions)
    state[UPDATES] += 1.0
