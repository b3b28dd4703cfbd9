"""The form of a pass's sums: variables, whose covariances are needed, and groupings of events. It needs no log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from drstream.moments import Layout

BUCKETS = 1024  # of all events, or of a logger
FEWER = 64  # of a segment, if only tails are made of them
MOST_PAIRED = 32  # policies: the number of covariances between them grows with its square


class Grouping(NamedTuple):
    """How events are divided into groups: by one or several of "segment", "logger", "stretch" and "bucket"."""

    parts: tuple[str, ...]
    buckets: int = BUCKETS

    @property
    def name(self) -> str:
        return " ".join(self.parts)

    @property
    def sums(self) -> bool:
        """Whether groups have sums alone. Otherwise they have moments."""
        return "bucket" in self.parts

    @property
    def per(self) -> int:
        """Number of groups of a key."""
        return self.buckets if self.sums else 1


@dataclass(frozen=True)
class SumsForm:
    """What the sums of a pass are about. It can be pickled, and be written to a file.

    Variable 0 is the reward. In a down-sampled log, 1 / sample rate follows, and then the terms of each policy.
    """

    policies: int
    columns: tuple[str, ...]  # names of the terms that each policy has
    weights: tuple[str, ...]  # those that are weights
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are needed
    down_sampled: bool = False
    fine: bool = False  # whether variances are made of sums by bucket, too
    stretches: bool = False
    by: tuple[str, ...] = ()
    logger: bool = False  # whether there are sums by logger
    actions: int = 0
    octaves: bool = False  # whether weights are counted by size
    watched: tuple[str, ...] = ()  # rows whose extremes are needed

    @property
    def first(self) -> int:
        """Where the terms of policies begin."""
        return 1 + self.down_sampled

    @property
    def paired(self) -> bool:
        """Whether the covariances of terms of two policies are needed, too."""
        return self.policies <= MOST_PAIRED

    @property
    def variables(self) -> int:
        return self.first + self.policies * len(self.columns)

    @cached_property
    def layout(self) -> Layout:
        groups = tuple(part for terms in self.groups for part in self.parts(terms))
        return Layout(self.variables, groups, self.policies * len(self.weights))

    @cached_property
    def groupings(self) -> tuple[Grouping, ...]:
        """All groupings but that of all events: first those with moments."""
        of_events = [("segment",)] * bool(self.by) + [("logger",)] * self.logger
        found = [
            *of_events,
            *[("stretch",)] * self.stretches,
            *[("segment", "stretch")] * (self.stretches and bool(self.by)),
        ]
        found += [("bucket",), *[("logger", "bucket")] * self.logger]
        of_segments = [Grouping(("segment", "bucket"), BUCKETS if self.fine else FEWER)] * bool(self.by)
        return (*map(Grouping, found), *of_segments)

    def width(self, grouping: Grouping) -> int:
        """Number of fields of a record."""
        return 1 + self.variables if grouping.sums else self.layout.width

    @property
    def bytes_a_segment(self) -> int:
        """Bytes of the records of a segment. If it has records by stretch, one is counted."""
        return 8 * sum(g.per * self.width(g) for g in self.groupings if "segment" in g.parts)

    def group(self, terms: Sequence[str]) -> tuple[int, ...]:
        """The reward, in a down-sampled log 1 / sample rate, and these terms of every policy."""
        places = [self.columns.index(term) for term in terms]
        firsts = [self.first + j * len(self.columns) for j in range(self.policies)]
        return (*range(self.first), *(first + place for first in firsts for place in places))

    def parts(self, terms: Sequence[str]) -> list[tuple[int, ...]]:
        """The group of these terms, or, if policies are not paired, one part of it for each policy."""
        whole, first, size = self.group(terms), self.first, len(terms)
        if self.paired:
            return [whole]
        return [(*whole[:first], *whole[i : i + size]) for i in range(first, len(whole), size)]
