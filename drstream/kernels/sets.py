"""The sets of actions that events could choose from: whether they are usable, and their actions as bits.

The set of event i is actions[starts[i]:starts[i + 1]]. As bits, action a is bit a % 32 of the event's word a // 32.
Words are (W, n), so that loops over events vectorise: words of 32 bits, as wide as the scores that they stand beside.
"""

import numpy as np

from drstream.kernels._jit import helper, kernel, uncounted
from drstream.kernels._types import F8, I4, I4_IN, I8, I8_IN, U1, U4_2, U8, U8_IN, int64, void

GOOD, WITHOUT, TWICE, UNKNOWN, NULL, EMPTY = range(6)  # what can be wrong with a set; the largest is said
NULL_ACTION = -2  # stands for an item that is null; other numbers outside of 0..K-1 stand for unknown labels
LATER = -3  # instead of a logged action: it is not looked at
ONE, SIX_BITS, LOW, WIDTH = np.uint64(1), np.uint64(63), np.uint64(2**32 - 1), np.uint64(32)
PAIRS, FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
EIGHTS, BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
TWO, FOUR, TOP = np.uint64(2), np.uint64(4), np.uint64(56)
BIT, FIVE, THIRTY_ONE = np.uint32(1), np.uint32(5), np.uint32(31)


@helper
def _wrong_with(actions, first, last, n_actions, logged, seen, mark):
    """What is wrong with one set. `logged` is the action that it must have, or LATER."""
    state = EMPTY if first == last else GOOD
    for j in range(first, last):
        a = actions[j]
        if a < 0 or a >= n_actions:
            state = max(state, NULL if a == NULL_ACTION else UNKNOWN)
            continue
        if seen[a] == mark:
            state = max(state, TWICE)
        seen[a] = mark
    if logged != LATER and (logged < 0 or logged >= n_actions or seen[logged] != mark):
        state = max(state, WITHOUT)
    return state


@helper
def _number_of_bits(x):
    x = x - ((x >> ONE) & PAIRS)
    x = (x & FOURS) + ((x >> TWO) & FOURS)
    x = (x + (x >> FOUR)) & EIGHTS
    return (x * BYTES) >> TOP


@helper
def _word(actions, first, last, n_actions, logged):
    """A set of at most 64 actions as bits; 0 if something is wrong with it. The loop vectorises."""
    found, largest = np.uint64(0), np.uint32(0)
    for j in range(first, last):
        a = np.uint32(actions[j])
        largest = max(largest, a)
        found |= ONE << (np.uint64(a) & SIX_BITS)
    good = largest < n_actions and _number_of_bits(found) == np.uint64(last - first)
    if logged != LATER:
        good = good and 0 <= logged < n_actions and (found >> np.uint64(logged)) & ONE != 0
    return found if good else np.uint64(0)


@kernel(int64(I8_IN, I4_IN, int64, I4_IN, I8, U1, U8))
def judge(starts, actions, n_actions, logged, seen, wrong, words):
    """Say what is wrong with each set. Returns how many are bad.

    logged  The logged actions, which must be in their sets. It may be empty, and is then not looked at.
    seen    (K) that begin as -1: the last event whose set has the action.
    words   Receives the sets as bits. Empty if there are more than 64 actions.
    """
    bad = 0
    for i in range(starts.shape[0] - 1):
        wanted = logged[i] if logged.shape[0] > 0 else LATER
        if words.shape[0] > 0:  # a third of the time
            words[i] = _word(actions, starts[i], starts[i + 1], n_actions, wanted)
        if words.shape[0] > 0 and words[i] != 0:
            wrong[i] = GOOD
        else:
            wrong[i] = _wrong_with(actions, starts[i], starts[i + 1], n_actions, wanted, seen, i)
        bad += wrong[i] != GOOD
    return bad


@uncounted
def split_words(words, first, last, out):
    """out (W, last - first): sets of at most 64 actions, whose bits are in one word each, as fill_words does it."""
    for i in range(first, last):
        out[0, i - first] = np.uint32(words[i] & LOW)
    if out.shape[0] == 2:
        for i in range(first, last):
            out[1, i - first] = np.uint32(words[i] >> WIDTH)


@uncounted
def fill_words(starts, actions, first, last, out):
    """out (W, last - first): the sets of the events first..last as bits. They are usable."""
    for i in range(first, last):
        for word in range(out.shape[0]):
            out[word, i - first] = 0
        for j in range(starts[i], starts[i + 1]):
            a = np.uint32(actions[j])
            out[a >> FIVE, i - first] |= BIT << (a & THIRTY_ONE)


@kernel(void(I8_IN, I4_IN, U8_IN, U4_2))
def fill_bits(starts, actions, words, out):
    """out (W, n): the sets as bits, from words where there are some."""
    if words.shape[0] > 0:
        split_words(words, 0, out.shape[1], out)
    else:
        fill_words(starts, actions, 0, out.shape[1], out)


@kernel(void(I8_IN, I4_IN, I4_IN, U1))
def has(starts, actions, wanted, out):
    """out = whether the set of an event has the action that is wanted of it."""
    for i in range(wanted.shape[0]):
        found = 0
        for j in range(starts[i], starts[i + 1]):
            found |= actions[j] == wanted[i]
        out[i] = found


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
