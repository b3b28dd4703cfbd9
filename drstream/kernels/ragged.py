"""Rows of different lengths: those of event i are at starts[i]..starts[i + 1] of flat arrays."""

import numpy as np

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import I4, I8, I8_IN, U8, U8_IN, int64
from drstream.kernels.random import GAMMA

S32 = np.uint64(32)
NOWHERE, TWICE = -1, -2  # instead of a position: no candidate has the key; two have the same key


@inlined
def place_of(key, table, used, mark):
    """The place in an open-addressing table that holds the key, or where it belongs. Places of other marks are free."""
    mask = np.uint64(table.shape[0] - 1)
    place = ((key * GAMMA) >> S32) & mask
    while used[place] == mark and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@kernel(int64(I8_IN, U8_IN, U8_IN, U8, I8, I4))
def locate(starts, keys, logged, table, used, out):
    """out[i] <- where event i's logged key is among its own keys, `NOWHERE` or `TWICE`. Returns the first such event.

    logged       Empty if only keys that are there twice are looked for: out is 0 then.
    table, used  Scratch, as long as a power of two that is twice the longest list. `used` is -1 everywhere.
    """
    bad = -1
    for i in range(starts.shape[0] - 1):
        first = starts[i]
        found = 0 if logged.shape[0] == 0 else NOWHERE
        for c in range(first, starts[i + 1]):
            place = place_of(keys[c], table, used, i)
            if used[place] == i:
                found = TWICE
                break
            table[place] = keys[c]
            used[place] = i
            if logged.shape[0] > 0 and keys[c] == logged[i]:
                found = c - first
        out[i] = found
        if found < 0 and bad < 0:
            bad = i
    return bad


@kernel(int64(U8_IN, U8, I8))
def index_keys(keys, table, places):
    """Put keys into a table, whose `places` are -1. Returns the first key that is there twice, or -1."""
    for i in range(keys.shape[0]):
        place = _seat(keys[i], table, places)
        if places[place] >= 0:
            return i
        table[place] = keys[i]
        places[place] = i
    return -1


@inlined
def _seat(key, table, places):
    mask = np.uint64(table.shape[0] - 1)
    place = ((key * GAMMA) >> S32) & mask
    while places[place] >= 0 and table[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@kernel(int64(U8_IN, U8_IN, I8_IN, I8))
def look_up(keys, table, places, out):
    """out[c] <- the index of key c, or -1. Returns the first key that the table lacks, or -1."""
    bad = -1
    for c in range(keys.shape[0]):
        found = places[_seat(keys[c], table, places)]
        out[c] = found
        if found < 0 and bad < 0:
            bad = c
    return bad
