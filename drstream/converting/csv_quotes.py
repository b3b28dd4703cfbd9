"""Quotes in CSV: which line breaks end a record, and which are within quotes.

As for Arrow, a field is quoted if it begins with a double quote. Two double quotes within it are one. A double quote
anywhere else, as in 5" tv, means nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drstream.types import Bools, Ints

QUOTE, BREAK = ord('"'), ord("\n")


class Records(NamedTuple):
    """The records of a text."""

    ends: Ints  # where each record ends, after its line break
    open: int | None  # where the quote is that is never closed, if there is one

    def lines(self, data: bytes) -> Ints:
        """Return the line in which each record begins, from 0 on; that of the last one, too, which has no end."""
        starts = np.concatenate([[0], self.ends])
        if starts[-1] == len(data):
            starts = starts[:-1]
        breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == BREAK)
        return np.searchsorted(breaks, starts)


def records(data: bytes, delimiter: str) -> Records:
    """Find the line breaks that are not within quotes. The text begins with a record."""
    text = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(text == BREAK)
    quotes = np.flatnonzero(text == QUOTE)
    if not len(quotes):
        return Records(breaks + 1, None)
    begins = _begins_field(text, quotes, ord(delimiter))
    opened = quotes[::2]  # if none means nothing
    if (begins[::2] | (text[opened - 1] == QUOTE)).all():
        closed, fields = quotes[1::2], opened[begins[::2]]  # two quotes within a field close it and open it again
    else:
        opened, closed = _walk(quotes, begins)
        fields = opened
    last = None if len(opened) == len(closed) else int(fields[-1])
    within = np.searchsorted(opened, breaks) != np.searchsorted(closed, breaks)
    return Records(breaks[~within] + 1, last)


def _begins_field(text: NDArray[np.uint8], quotes: Ints, delimiter: int) -> Bools:
    before = text[quotes - 1]
    return (quotes == 0) | (before == delimiter) | (before == BREAK)


def _walk(quotes: Ints, begins: Bools) -> tuple[Ints, Ints]:
    """Return where quoted fields begin and end, field by field: some quotes mean nothing."""
    doubled = np.append(np.diff(quotes) == 1, False)
    opened, closed = [], []
    starts = np.flatnonzero(begins)
    place = 0
    while (at := int(np.searchsorted(starts, place))) < len(starts):
        place = int(starts[at])
        opened.append(quotes[place])
        place += 1
        while place < len(quotes) and doubled[place]:
            place += 2
        if place >= len(quotes):
            break
        closed.append(quotes[place])
        place += 1
    return np.array(opened, np.int64), np.array(closed, np.int64)
