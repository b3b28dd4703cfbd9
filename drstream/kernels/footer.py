"""Finds what the footer of a Parquet file says about its columns: where they are, and their statistics."""

import numpy as np

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import I8_2, I8_3, U1_IN, int64
from drstream.kernels.thrift import BINARY, DAMAGED, FIELD, INTEGER, begin, step

# fields on the way: row groups of the file, columns of a row group, metadata of a column, statistics in them
ROW_GROUPS, COLUMNS, METADATA, STATISTICS = 4, 1, 3, 12
MAX_VALUE, MIN_VALUE = 5, 6

# fields of the metadata of a column
TYPE, CODEC, VALUES, BYTES, DATA, DICTIONARY = 1, 4, 5, 7, 9, 11
FIELDS = 12  # fields that are kept; field 0 is 1 for a column that is in another file


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


@kernel(int64(U1_IN, I8_2, I8_3))
def find_columns(data, levels, found):
    """Set found[group, column] to the fields of the column's metadata. Returns -1 if data are damaged.

    found  (row groups, columns, FIELDS), 0 at first.
    """
    place, depth = np.int64(0), np.int64(0)
    begin(levels)
    while depth >= 0:
        kind, value, place, depth = step(data, place, levels, depth)
        if kind == DAMAGED:
            return -1
        if depth < 4 or not _in_column(levels):
            continue
        group, column, field = levels[FIELD, 1] - 1, levels[FIELD, 3] - 1, levels[FIELD, 5]
        if group >= found.shape[0] or column >= found.shape[1]:
            return -1
        if kind == BINARY and depth == 4 and levels[FIELD, 4] == 1:
            found[group, column, 0] = 1
        if kind == INTEGER and depth == 5 and levels[FIELD, 4] == METADATA and field < FIELDS:
            found[group, column, field] = value
    return place
