"""Reads and decodes columns of Parquet files that hold numbers, or lists of one length: all pages in one call.

Pages may be damaged, and may have what is not known here. So nothing trusts a length, and nothing is returned that
could be wrong: then another decoder reads the rows.

A page can have a million bytes. If rows are wanted in smaller chunks, a plain page is not kept, but flows: each chunk
takes the next bytes of it (`flows.py`).
"""

from typing import Any, NamedTuple

import numpy as np

from drstream.kernels import flows, snappy
from drstream.kernels._jit import copy_bytes, helper, inlined, kernel, memory, read_file, scratch
from drstream.kernels._types import I8, I8_2, I8_IN, U1, U1_2, U1_IN, int64, void
from drstream.kernels.thrift import DAMAGED, FIELD, INTEGER, begin, step

# columns of the table of columns
AT, END = 0, 1  # in the file: where the next page begins, and where the column ends
CODEC = 2
WIDTH, SIZE, LEVEL = 3, 4, 5  # bytes of a number; numbers in a list, or 0; level of definition of one that is there
NUMBERS, TAKEN = 6, 7  # in the column, and in the pages that were begun
OUT, FILLED = 8, 9  # address for numbers, and how many are there
ENCODING, LEFT, PLACE = 10, 11, 12  # of the page under way: numbers that are left, and where they are in it
RUN, USED, INDEX, BITS = 13, 14, 15, 16  # of indices: left in the run, used of it, the only one or -1, and their size
KNOWN = 17  # numbers of the dictionary; -1 if there was none
PAGE = 18  # bytes of the page under way
OTHER, HALF = 19, 20  # address of the chunk before this one; bytes of a chunk, 0 if rows are not wanted in chunks
FLOW = 21  # of a page that flows: see `flows.py`
FIELDS = FLOW + flows.FIELDS

PLAIN_CODEC, SNAPPY = 0, 1  # others are for the caller

# what a head says
KIND, BYTES, STORED, COUNT, FORM, DEFINITIONS, REPETITIONS = 0, 1, 2, 3, 4, 5, 6
DATA_PAGE, DICTIONARY_PAGE = 0, 2  # kinds of pages; others are not known here
IN_DATA, IN_DICTIONARY = 5, 7  # fields
PLAIN, OLD_DICTIONARY, RUNS, DICTIONARY = 0, 2, 3, 8  # encodings
FLOWS = -1  # instead of an encoding: the page is plain, and flows
LENGTH_BYTES = 4  # of the length of levels
MOST_BITS = 32  # of an index
MOST_BYTES = 1 << 26  # of a page; writers make pages of 1 MB
SLACK = 1 << 16  # bytes that are read after those that are expected
HEAD_BYTES = 1 << 12  # that are read if pages may flow: then only heads, and what stands before numbers, are needed
FLOW_BYTES = flows.MOST_LEVELS + 16  # that a page must have in the window to begin to flow
WINDOW = 1 << 19  # bytes that are read at a time, unless a page has more: they stay in the second-level cache
BEFORE = 64  # bytes before the first number of any column: they can be overwritten for a while

# state of a pass
COLUMN = 0  # under way
FIRST, LAST = 1, 2  # places in the file: what the window holds
START = 3  # in the window, of the page under way
NEEDED = 4  # bytes
GIVEN = 5  # whether the caller gives the page under way, decompressed
HEAD = 6  # of the page under way
RESULT = 13  # what was returned, for whoever did not call `decode` itself
CHUNK, APART = 14, 15  # for `turn`: rows of a chunk, and bytes from one to the next, 0 if there is one
ADDED, TURNED = 16, 17  # rows of the chunks before this one; one more if `turn` has begun with it
BASE = 18  # address of the first column
AT_ONCE = 19  # most chunks of a call, set by whoever uses them
STATE = 20
LINE = 64  # bytes: columns begin at multiples


class Pages(NamedTuple):
    """What `decode` is told."""

    handle: Any  # of the file
    columns: Any  # FIELDS numbers for each
    rows: Any
    window: Any  # memory for bytes of the file
    pages: Any  # memory for a page: for each column, or for all if they are read to their ends
    dictionaries: Any  # memory for a dictionary, for each column
    given: Any  # a decompressed page
    levels: Any  # space, (3, DEPTH)
    state: Any  # STATE numbers


# what is returned
DONE, UNUSUAL = 0, -1
MORE_WINDOW, MORE_PAGE, MORE_DICTIONARY = 1, 2, 3  # call again with memory of at least state[NEEDED] bytes
DECOMPRESS = 4  # call again with the page at state[START]: so many bytes as its head says
PAUSED = 5  # call again: only so that the caller can stop in between


@helper
def _read_head(data, place, levels, head):
    """Read the head of the page that begins at a place. Returns the place after it, or -1."""
    head[:] = -1
    depth = np.int64(0)
    begin(levels)
    while depth >= 0:
        kind, value, place, depth = step(data, place, levels, depth)
        if kind == DAMAGED:
            return np.int64(-1)
        outer, inner = levels[FIELD, 0], levels[FIELD, 1]
        if kind == INTEGER and depth == 0 and 0 < outer <= 3:
            head[outer - 1] = value
        known = outer == IN_DATA or (outer == IN_DICTIONARY and inner <= 2)
        if kind == INTEGER and depth == 1 and known and 0 < inner <= 4:
            head[COUNT + inner - 1] = value
    return place


@inlined
def _run(data, place, last):
    """Return the head of a run, and the place after it, or -1."""
    value, shift = np.int64(0), np.int64(0)
    while place < last and shift < 35:
        byte = np.int64(data[place])
        value |= (byte & 127) << shift
        shift += 7
        place += 1
        if byte < 128:
            return value, place
    return value, np.int64(-1)


@helper
def _length(data, place):
    """Return the length that stands at a place, or -1."""
    if place + LENGTH_BYTES > data.shape[0]:
        return np.int64(-1)
    length = np.int64(0)
    for j in range(LENGTH_BYTES):
        length |= np.int64(data[place + j]) << (8 * j)
    return length if length <= data.shape[0] - place - LENGTH_BYTES else np.int64(-1)


@helper
def _all_there(data, place, last, count, level):
    """Whether `count` levels all are `level`, so that no number is null."""
    bits = 1 if level < 2 else 2
    while count > 0:
        head, place = _run(data, place, last)
        size = head >> 1
        if place < 0 or size == 0:
            return False
        if head & 1 == 0:
            if place >= last or data[place] != level:
                return False
            place, count = place + 1, count - size
            continue
        if size > (last - place) // bits:
            return False
        for i in range(min(8 * size, count)):
            bit = i * bits
            if (np.int64(data[place + (bit >> 3)]) >> (bit & 7)) & ((1 << bits) - 1) != level:
                return False
        place, count = place + size * bits, count - 8 * size
    return True


@inlined
def _begins(size, phase, known):
    """Return the levels of so many numbers as bits, and the next phase."""
    wanted = np.int64((1 << known) - 1)
    if size >= 8:  # at most one list begins
        zero = size - phase if phase > 0 else np.int64(0)
        wanted &= ~(np.int64(1) << min(zero, 8))
        phase += known
        return wanted, phase - size if phase >= size else phase
    for j in range(known):
        if phase == 0:
            wanted &= ~(np.int64(1) << j)
        phase = 0 if phase + 1 == size else phase + 1
    return wanted, phase


@helper
def _equal_lists(data, place, last, count, size, phase):
    """Whether `count` levels say that a list begins at every number whose place, plus `phase`, is a multiple of `size`.

    A level is 0 where a list begins, otherwise 1.
    """
    while count > 0:
        head, place = _run(data, place, last)
        length = head >> 1
        if place < 0 or length == 0:
            return False
        if head & 1 == 0:
            length = min(length, count)
            if place >= last:
                return False
            if data[place] == 0:
                if size > 1 and (phase != 0 or length > 1):
                    return False
            elif data[place] != 1 or phase == 0 or length > size - phase:
                return False
            place, count, phase = place + 1, count - length, (phase + length) % size
            continue
        if length > last - place:
            return False
        for i in range(length):
            known = min(8, count)
            wanted, phase = _begins(size, phase, known)
            if np.int64(data[place + i]) & ((1 << known) - 1) != wanted:
                return False
            count -= known
        place += length
    return True


@helper
def _find_values(page, count, level, size, phase):
    """Return where the values of a page begin, or -1 if some are null, or lists have other lengths.

    phase  Place of the page's first number in its list.
    """
    place = np.int64(0)
    if size > 0:
        length = _length(page, place)
        place += LENGTH_BYTES
        if length < 0 or not _equal_lists(page, place, place + length, count, size, phase):
            return np.int64(-1)
        place += length
    if level > 0:
        length = _length(page, place)
        place += LENGTH_BYTES
        if length < 0 or not _all_there(page, place, place + length, count, level):
            return np.int64(-1)
        place += length
    return place


@helper
def _unpack(page, place, bits, skip, dictionary, out):
    """out <- numbers of the dictionary, by indices of `bits` bits, from number `skip` on. Returns whether all exist."""
    known, size = np.uint64(dictionary.shape[0]), np.uint64(bits)
    mask, eight = (np.uint64(1) << size) - np.uint64(1), np.uint64(8)
    place, used = place + (skip * bits >> 3), np.uint64((skip * bits) & 7)
    count, i = out.shape[0], np.int64(0)
    worst = np.uint64(0)
    if bits <= 8 and used == 0 and skip & 7 == 0:
        while i + 8 <= count:  # eight indices have `bits` bytes
            word = np.uint64(0)
            for j in range(bits):
                word |= np.uint64(page[place + j]) << np.uint64(8 * j)
            for j in range(8):
                index = (word >> np.uint64(j * bits)) & mask
                worst = max(worst, index)
                out[i + j] = dictionary[min(index, known - np.uint64(1))]
            place += bits
            i += 8
    word, held = np.uint64(0), np.uint64(0)  # bits that were read, and not used
    if i < count and used > 0:
        word, held, place = np.uint64(page[place]) >> used, eight - used, place + 1
    while i < count:
        while held < size:
            word |= np.uint64(page[place]) << held
            held += eight
            place += 1
        index = word & mask
        word >>= size
        held -= size
        worst = max(worst, index)
        out[i] = dictionary[min(index, known - np.uint64(1))]
        i += 1
    return worst < known


@helper
def _look_up(page, column, dictionary, out):
    """out <- numbers of the dictionary, by indices in the page from column[PLACE] on. Returns whether all exist."""
    bits, last, done, count = column[BITS], page.shape[0], np.int64(0), out.shape[0]
    while done < count:
        if column[RUN] == 0:
            head, place = _run(page, column[PLACE], last)
            size = head >> 1
            if place < 0 or size == 0:
                return False
            width = (bits + 7) >> 3
            packed = head & 1 == 1
            if (packed and (bits == 0 or size > (last - place) // bits)) or (not packed and width > last - place):
                return False
            column[RUN], column[USED], column[INDEX] = 8 * size if packed else size, 0, -1
            if not packed:
                index = np.int64(0)
                for j in range(width):
                    index |= np.int64(page[place + j]) << (8 * j)
                if index >= dictionary.shape[0]:
                    return False
                column[INDEX] = index
                place += width
            column[PLACE] = place
        some = min(column[RUN], count - done)
        if column[INDEX] >= 0:
            number = dictionary[column[INDEX]]
            for i in range(done, done + some):
                out[i] = number
        elif not _unpack(page, column[PLACE], bits, column[USED], dictionary, out[done : done + some]):
            return False
        column[USED] += some
        column[RUN] -= some
        if column[RUN] == 0 and column[INDEX] < 0:
            column[PLACE] += column[USED] // 8 * bits
        done += some
    return True


@helper
def _take(page, column, some, dictionary):
    """Decode so many numbers of the page under way. Returns whether they are all right."""
    width = column[WIDTH]
    address = column[OUT] + column[FILLED] * width
    if column[ENCODING] == PLAIN:
        copy_bytes(page, column[PLACE], memory(address, some * width, page), 0, some * width)
        column[PLACE] += some * width
    elif width == 4:
        single = np.empty(0, np.uint32)
        values = memory(dictionary, column[KNOWN], single)
        if not _look_up(page, column, values, memory(address, some, single)):
            return False
    else:
        double = np.empty(0, np.uint64)
        values_8 = memory(dictionary, column[KNOWN], double)
        if not _look_up(page, column, values_8, memory(address, some, double)):
            return False
    column[FILLED] += some
    column[LEFT] -= some
    return True


@helper
def _begin_page(page, column, head):
    """Note what the page under way holds. Returns whether it is known here."""
    count = head[COUNT]
    if head[KIND] != DATA_PAGE or count < 1 or count > column[NUMBERS] - column[TAKEN]:
        return False
    if (column[LEVEL] > 0 and head[DEFINITIONS] != RUNS) or (column[SIZE] > 0 and head[REPETITIONS] != RUNS):
        return False
    phase = column[TAKEN] % max(column[SIZE], 1)
    place = _find_values(page, count, column[LEVEL], column[SIZE], phase)
    if place < 0:
        return False
    column[ENCODING] = PLAIN if head[FORM] == PLAIN else DICTIONARY
    if head[FORM] == PLAIN:
        if page.shape[0] - place != count * column[WIDTH]:
            return False
    else:
        indexed = head[FORM] == DICTIONARY or head[FORM] == OLD_DICTIONARY
        if not indexed or column[KNOWN] < 0 or place >= page.shape[0] or page[place] > MOST_BITS:
            return False
        column[BITS], column[RUN] = page[place], 0
        place += 1
    column[PLACE], column[LEFT] = place, count
    column[TAKEN] += count
    return True


@helper
def _find_page(handle, column, wanted, window, levels, state):
    """Read the next page, and its head, into the window. Returns whether that was possible, or what it takes.

    wanted  Numbers that are needed. They tell how many bytes of the file may be needed soon.
    """
    left = column[END] - column[AT]
    expected = np.int64(np.float64(left) * wanted / max(column[NUMBERS] - column[TAKEN], 1))
    size = min(left, expected + SLACK, max(WINDOW, window.shape[0])) if column[HALF] == 0 else min(left, HEAD_BYTES)
    head = state[HEAD : HEAD + 7]
    for again in range(3):  # what the window has may end in the head, and then what was expected before the page's end
        if again > 0 or column[AT] < state[FIRST] or column[AT] >= state[LAST]:
            state[FIRST], state[LAST] = 0, 0
            if size > window.shape[0]:
                state[NEEDED] = size
                return MORE_WINDOW
            if size < 1 or read_file(handle, column[AT], window.ctypes.data, size) != size:
                return UNUSUAL
            state[FIRST], state[LAST] = column[AT], column[AT] + size
        first = column[AT] - state[FIRST]
        start = _read_head(window[: min(state[LAST], column[END]) - state[FIRST]], first, levels, head)
        if start < 0:
            continue
        stored = head[STORED]
        if head[BYTES] < 1 or head[BYTES] > MOST_BYTES or stored < 0 or stored > left - (start - first):
            return UNUSUAL
        state[START] = start
        there = state[LAST] - state[FIRST] - start
        if stored <= there or (_can_flow(column, head) and there >= min(stored, FLOW_BYTES)):
            return DONE
        size = max(size, start - first + stored)
    return UNUSUAL


@helper
def _decompress(column, window, head, start, out):
    """out <- the page in the window. Returns DONE, UNUSUAL, or DECOMPRESS if the caller must do it."""
    if column[CODEC] == PLAIN_CODEC:
        if head[STORED] != out.shape[0]:
            return UNUSUAL
        copy_bytes(window, start, out, 0, out.shape[0])
        return DONE
    if column[CODEC] != SNAPPY:
        return DECOMPRESS
    if snappy.decompress(window, start, start + head[STORED], out, out.shape[0]):
        return DONE
    return UNUSUAL


@inlined
def _stands_alone(column, head, wanted, state):
    """Whether all numbers of a page are wanted, and are plain, so that it can be decompressed to where they belong."""
    if state[START] + head[STORED] > state[LAST] - state[FIRST]:
        return False
    known = column[CODEC] == PLAIN_CODEC or column[CODEC] == SNAPPY
    if not known or head[KIND] != DATA_PAGE or head[FORM] != PLAIN or head[COUNT] < 1 or head[COUNT] > wanted:
        return False
    return 0 <= head[BYTES] - head[COUNT] * column[WIDTH] <= BEFORE


@inlined
def _can_flow(column, head):
    """Whether a page can flow: it is plain, and rows are wanted in chunks."""
    known = column[CODEC] == PLAIN_CODEC or column[CODEC] == SNAPPY
    if column[HALF] == 0 or not known or column[SIZE] > 0 or head[KIND] != DATA_PAGE or head[FORM] != PLAIN:
        return False
    return head[COUNT] > 0 and 0 <= head[BYTES] - head[COUNT] * column[WIDTH] <= BEFORE


@helper
def _begin_flow(column, window, head, state):
    """Begin with a page that flows, whose first bytes are in the window. Returns DONE or UNUSUAL."""
    count, levels, start = head[COUNT], head[BYTES] - head[COUNT] * column[WIDTH], state[START]
    stop = min(start + head[STORED], state[LAST] - state[FIRST])
    flow = column[FLOW:]
    if not flows.begin(window[:stop], start, levels, head[BYTES], column[CODEC] == SNAPPY, flow):
        return UNUSUAL
    first = flow[flows.FROM]
    known = count <= column[NUMBERS] - column[TAKEN] and (column[LEVEL] == 0 or head[DEFINITIONS] == RUNS)
    known = known and (column[CODEC] == SNAPPY or head[STORED] == head[BYTES])
    if not known or _find_values(window[first - levels : first], count, column[LEVEL], 0, 0) != levels:
        return UNUSUAL
    flow[flows.FROM] += state[FIRST]
    flow[flows.UNTIL] = state[FIRST] + start + head[STORED]
    column[ENCODING], column[LEFT] = FLOWS, count
    column[TAKEN] += count
    column[AT] = flow[flows.UNTIL]
    return DONE


@helper
def _take_flow(handle, column, some, window, state):
    """Take so many numbers of a page that flows. Returns DONE, UNUSUAL or MORE_WINDOW."""
    width = column[WIDTH]
    needed = flows.needed(column[FLOW:], some * width)
    if needed > window.shape[0]:
        state[NEEDED] = needed
        return MORE_WINDOW
    state[FIRST], state[LAST] = 0, 0  # what the window holds is overwritten
    here, before = memory(column[OUT], column[HALF], window), memory(column[OTHER], column[HALF], window)
    first = column[FILLED] * width
    if not flows.take(handle, column[FLOW:], window, before, here, first, first + some * width):
        return UNUSUAL
    column[FILLED] += some
    column[LEFT] -= some
    return DONE if column[LEFT] > 0 or flows.is_over(column[FLOW:]) else UNUSUAL


@kernel(void(I8_2, I8_IN, int64, int64))
def place_rows(columns, places, first, rows):
    """Note where rows of columns are that are stored in one piece each, from a place in the file on, as an Arrow file
    has them: they are one page without levels, of which some rows are wanted, from the first on."""
    for c in range(columns.shape[0]):
        numbers = rows * max(columns[c, SIZE], 1)
        size = max(columns[c, SIZE], 1) * columns[c, WIDTH]
        columns[c, ENCODING] = FLOWS
        columns[c, NUMBERS], columns[c, TAKEN], columns[c, LEFT] = numbers, numbers, numbers
        flows.begin_plain(columns[c, FLOW:], places[c] + first * size, rows * size)


@helper
def turn(columns, state):
    """Let the next chunk go to where the one before the last was. Returns how many bytes after the first one that is.

    If the chunk was begun before, and `decode` needed something to go on, nothing changes.
    """
    place = state[ADDED] // state[CHUNK] % 2 * state[APART]
    if state[TURNED] == state[ADDED] + 1:
        return place
    address = state[BASE]
    for c in range(columns.shape[0]):
        size = state[CHUNK] * columns[c, WIDTH] * max(columns[c, SIZE], 1)
        columns[c, OUT], columns[c, OTHER] = address + place, address + state[APART] - place
        columns[c, HALF] = size if state[APART] > 0 or columns[c, ENCODING] == FLOWS else 0
        columns[c, FILLED] = 0
        address += -(-size // LINE) * LINE
    state[COLUMN], state[TURNED] = 0, state[ADDED] + 1
    return place


@helper
def _take_whole(column, window, head, start):
    """Decompress a page to where its numbers belong. Its levels, before them, overwrite what is there for a while."""
    levels, size = head[BYTES] - head[COUNT] * column[WIDTH], head[BYTES]
    page = memory(column[OUT] + column[FILLED] * column[WIDTH] - levels, size, window)
    saved = scratch(BEFORE, window)
    copy_bytes(page, 0, saved, 0, levels)
    found = _decompress(column, window, head, start, page)
    if found == DONE and not _begin_page(page, column, head):
        found = UNUSUAL
    copy_bytes(saved, 0, page, 0, levels)
    if found == DONE:
        column[FILLED] += column[LEFT]
        column[LEFT] = 0
    return found


@helper
def _open_page(page, column, head, dictionary):
    """Take a new page: keep it if it is a dictionary. Returns DONE, UNUSUAL or MORE_DICTIONARY."""
    if head[KIND] != DICTIONARY_PAGE:
        return DONE if _begin_page(page, column, head) else UNUSUAL
    plain = (head[FORM] == PLAIN or head[FORM] == OLD_DICTIONARY) and 0 <= head[COUNT] <= MOST_BYTES
    if not plain or column[KNOWN] >= 0 or page.shape[0] != head[COUNT] * column[WIDTH]:
        return UNUSUAL
    if page.shape[0] > dictionary.shape[0]:
        return MORE_DICTIONARY
    copy_bytes(page, 0, dictionary, 0, page.shape[0])
    column[KNOWN] = head[COUNT]
    return DONE


@helper
def _keep_page(found, column, state):
    """Note that a page is open, if it is. Returns what was found when it was opened."""
    head = state[HEAD : HEAD + 7]
    if found == MORE_DICTIONARY:
        state[NEEDED] = head[BYTES]
    if found == DONE:
        column[AT] = state[FIRST] + state[START] + head[STORED]
        column[PAGE] = head[BYTES]
    return found


@helper
def _next_page(handle, own, column, wanted, dictionary, window, levels, state):
    """Open the next page of a column, and take its numbers if all are wanted. Returns DONE, or what it takes."""
    found = _find_page(handle, column, wanted, window, levels, state)
    if found != DONE:
        return found
    head = state[HEAD : HEAD + 7]
    size = head[BYTES]
    if _stands_alone(column, head, wanted, state):
        return _keep_page(_take_whole(column, window, head, state[START]), column, state)
    if _can_flow(column, head):
        return _begin_flow(column, window, head, state)
    if size > own.shape[0]:
        state[NEEDED] = size
        return MORE_PAGE
    found = _decompress(column, window, head, state[START], own[:size])
    found = found if found != DONE else _open_page(own[:size], column, head, dictionary)
    return _keep_page(found, column, state)


@helper
def _take_given(given, own, column, wanted, dictionary, state):
    """Open the page that the caller has decompressed, and take its numbers. Returns DONE, or what it takes."""
    head = state[HEAD : HEAD + 7]
    size = head[BYTES]  # `own` has room for it: see `_next_page`, which asked for the page
    found = _open_page(given, column, head, dictionary) if given.shape[0] == size else UNUSUAL
    if _keep_page(found, column, state) != DONE:
        return found
    state[GIVEN] = 0
    if column[LEFT] > 0:
        if not _take(given, column, min(column[LEFT], wanted), dictionary.ctypes.data):
            return UNUSUAL
        if column[LEFT] > 0:
            copy_bytes(given, 0, own, 0, size)
    return DONE


TYPES = int64, I8_2, int64, U1, U1_2, U1_2, U1_IN, I8_2, I8  # of the fields of `Pages`


@kernel(int64(*TYPES))
def decode(handle, columns, rows, window, pages, dictionaries, given, levels, state):
    """Decode the next rows of all columns to their addresses. Returns DONE, or what it takes to go on.

    `Pages` says what the arguments are.
    """
    while state[COLUMN] < columns.shape[0]:
        c = state[COLUMN]
        column, own, dictionary = columns[c], pages[c if pages.shape[0] > 1 else 0], dictionaries[c]
        wanted = rows * max(column[SIZE], 1) - column[FILLED]
        if wanted == 0:
            state[COLUMN] += 1
            continue
        if column[LEFT] > 0 and column[ENCODING] == FLOWS:
            found = _take_flow(handle, column, min(column[LEFT], wanted), window, state)
        elif column[LEFT] > 0:
            kept = _take(own[: column[PAGE]], column, min(column[LEFT], wanted), dictionary.ctypes.data)
            found = DONE if kept else UNUSUAL
        elif state[GIVEN] != 0:
            found = _take_given(given, own, column, wanted, dictionary, state)
        else:
            found = _next_page(handle, own, column, wanted, dictionary, window, levels, state)
        if found != DONE:
            return found
    return DONE
