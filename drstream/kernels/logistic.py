"""Losses of logistic regressions and their derivatives, for events whose contexts are (d, n), feature by feature."""

import math

from drstream.kernels._jit import kernel
from drstream.kernels._types import F8, F8_2, F8_IN, F8_IN2, I4_IN, float64, void


@kernel(void(F8_IN2, F8_IN2, I4_IN, F8))
def logged_scores(weights, features, action, out):
    """out[i] += weights[:, a_i] . x_i; weights are (d, K)."""
    for j in range(features.shape[0]):
        w = weights[j]
        x = features[j]
        for i in range(out.shape[0]):
            out[i] += w[action[i]] * x[i]


@kernel(void(F8_IN, F8_IN2, I4_IN, F8_2))
def add_logged(factor, features, action, out):
    """out[:, a_i] += factor_i x_i; out is (d, K)."""
    for j in range(features.shape[0]):
        x = features[j]
        total = out[j]
        for i in range(factor.shape[0]):
            total[action[i]] += factor[i] * x[i]


@kernel(float64(F8, F8_IN))
def binary_errors(scores, reward):
    """The loss Σ log(1 + exp(s)) - r s; scores <- the derivative of the loss, σ(s) - r."""
    loss = 0.0
    for i in range(scores.shape[0]):
        s = scores[i]
        small = math.exp(-abs(s))
        loss += max(s, 0.0) + math.log1p(small) - reward[i] * s
        scores[i] = (1.0 if s >= 0.0 else small) / (1.0 + small) - reward[i]
    return loss


@kernel(float64(F8_2, I4_IN))
def choice_errors(probabilities, action):
    """The loss -Σ log p(a_i|x_i); probabilities (K, n) <- the derivative of the loss by the scores."""
    loss = 0.0
    for i in range(action.shape[0]):
        p = probabilities[action[i], i]
        loss -= math.log(p)
        probabilities[action[i], i] = p - 1.0
    return loss


@kernel(void(F8))
def logistic(scores):
    """scores <- 1 / (1 + exp(-score))."""
    for i in range(scores.shape[0]):
        small = math.exp(-abs(scores[i]))
        scores[i] = (1.0 if scores[i] >= 0.0 else small) / (1.0 + small)
