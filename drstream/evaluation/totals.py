"""What a pass sums up over events: moments of the terms, what is known about weights, buckets, stretches of time.

A bucket holds the events whose cluster (or row number) has the same hash: intervals that do without the independence of
events are made of sums by bucket. A stretch is a part of the log in its order, short at the beginning and longer later:
intervals that hold at all times are made of sums by stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import sampling
from drstream.evaluation import octaves
from drstream.intervals.statistic import Groups
from drstream.kernels import groups as kernels
from drstream.kernels import terms as weights
from drstream.moments import Fields, Layout, State, fields_of
from drstream.types import Floats, Ints

BUCKETS = 1024
BUCKET_SEED = 0x5851F42D4C957F2D  # gives buckets other random numbers than splits and folds
SHORT, OCTAVE = 8, 4  # a stretch has 2^8 rows at first; from row 2^12 on, each octave has 2^4 stretches
THIN = 0.01  # a propensity below it is small
Key = tuple[Any, ...]  # the values of a segment


@dataclass(frozen=True)
class Shape:
    """What is summed up. It can be pickled."""

    layout: Layout
    weights: Ints  # the variables that are weights (policies, kinds)
    buckets: bool = False
    stretches: bool = False
    octaves: bool = False  # weights by size

    def create(self) -> Totals:
        return Totals(self)


@dataclass
class Events:
    """The terms of some events, and what says where they belong."""

    terms: Floats  # (variables, n); adding them to a total overwrites them
    propensity: Floats
    bucket: Ints | None = None
    rows: Ints | None = None  # row numbers, which tell the stretch


class Totals:
    """Sums over some events. Those of parts can be merged."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        layout = shape.layout
        self.moments: State = layout.create()
        self.inspected = np.zeros((*shape.weights.shape, weights.INSPECTED))
        if shape.buckets:
            self.bucket_counts = np.zeros(BUCKETS)
            self.bucket_sums = np.zeros((BUCKETS, layout.variables))
        self.stretches: dict[int, Stretch] = {}
        if shape.octaves:
            self.octaves = np.zeros((*shape.weights.shape, octaves.BINS), np.int64)

    def add(self, events: Events) -> None:
        shape, terms = self.shape, events.terms
        inspected = self.inspected.reshape(-1, weights.INSPECTED)
        weights.inspect(terms, shape.weights.reshape(-1), events.propensity, THIN, inspected)
        if shape.buckets:
            assert events.bucket is not None
            kernels.add_to_buckets(terms, events.bucket, self.bucket_counts, self.bucket_sums)
        if shape.stretches:
            assert events.rows is not None
            layout = shape.layout
            for index, first, last in stretches_of(events.rows):
                if index not in self.stretches:
                    self.stretches[index] = Stretch.create(layout)
                stretch = self.stretches[index]
                stretch.events += last - first
                place = first, last, layout.members, layout.starts
                kernels.add_to_stretch(terms, *place, stretch.sums, stretch.products)
        if shape.octaves:
            for place_of in np.ndindex(*shape.weights.shape):
                self.octaves[place_of] += octaves.count(terms[shape.weights[place_of]])
        self._update(terms)

    @cached_property
    def fields(self) -> Fields:
        """The arrays of `moments`, found once: that takes longer than to merge them."""
        return fields_of(self.moments)

    @cached_property
    def _update(self) -> Callable[[Floats], None]:
        return self.shape.layout.updater(self.moments)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("_update", "fields")}

    def merge(self, other: Totals) -> None:
        self.shape.layout.merge_fields(self.fields, other.fields)
        if self.inspected.size:
            both = self.inspected, other.inspected
            weights.merge_inspected(*(found.reshape(-1, weights.INSPECTED) for found in both))
        if self.shape.buckets:
            self.bucket_counts += other.bucket_counts
            self.bucket_sums += other.bucket_sums
        if self.shape.octaves:
            self.octaves += other.octaves
        for index, stretch in other.stretches.items():
            if index in self.stretches:
                self.stretches[index].merge(stretch)
            else:
                self.stretches[index] = stretch.copy()

    def buckets(self, variables: list[int]) -> Groups | None:
        """Return the sums of some variables by bucket."""
        return Groups(self.bucket_counts, self.bucket_sums[:, variables], None) if self.shape.buckets else None

    def by_stretch(self, group: tuple[int, ...]) -> Groups | None:
        """Return the sums of a group's variables, and of their products, by stretch, in the order of the log."""
        if not self.shape.stretches:
            return None
        stretches = [self.stretches[index] for index in sorted(self.stretches)]
        groups = self.shape.layout.groups
        start = sum(len(g) ** 2 for g in groups[: groups.index(group)])
        size = len(group)
        count = np.array([float(stretch.events) for stretch in stretches])
        sums = np.array([stretch.sums[list(group)] for stretch in stretches])
        upper = np.array([stretch.products[start : start + size * size].reshape(size, size) for stretch in stretches])
        gram = np.triu(upper) + np.triu(upper, 1).swapaxes(1, 2)
        return Groups(count, sums, gram)

    @property
    def count(self) -> int:
        return self.shape.layout.count(self.moments)

    @property
    def nbytes(self) -> int:
        layout = self.shape.layout
        buckets = 8 * BUCKETS * (1 + layout.variables) if self.shape.buckets else 0
        stretches = 8 * len(self.stretches) * (1 + layout.variables + layout.products)
        sizes = self.octaves.nbytes if self.shape.octaves else 0
        return self.moments.nbytes + self.inspected.nbytes + sizes + buckets + stretches


@dataclass
class Stretch:
    """Sums over the events of one stretch, and over the products of their terms by group."""

    events: int
    sums: Floats
    products: Floats

    @classmethod
    def create(cls, layout: Layout) -> Stretch:
        return cls(0, np.zeros(layout.variables), np.zeros(layout.products))

    def merge(self, other: Stretch) -> None:
        self.events += other.events
        self.sums += other.sums
        self.products += other.products

    def copy(self) -> Stretch:
        return Stretch(self.events, self.sums.copy(), self.products.copy())


@dataclass
class Lengths:
    """The lengths of the lists of rankings. Those of parts can be merged."""

    shortest: int
    longest: int
    items: int  # in all lists

    @classmethod
    def of(cls, starts: Ints) -> Lengths:
        sizes = np.diff(starts)
        return cls(int(sizes.min()), int(sizes.max()), int(starts[-1] - starts[0]))

    def merged(self, other: Lengths | None) -> Lengths:
        if other is None:
            return self
        shortest, longest = min(self.shortest, other.shortest), max(self.longest, other.longest)
        return Lengths(shortest, longest, self.items + other.items)


def buckets_of(keys: NDArray[np.uint64]) -> Ints:
    """Return the bucket of each event, given the key of its cluster, or its row number."""
    return (sampling.at_rows(BUCKET_SEED, keys) * BUCKETS).astype(np.int64)


def stretch_of(row: int) -> int:
    """Return the stretch of a row.

    >>> [stretch_of(row) for row in (0, 255, 256, 4_095, 4_096, 8_192, 8_704)]
    [0, 0, 1, 15, 16, 32, 33]
    """
    octave = row.bit_length() - 1
    later = octave - (SHORT + OCTAVE) + 1  # octaves of 2^OCTAVE stretches before and after it
    if later <= 0:
        return row >> SHORT
    return (later << OCTAVE) + ((row - (1 << octave)) >> (octave - OCTAVE))


def stretch_end(index: int) -> int:
    """Return the first row after a stretch.

    >>> all(stretch_of(stretch_end(i) - 1) == i and stretch_of(stretch_end(i)) == i + 1 for i in range(300))
    True
    """
    later, place = divmod(index, 1 << OCTAVE)
    if later == 0:
        return (index + 1) << SHORT
    octave = later + SHORT + OCTAVE - 1
    return (1 << octave) + ((place + 1) << (octave - OCTAVE))


def stretches_of(rows: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the stretches that rows belong to, each with the places of its first row and after its last.

    Rows ascend. If they were put in the order of their folds, they ascend in runs, and a stretch comes in several
    pieces.
    """
    falls = np.flatnonzero(rows[1:] < rows[:-1]) + 1
    first = 0
    for stop in [*falls.tolist(), len(rows)]:
        while first < stop:
            index = stretch_of(int(rows[first]))
            end = stretch_end(index)
            last = stop if rows[stop - 1] < end else first + int(np.searchsorted(rows[first:stop], end))
            yield index, first, last
            first = last


class Segments:
    """Totals for each segment: the events that agree in some columns. The terms of a batch are divided up."""

    def __init__(self, shape: Shape, rows: int) -> None:
        self.shape, self.rows = shape, rows
        self.totals: dict[Key, Totals] = {}

    @cached_property
    def _divided(self) -> Floats:
        return np.empty((self.shape.layout.variables + 1) * self.rows)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_divided"}

    def begin(self, segment: Ints, keys: list[Key]) -> None:
        """Begin a batch, given the segment of each event and the keys of segments."""
        self._segment, self._keys = segment, keys
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(segment, minlength=len(keys)))])
        self._filled = np.zeros(len(keys), np.int64)

    def divide(self, start: int, events: Events) -> None:
        """Divide up the terms of a block, which begins at this event of the batch."""
        segment = self._segment[start : start + events.terms.shape[1]]
        kernels.divide(events.terms, events.propensity, segment, self._starts, self._filled, self._divided)

    def end(self, bucket: Ints | None, rows: Ints | None) -> None:
        """Add the events of the batch to the totals of their segments."""
        if bucket is not None or rows is not None:
            small = len(self._keys) <= 1 << 16  # NumPy sorts 16 bits in linear time
            order = np.argsort(self._segment.astype(np.uint16) if small else self._segment, kind="stable")
            bucket = None if bucket is None else bucket[order]
            rows = None if rows is None else rows[order]
        height = self.shape.layout.variables + 1
        for s, key in enumerate(self._keys):
            place = slice(self._starts[s], self._starts[s + 1])
            if place.start == place.stop:
                continue
            taken = self._divided[height * place.start : height * place.stop].reshape(height, -1)
            if key not in self.totals:
                self.totals[key] = self.shape.create()
            self.totals[key].add(
                Events(
                    taken[:-1],
                    taken[-1],
                    None if bucket is None else bucket[place],
                    None if rows is None else rows[place],
                )
            )

    def merge(self, other: Segments) -> None:
        for key, totals in other.totals.items():
            if key not in self.totals:
                self.totals[key] = self.shape.create()
            self.totals[key].merge(totals)
