"""Where each of many integers stands among the labels: a hash table with open addressing and linear probing.

Arrow makes a new table for each batch: of 100,000 labels over a wide range, that takes 7 times as long.
"""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import I4, I4_IN, U8, U8_IN, void
from drstream.kernels.random import GAMMA

S32 = np.uint64(32)


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
