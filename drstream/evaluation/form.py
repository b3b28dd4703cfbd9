"""The form of a pass's sums: which variables there are, and whose covariances are needed. It needs no log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from drstream.evaluation.totals import Segments, Shape
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.moments import Layout


@dataclass(frozen=True)
class Form:
    """What the sums of a pass are about. It can be pickled, and be written to a file.

    Variable 0 is the reward. In a down-sampled log, 1 / sample rate follows, and then the terms of each policy.
    """

    policies: int
    columns: tuple[str, ...]  # names of the terms that each policy has
    weights: tuple[str, ...]  # those that are weights
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are needed
    down_sampled: bool = False
    paired: bool = True  # whether the covariances of terms of two policies are needed, too
    buckets: bool = False
    stretches: bool = False
    by: tuple[str, ...] = ()
    logger: bool = False  # whether there are sums by logger
    actions: int = 0
    with_sets: bool = False  # whether events have eligible sets
    octaves: bool = False  # whether weights are counted by size

    @property
    def first(self) -> int:
        """Where the terms of policies begin."""
        return 1 + self.down_sampled

    @property
    def variables(self) -> int:
        return self.first + self.policies * len(self.columns)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.variables, tuple(part for terms in self.groups for part in self.parts(terms)))

    @cached_property
    def shape(self) -> Shape:
        firsts = self.first + np.arange(self.policies) * len(self.columns)
        weights = np.array([firsts + self.columns.index(name) for name in self.weights], np.int64)
        weights = np.ascontiguousarray(weights.reshape(-1, self.policies).T)
        return Shape(self.layout, weights, self.buckets, self.stretches, self.octaves)

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

    def segments(self) -> Segments | None:
        """Sums by segment, if there are any."""
        return Segments(replace(self.shape, octaves=False), BATCH_ROWS) if self.by else None

    def loggers(self) -> Segments | None:
        """Sums by logger, if there are any."""
        return Segments(replace(self.shape, stretches=False, octaves=False), BATCH_ROWS) if self.logger else None
