"""The sets of actions that events could choose from: whether they are usable, and their actions as bits.

The set of event i is actions[starts[i]:starts[i + 1]]. As bits, action a is bit a % 32 of the event's word a // 32.
Words are (W, n), so that loops over events vectorise: words of 32 bits, as wide as the scores that they stand beside.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel
from drstream.kernels._types import F8, I4, I4_IN, I8, I8_IN, U1, U4_2, int64, void

GOOD, WITHOUT, TWICE, UNKNOWN, NULL, EMPTY = range(6)  # what can be wrong with a set; the largest is said
NULL_ACTION = -2  # stands for an item that is null; other numbers outside of 0..K-1 stand for unknown labels
ONE, LOW, WIDTH = np.uint64(1), np.uint64(2**32 - 1), np.uint64(32)
BIT, FIVE, THIRTY_ONE = np.uint32(1), np.uint32(5), np.uint32(31)


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


@helper
def fill_words(starts, actions, first, last, out):
    """out (W, last - first): the sets of the events first..last as bits. They are usable."""
    words = out.shape[0]
    for i in range(first, last):
        if words <= 2:  # the bits of one event stay in a register: half the time
            found = np.uint64(0)
            for j in range(starts[i], starts[i + 1]):
                found |= ONE << np.uint64(actions[j])
            out[0, i - first] = np.uint32(found & LOW)
            if words == 2:
                out[1, i - first] = np.uint32(found >> WIDTH)
        else:
            for word in range(words):
                out[word, i - first] = 0
            for j in range(starts[i], starts[i + 1]):
                a = np.uint32(actions[j])
                out[a >> FIVE, i - first] |= BIT << (a & THIRTY_ONE)


@kernel(void(I8_IN, I4_IN, U4_2))
def fill_bits(starts, actions, out):
    """The same for all events."""
    fill_words(starts, actions, 0, out.shape[1], out)


@kernel(void(I8_IN, I4_IN, F8))
def add_even(starts, actions, out):
    """out (K) gains the probabilities of the policy that takes each action of a set equally often."""
    for i in range(starts.shape[0] - 1):
        share = 1.0 / (starts[i + 1] - starts[i])
        for j in range(starts[i], starts[i + 1]):
            out[actions[j]] += share


@kernel(void(I8_IN, I4_IN, I8_IN, I8_IN, I4))
def take_rows(starts, actions, rows, places, out):
    """Copy the sets of some events. The copy of the i-th begins at places[i]."""
    for i in range(rows.shape[0]):
        first = starts[rows[i]]
        for j in range(places[i], places[i + 1]):
            out[j] = actions[first + j - places[i]]
