"""Decompresses Snappy's format, in which a page is a sequence of new bytes and of repetitions of earlier ones."""

import numpy as np

from drstream.kernels._jit import copy_bytes, helper, inlined

NEW, NEAR, FAR = 0, 1, 2  # kinds of pieces; 3: further
LONG = 60  # lengths from here on stand in bytes of their own


@inlined
def little(data, place, count):
    """Return the number that stands in so many bytes."""
    value = np.int64(0)
    for j in range(count):
        value |= np.int64(data[place + j]) << (8 * j)
    return value


@helper
def decompress(data, place, stop, out, size):
    """out[:size] <- what data[place:stop] stand for. Returns whether they are as they should be, of that size."""
    length, shift, done = np.int64(0), np.int64(0), np.int64(0)
    while True:
        if place >= stop or shift > 28:
            return False
        byte = np.int64(data[place])
        length |= (byte & 127) << shift
        shift += 7
        place += 1
        if byte < 128:
            break
    if length != size:
        return False
    while place < stop:
        tag = np.int64(data[place])
        kind, length = tag & 3, tag >> 2
        place += 1
        if kind == NEW:
            if length >= LONG:
                more = length - LONG + 1
                if more > stop - place:
                    return False
                length = little(data, place, more)
                place += more
            length += 1
            if length > stop - place or length > size - done:
                return False
            copy_bytes(data, place, out, done, length)
            place, done = place + length, done + length
            continue
        bytes_ = 1 if kind == NEAR else 2 if kind == FAR else 4
        if bytes_ > stop - place:
            return False
        back = little(data, place, bytes_)
        if kind == NEAR:
            back, length = back | ((tag >> 5) << 8), (length & 7) + 3
        place, length = place + bytes_, length + 1
        if back == 0 or back > done or length > size - done:
            return False
        for j in range(length):  # one after the other: a piece may repeat itself
            out[done + j] = out[done - back + j]
        done += length
    return done == size
