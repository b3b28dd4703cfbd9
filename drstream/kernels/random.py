"""Random numbers that are a function of (seed, row) alone, so that no batch, thread or restart changes them."""

import numpy as np

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import F8, I8, I8_IN, U1_IN, U8, U8_IN, int64

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # splitmix64 (Steele, Lea, Flood 2014), with its finaliser used twice
MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@inlined
def mix(z):
    z = (z ^ (z >> S30)) * MULTIPLY_1
    z = (z ^ (z >> S27)) * MULTIPLY_2
    return z ^ (z >> S31)


@inlined
def uniform(key, row):
    return (mix(mix(row * GAMMA + key) ^ key) >> S11) * 2.0**-53


@kernel(F8(U8_IN, U8_IN))
def uniforms(seed, rows):
    """One number in [0, 1) for each row; `seed` is an array of one."""
    out = np.empty(rows.shape[0])
    key = key_of(seed[0])
    for i in range(rows.shape[0]):
        out[i] = uniform(key, rows[i])
    return out


@inlined
def key_of(seed):
    return mix(mix(seed * GAMMA + GAMMA))


@inlined
def fold_of(key, row, count):
    """The last f whose f / count is not above the row's number."""
    u = uniform(key, row)
    f = float(int(u * count))  # or the next one, as the product is rounded
    f -= 1.0 if u < f / count else 0.0
    f += 1.0 if u >= (f + 1.0) / count else 0.0
    return int(f)


@kernel(I8(U8_IN, U8_IN, int64))
def folds(seed, rows, count):
    """The fold of each row."""
    out = np.empty(rows.shape[0], np.int64)
    key = key_of(seed[0])
    for i in range(rows.shape[0]):
        out[i] = fold_of(key, rows[i], count)
    return out


@kernel(U8(I8_IN, U1_IN))
def hash_texts(starts, data):
    """FNV-1a (Fowler, Noll, Vo) of the bytes data[starts[i]:starts[i + 1]], for each i."""
    out = np.empty(starts.shape[0] - 1, np.uint64)
    for i in range(out.shape[0]):
        h = FNV_START
        for j in range(starts[i], starts[i + 1]):
            h = (h ^ np.uint64(data[j])) * FNV_PRIME
        out[i] = h
    return out
