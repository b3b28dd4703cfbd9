"""What an audit knows about eligible sets: how often actions were eligible, and whether propensities fit the sets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from drstream.auditing.merging import Merging, joined_by
from drstream.log.kinds.eligible.reading import Sets
from drstream.types import Floats, Ints


@dataclass
class Eligible(Merging):
    """Sums over the events of a log with eligible sets. They merge."""

    counts: Ints  # (K) events whose set has the action
    sizes: Ints  # (K + 1) events by the size of their set
    sums: Floats  # (K + 1) of 1 / (p size), by size
    squares: Floats  # (K + 1) of its squares
    sure: int = 0  # events with p = 1, and more than one eligible action
    largest: float = field(default=0.0, metadata=joined_by(max))  # of 1 / (p size)

    @classmethod
    def create(cls, actions: int) -> Eligible:
        counts, sizes = np.zeros(actions, np.int64), np.zeros(actions + 1, np.int64)
        return cls(counts, sizes, np.zeros(actions + 1), np.zeros(actions + 1))

    def add(self, found: Sets, propensity: Floats) -> None:
        sizes = found.sizes
        self.counts += np.bincount(found.lists.flat, minlength=len(self.counts))
        self.sizes += np.bincount(sizes, minlength=len(self.sizes))
        if len(propensity):
            with np.errstate(over="ignore"):
                share = 1 / (propensity * sizes)
                self.sums += np.bincount(sizes, share, len(self.sums))
                self.squares += np.bincount(sizes, share * share, len(self.sums))
            self.sure += int(((propensity == 1) & (sizes > 1)).sum())
            self.largest = max(self.largest, float(share.max()))

    @property
    def choices(self) -> int:
        """Number of events with more than one eligible action."""
        return int(self.sizes[2:].sum())
