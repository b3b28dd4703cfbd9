"""Sets of integers, and where each stands: hash tables with open addressing and linear probing."""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import I4, I4_IN, I8, U8, U8_IN, int64, void
from drstream.kernels.random import GAMMA

S32 = np.uint64(32)
EMPTY = np.uint64(0)  # an unused place of the table; 0 itself is noted apart


@kernel(int64(U8_IN, U8, I8))
def add_distinct(values, table, counts):
    """Add the values to the table, until it is half full. Returns how many were added.

    table   Its length is a power of two.
    counts  How many places are used, and whether 0 was added.
    """
    mask = np.uint64(table.shape[0] - 1)
    most = table.shape[0] // 2
    used = counts[0]
    done = values.shape[0]
    for i in range(values.shape[0]):
        value = values[i]
        if value == EMPTY:
            counts[1] = 1
            continue
        place = ((value * GAMMA) >> S32) & mask
        while table[place] != value and table[place] != EMPTY:
            place = (place + np.uint64(1)) & mask
        if table[place] == EMPTY:
            if used == most:
                done = i
                break
            table[place] = value
            used += 1
    counts[0] = used
    return done


@kernel(void(U8_IN, U8, I4))
def fill_places(values, table, places):
    """Put the values, which are all different, into a table that has twice as many places or more, a power of two.

    places  Begins as 0. Where value i is put, it becomes i + 1.
    """
    mask = np.uint64(table.shape[0] - 1)
    for i in range(values.shape[0]):
        place = ((values[i] * GAMMA) >> S32) & mask
        while places[place] != 0:
            place = (place + np.uint64(1)) & mask
        table[place] = values[i]
        places[place] = i + 1


@kernel(void(U8_IN, U8_IN, I4_IN, I4))
def find_places(values, table, places, out):
    """out = which of the values of the table each value is, or -1."""
    mask = np.uint64(table.shape[0] - 1)
    for i in range(values.shape[0]):
        place = ((values[i] * GAMMA) >> S32) & mask
        while places[place] != 0 and table[place] != values[i]:
            place = (place + np.uint64(1)) & mask
        out[i] = places[place] - 1
