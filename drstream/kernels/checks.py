"""Checks whether events are usable. The first pass vectorises; only if it fails, a second one finds the bad event."""

import numpy as np

from drstream.kernels._jit import helper, kernel, uncounted
from drstream.kernels._types import F4_IN, F8_IN, I4_IN, int64


@helper
def usable(action, actions, reward, propensity):
    return abs(reward) < np.inf and propensity > 0.0 and propensity <= 1.0 and 0 <= action < actions


@uncounted
def all_usable(action, actions, reward, propensity):
    """Whether all events can be used. Empty arrays of actions or propensities are not checked."""
    bad = 0
    for i in range(reward.shape[0]):
        bad |= not abs(reward[i]) < np.inf
    for i in range(propensity.shape[0]):
        bad |= not (propensity[i] > 0.0 and propensity[i] <= 1.0)
    for i in range(action.shape[0]):
        bad |= action[i] < 0 or action[i] >= actions
    return bad == 0


@kernel(int64(I4_IN, int64, F8_IN, F8_IN))
def first_bad(action, actions, reward, propensity):
    """The first event that cannot be used, or -1. Empty arrays of actions or propensities are not checked."""
    if all_usable(action, actions, reward, propensity):
        return -1
    i = 0
    while usable(
        action[i] if action.shape[0] > 0 else 0,
        max(actions, 1),
        reward[i],
        propensity[i] if propensity.shape[0] > 0 else 1.0,
    ):
        i += 1
    return i


@kernel(int64(I4_IN, int64))
def first_outside(index, size):
    """The first index that is not in 0..size-1, or -1."""
    bad = 0
    for i in range(index.shape[0]):
        bad |= index[i] < 0 or index[i] >= size
    if bad == 0:
        return -1
    i = 0
    while 0 <= index[i] < size:
        i += 1
    return i


@kernel(int64(F4_IN), int64(F8_IN))
def first_not_finite(x):
    """The first NaN or infinity, or -1."""
    bad = 0
    for i in range(x.shape[0]):
        bad |= not abs(x[i]) < np.inf
    if bad == 0:
        return -1
    i = 0
    while abs(x[i]) < np.inf:
        i += 1
    return i
