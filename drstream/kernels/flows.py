"""Plain pages that flow: bytes of a page are decompressed when they are wanted, and only the last ones are kept.

Snappy's format repeats earlier bytes, at most 65,535 before. The chunk before the one under way has them.
"""

import numpy as np

from drstream.kernels._jit import copy_bytes, helper, inlined, read_file
from drstream.kernels.snappy import FAR, LONG, NEAR, NEW, little

# fields of a page that flows
FROM, UNTIL = 0, 1  # places in the file: of its next byte, and after its last
MADE, LEFT = 2, 3  # bytes of the numbers: those that were taken, and those that were not
PENDING, BACK = 4, 5  # of the piece under way: bytes that are left, and how far back they are repeated from; 0: new
LEVELS = 6  # bytes of the page before its numbers, which can be repeated, too
KEPT = 7  # these bytes
MOST_LEVELS = 64
FIELDS = KEPT + MOST_LEVELS // 8
TAG = 5  # bytes of a piece before its new bytes, at most
LONG_PIECE = 1 << 13  # bytes of a piece that are read to where they belong
SHORT = 1 << 10  # bytes that are read after such a piece: most likely, another one follows


@inlined
def _piece(data, place, stop, flow):
    """Begin with the piece at a place. Returns the place after its head, or -1 if it makes no sense."""
    tag = np.int64(data[place])
    kind, length, back = tag & 3, tag >> 2, np.int64(0)
    place += 1
    if kind == NEW:
        more = length - LONG + 1 if length >= LONG else np.int64(0)
        if more > stop - place:
            return np.int64(-1)
        length = little(data, place, more) if more > 0 else length
        place += more
    else:
        more = np.int64(1 if kind == NEAR else 2 if kind == FAR else 4)
        if more > stop - place:
            return np.int64(-1)
        back = little(data, place, more)
        if kind == NEAR:
            back, length = back | ((tag >> 5) << 8), (length & 7) + 3
        if back == 0:
            return np.int64(-1)
        place += more
    flow[PENDING], flow[BACK] = length + 1, back
    return place


@helper
def begin(data, place, levels, size, compressed, flow):
    """Begin with a page of so many bytes, whose stored ones begin at a place. Returns whether it can flow.

    levels  Bytes before the numbers. They must be new bytes of the first piece, and in `data`.
    Afterwards FROM is the place of the first number in `data`, and UNTIL is not set.
    """
    flow[MADE], flow[LEFT], flow[PENDING], flow[BACK] = 0, size - levels, size, 0
    if compressed:
        length, shift, byte = np.int64(0), np.int64(0), np.int64(128)
        while byte >= 128:
            if place >= data.shape[0] or shift > 28:
                return False
            byte = np.int64(data[place])
            length |= (byte & 127) << shift
            shift += 7
            place += 1
        if length != size or place >= data.shape[0]:
            return False
        place = _piece(data, place, data.shape[0], flow)
    if place < 0 or flow[BACK] > 0 or flow[PENDING] < levels or flow[PENDING] > size or levels > data.shape[0] - place:
        return False
    flow[PENDING] -= levels
    flow[FROM] = place + levels
    flow[LEVELS] = levels
    kept = flow[KEPT:].view(np.uint8)
    for k in range(levels):
        kept[k] = data[place + k]
    return True


@helper
def begin_plain(flow, place, size):
    """Begin with so many bytes of numbers that are stored as they are, from a place in the file on."""
    flow[FROM], flow[UNTIL] = place, place + size
    flow[MADE], flow[LEFT], flow[PENDING], flow[BACK], flow[LEVELS] = 0, size, size, 0, 0


@helper
def needed(flow, size):
    """How many bytes of the file may be needed at a time, for so many bytes of numbers."""
    return min(flow[UNTIL] - flow[FROM], size + TAG)


@helper
def is_over(flow):
    """Whether nothing is left of a page."""
    return flow[LEFT] == 0 and flow[PENDING] == 0 and flow[FROM] == flow[UNTIL]


@inlined
def _is_there(flow, before, place):
    """Whether the bytes that a piece repeats are in the last two chunks, or, at the beginning, are levels."""
    made = flow[MADE]
    if made > before + place:
        return flow[BACK] <= before + place
    return flow[BACK] <= made + flow[LEVELS]


@inlined
def _repeat(flow, some, before, here, place):
    """Repeat so many bytes, one after the other: a piece may repeat itself. They may begin in the chunk before."""
    source, levels = place - flow[BACK], min(max(flow[BACK] - flow[MADE], 0), some)
    kept = flow[KEPT:].view(np.uint8)
    for j in range(levels):
        here[place + j] = kept[flow[LEVELS] - flow[BACK] + flow[MADE] + j]
    for j in range(levels, some):
        k = source + j
        here[place + j] = here[k] if k >= 0 else before[before.shape[0] + k]


@inlined
def _count(flow, some):
    """So many bytes of the piece under way were taken."""
    flow[PENDING] -= some
    flow[MADE] += some
    flow[LEFT] -= some


@helper
def take(handle, flow, window, before, here, place, stop):
    """here[place:stop] <- the next bytes of the numbers, at most LEFT. Returns whether they are as they should be.

    before  The chunk before, of the same length as this one.
    """
    most = stop - place + TAG
    while place < stop:
        some = min(flow[PENDING], stop - place)
        if flow[BACK] == 0 and some >= LONG_PIECE:  # numbers that do not repeat are in pieces of 65,536 bytes
            if some > flow[UNTIL] - flow[FROM] or read_file(handle, flow[FROM], here.ctypes.data + place, some) != some:
                return False
            place, most = place + some, SHORT
            flow[FROM] += some
            _count(flow, some)
            continue
        size = max(min(flow[UNTIL] - flow[FROM], stop - place + TAG, most), 0)
        if size > 0 and read_file(handle, flow[FROM], window.ctypes.data, size) != size:
            return False
        at = np.int64(0)
        while place < stop:
            if flow[PENDING] == 0:
                if size - at < TAG and at > 0 and flow[FROM] + size < flow[UNTIL]:
                    break  # its head may end after the window
                at = _piece(window, at, size, flow) if at < size else np.int64(-1)
                if at < 0 or flow[PENDING] > flow[LEFT]:
                    return False
            some = min(flow[PENDING], stop - place)
            if not _is_there(flow, before.shape[0], place):
                return False
            if flow[BACK] > 0:
                _repeat(flow, some, before, here, place)
            else:
                some = min(some, size - at)
                if some == 0:
                    break
                copy_bytes(window, at, here, place, some)
                at += some
            place += some
            _count(flow, some)
        if at == 0 and place < stop:
            return False  # the page ends too early
        flow[FROM] += at
    return True
