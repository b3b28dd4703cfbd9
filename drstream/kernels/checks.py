"""Is every event usable? One pass that vectorises says so; only where one is not, a second finds which and why."""

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F4_IN, F8_IN, I4_IN, int64

FINE, BAD_REWARD, BAD_PROPENSITY, BAD_ACTION = range(4)
HUGE = 1.7976931348623157e308


@helper
def reason(action, actions, reward, propensity):
    """Why an event cannot be used, or FINE."""
    if not abs(reward) <= HUGE:
        return BAD_REWARD
    if not (propensity > 0.0 and propensity <= 1.0):
        return BAD_PROPENSITY
    if action < 0 or action >= actions:
        return BAD_ACTION
    return FINE


@kernel(int64(I4_IN, int64, F8_IN, F8_IN))
def first_bad(action, actions, reward, propensity):
    """The first event that cannot be used, or -1. An empty `action` means that actions are not looked at."""
    bad = 0
    for i in range(reward.shape[0]):
        bad |= not abs(reward[i]) <= HUGE
    for i in range(propensity.shape[0]):
        bad |= not (propensity[i] > 0.0 and propensity[i] <= 1.0)
    for i in range(action.shape[0]):
        bad |= action[i] < 0 or action[i] >= actions
    if bad == 0:
        return -1
    for i in range(reward.shape[0]):
        if reason(action[i] if action.shape[0] > 0 else 0, actions, reward[i], propensity[i]) != FINE:
            return i
    return -1


@kernel(int64(F4_IN), int64(F8_IN))
def first_not_finite(x):
    """The first NaN or infinity, or -1."""
    bad = 0
    for i in range(x.shape[0]):
        bad |= not abs(x[i]) <= HUGE
    if bad == 0:
        return -1
    for i in range(x.shape[0]):
        if not abs(x[i]) <= HUGE:
            return i
    return -1
