"""Checks whether numbers are usable. The first pass vectorises; only if it fails, a second one finds the bad one."""

import numpy as np

from drstream.kernels._jit import kernel
from drstream.kernels._types import F4_IN, F8_IN, I4_IN, int64


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
