"""Finds statistics of one column in the footer of a Parquet file, which is a structure in Thrift's compact protocol.

The file may be damaged. So nothing here trusts a length, and what makes no sense ends the search.
"""

import numpy as np

from drstream.kernels._jit import inlined, kernel
from drstream.kernels._types import I8_2, U1_IN, int64

# types of values
BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 3, 7, 8, 9, 10, 12

# fields on the way: row groups of the file, columns of a row group, metadata of a column, statistics in them
ROW_GROUPS, COLUMNS, METADATA, STATISTICS = 4, 1, 3, 12
MAX_VALUE, MIN_VALUE = 5, 6
DEPTH = 16  # most levels; a footer has seven

DAMAGED, END = -1, -2  # instead of a type

# rows of `levels`
FIELD, LEFT, KIND = 0, 1, 2  # number of the field or item; items that are left, or -1 in a structure; type of items


@kernel(int64(U1_IN, int64, I8_2, I8_2))
def find_statistics(data, column, levels, found):
    """Set found[group] to start and length of the smallest value, then of the largest. Returns -1 if data are damaged.

    column  Number of the column among those that are stored.
    levels  Space, (3, DEPTH).
    found   (row groups, 4), -1 at first.
    """
    size = data.shape[0]
    place, depth = np.int64(0), 0
    levels[FIELD, 0], levels[LEFT, 0] = 0, -1
    while depth >= 0:
        kind, place = _next(data, place, levels, depth)
        if kind == DAMAGED:
            return -1
        if kind == END:
            depth -= 1
            continue
        if kind <= BYTE or kind == DOUBLE:
            place += 8 if kind == DOUBLE else 1 if kind == BYTE else 0
            continue
        length = np.int64(0)
        if kind in (LIST, SET):
            if place >= size:
                return -1
            levels[KIND, min(depth + 1, DEPTH - 1)] = np.int64(data[place]) & 15
            length = np.int64(data[place]) >> 4
            place += 1
        if kind < DOUBLE or kind == BINARY or length == 15:
            length, place = _number(data, place)
            if place < 0:
                return -1
        if kind < DOUBLE:
            continue
        if kind == BINARY:
            if length < 0 or length > size - place:
                return -1
            _note(levels, depth, column, found, place, length)
            place += length
            continue
        if depth + 1 == DEPTH or kind > STRUCT or kind == 11 or length < 0 or length > size:
            return -1
        depth += 1
        levels[FIELD, depth], levels[LEFT, depth] = 0, (-1 if kind == STRUCT else length)
    return place


@inlined
def _next(data, place, levels, depth):
    """Return the type of the next field or item, END or DAMAGED, and the place after its head."""
    if levels[LEFT, depth] == 0:
        return END, place
    if levels[LEFT, depth] > 0:
        levels[LEFT, depth] -= 1
        levels[FIELD, depth] += 1
        return max(levels[KIND, depth], BYTE), place  # booleans in a list take a byte, as fields none
    if place >= data.shape[0]:
        return DAMAGED, place
    head = np.int64(data[place])
    if head == 0:
        return END, place + 1
    if head >> 4 == 0:
        return DAMAGED, place  # a field far from the one before: footers have none
    levels[FIELD, depth] += head >> 4
    return head & 15, place + 1


@inlined
def _number(data, place):
    """Return a number in pieces of seven bits, and the place after it, or -1 if it does not end."""
    value, shift = np.int64(0), np.int64(0)
    while place < data.shape[0] and shift <= 63:
        value |= (np.int64(data[place]) & 127) << shift
        shift += 7
        place += 1
        if data[place - 1] < 128:
            return value, place
    return value, np.int64(-1)


@inlined
def _note(levels, depth, column, found, place, length):
    """Keep where a value is if it is a bound of the column."""
    wanted = depth == 6 and levels[FIELD, 0] == ROW_GROUPS and levels[FIELD, 2] == COLUMNS
    wanted = wanted and levels[FIELD, 3] == column + 1 and levels[FIELD, 4] == METADATA
    if wanted and levels[FIELD, 5] == STATISTICS and levels[FIELD, 1] <= found.shape[0]:
        if levels[FIELD, 6] == MIN_VALUE:
            found[levels[FIELD, 1] - 1, 0], found[levels[FIELD, 1] - 1, 1] = place, length
        if levels[FIELD, 6] == MAX_VALUE:
            found[levels[FIELD, 1] - 1, 2], found[levels[FIELD, 1] - 1, 3] = place, length
