"""The sets of actions that events could choose from: whether they are usable, and their actions as bits.

The set of event i is actions[starts[i]:starts[i + 1]]. As bits, action a is bit a % 64 of the event's word a // 64.
Words are (W, n), so that loops over events vectorise.
"""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import I4_IN, I8, I8_IN, U1, U8_2, int64, void

GOOD, WITHOUT, TWICE, UNKNOWN, NULL, EMPTY = range(6)  # what can be wrong with a set; the largest is said
NULL_ACTION = -2  # stands for an item that is null; other numbers outside of 0..K-1 stand for unknown labels
ONE = np.uint64(1)
LOW = np.uint64(63)


@kernel(int64(I8_IN, I4_IN, int64, I4_IN, I8, U1))
def judge(starts, actions, n_actions, logged, seen, wrong):
    """Say what is wrong with each set. Returns how many are bad.

    logged  The logged actions, which must be in their sets. It may be empty, and is then not looked at.
    seen    (K) that begin as -1: the last event whose set has the action.
    """
    bad = 0
    for i in range(starts.shape[0] - 1):
        state = EMPTY if starts[i] == starts[i + 1] else GOOD
        for j in range(starts[i], starts[i + 1]):
            a = actions[j]
            if a < 0 or a >= n_actions:
                state = max(state, NULL if a == NULL_ACTION else UNKNOWN)
                continue
            if seen[a] == i:
                state = max(state, TWICE)
            seen[a] = i
        if logged.shape[0] > 0:
            a = logged[i]
            if a < 0 or a >= n_actions or seen[a] != i:
                state = max(state, WITHOUT)
        wrong[i] = state
        bad += state != GOOD
    return bad


@kernel(void(I8_IN, I4_IN, U8_2))
def fill_bits(starts, actions, out):
    """out (W, n): the sets as bits. They are usable."""
    for i in range(out.shape[1]):
        for word in range(out.shape[0]):
            out[word, i] = 0
        if out.shape[0] == 1:
            found = np.uint64(0)
            for j in range(starts[i], starts[i + 1]):
                found |= ONE << np.uint64(actions[j])
            out[0, i] = found
        else:
            for j in range(starts[i], starts[i + 1]):
                a = np.uint64(actions[j])
                out[a >> np.uint64(6), i] |= ONE << (a & LOW)
