"""Walks through a structure in Thrift's compact protocol, as Parquet files have them: footers, and heads of pages.

The file may be damaged. So nothing here trusts a length, and what makes no sense ends the walk.
"""

import numpy as np

from drstream.kernels._jit import helper, inlined

# types of values; integers have 4 to 6
TRUE, FALSE, BYTE, INTEGER, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 12
DEPTH = 16  # most levels; a footer has seven
DAMAGED, END = -1, -2  # instead of a type

# rows of `levels`
FIELD, LEFT, KIND = 0, 1, 2  # number of the field or item; items that are left, or -1 in a structure; type of items
MOST = np.int64(2**63 - 1)


@helper
def begin(levels):
    levels[FIELD, 0], levels[LEFT, 0] = 0, -1


@helper
def step(data, place, levels, depth):
    """Go over the next field or item. Returns its type, its value, and the next place and depth.

    The types that matter are DAMAGED, INTEGER of any size, and BINARY, whose value is its length; it ends at the next
    place. levels[FIELD] says what it is. `levels` is (3, DEPTH), after `begin`; a depth of -1 is the end.
    """
    size, nothing = data.shape[0], np.int64(0)
    kind, place = _next(data, place, levels, depth)
    if kind == DAMAGED:
        return DAMAGED, nothing, place, depth
    if kind == END:
        return END, nothing, place, depth - 1
    if kind <= BYTE or kind == DOUBLE:
        return kind, nothing, place + (8 if kind == DOUBLE else 1 if kind == BYTE else 0), depth
    length = nothing
    if kind in (LIST, SET):
        if place >= size:
            return DAMAGED, nothing, place, depth
        levels[KIND, min(depth + 1, DEPTH - 1)] = np.int64(data[place]) & 15
        length = np.int64(data[place]) >> 4
        place += 1
    if kind < DOUBLE or kind == BINARY or length == 15:
        length, place = _number(data, place)
        if place < 0:
            return DAMAGED, nothing, place, depth
    if kind < DOUBLE:
        return INTEGER, ((length >> 1) & MOST) ^ -(length & 1), place, depth
    if length < 0 or length > size - place:
        return DAMAGED, nothing, place, depth
    if kind == BINARY:
        return BINARY, length, place + length, depth
    if depth + 1 == DEPTH or kind > STRUCT or kind == 11:
        return DAMAGED, nothing, place, depth
    levels[FIELD, depth + 1], levels[LEFT, depth + 1] = 0, (-1 if kind == STRUCT else length)
    return kind, nothing, place, depth + 1


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
        return DAMAGED, place  # a field far from the one before: Parquet has none
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
