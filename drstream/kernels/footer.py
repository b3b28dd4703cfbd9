"""Finds what the footer of a Parquet file says about its columns: where they are, and their statistics."""

import numpy as np

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import I8_2, I8_3, I8_IN, U1_IN, int64
from drstream.kernels.thrift import BINARY, DAMAGED, FIELD, INTEGER, begin, step

# fields on the way: row groups of the file, columns of a row group, metadata of a column, statistics in them
ROW_GROUPS, COLUMNS, METADATA, STATISTICS = 4, 1, 3, 12
MAX_VALUE, MIN_VALUE = 5, 6

# what is kept of a column, and the numbers of these fields in its metadata; ELSEWHERE: it is in another file
ELSEWHERE, TYPE, CODEC, VALUES, BYTES, DATA, DICTIONARY = range(7)
NUMBERS = np.array([0, 1, 4, 5, 7, 9, 11])


@inlined
def _in_column(levels):
    """Whether the walk is in what a row group says about a column."""
    return levels[FIELD, 0] == ROW_GROUPS and levels[FIELD, 2] == COLUMNS


@kernel(int64(U1_IN, int64, I8_2, I8_2))
def find_statistics(data, column, levels, found):
    """Set found[group] to start and length of the smallest value, then of the largest. Returns -1 if data are damaged.

    column  Number of the column among those that are stored.
    levels  Space, (3, DEPTH).
    found   (row groups, 4), -1 at first.
    """
    place, depth = np.int64(0), np.int64(0)
    begin(levels)
    while depth >= 0:
        kind, value, place, depth = step(data, place, levels, depth)
        if kind == DAMAGED:
            return -1
        wanted = kind == BINARY and depth == 6 and _in_column(levels) and levels[FIELD, 3] == column + 1
        wanted = wanted and levels[FIELD, 4] == METADATA and levels[FIELD, 5] == STATISTICS
        if wanted and levels[FIELD, 1] <= found.shape[0]:
            if levels[FIELD, 6] == MIN_VALUE:
                found[levels[FIELD, 1] - 1, 0], found[levels[FIELD, 1] - 1, 1] = place - value, value
            if levels[FIELD, 6] == MAX_VALUE:
                found[levels[FIELD, 1] - 1, 2], found[levels[FIELD, 1] - 1, 3] = place - value, value
    return place


@kernel(int64(U1_IN, I8_IN, I8_2, I8_3))
def find_columns(data, slots, levels, found):
    """Set found[group, slots[column]] to what is kept of the column. Returns -1 if data are damaged.

    slots  For each stored column; -1 if it is not wanted.
    found  (row groups, slots, kept), 0 at first.
    """
    place, depth = np.int64(0), np.int64(0)
    begin(levels)
    while depth >= 0:
        kind, value, place, depth = step(data, place, levels, depth)
        if kind == DAMAGED:
            return -1
        if depth < 4 or not _in_column(levels):
            continue
        group, column = levels[FIELD, 1] - 1, levels[FIELD, 3] - 1
        if group >= found.shape[0] or column >= slots.shape[0]:
            return -1
        if slots[column] < 0:
            continue
        about = found[group, slots[column]]
        if kind == BINARY and depth == 4 and levels[FIELD, 4] == 1:
            about[ELSEWHERE] = 1
        if kind == INTEGER and depth == 5 and levels[FIELD, 4] == METADATA:
            for j in range(TYPE, NUMBERS.shape[0]):
                if levels[FIELD, 5] == NUMBERS[j]:
                    about[j] = value
    return place
