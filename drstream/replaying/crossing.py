"""How much lanes that simulate the same policy on the same events have in common.

Lanes of a grid have random numbers of their own, so their histories differ. But all of them evaluate their histories on
the same events, and some events are in the histories of several lanes. `Crossing` measures both, event by event.
"""

from __future__ import annotations

import numpy as np

from drstream.kernels import crossing as kernels
from drstream.replaying.grid import Shared
from drstream.types import Floats

IN_FLIGHT = 2  # chunks that lanes may be at, at a time


class Crossing:
    """Sums over the events of L lanes, without pilots, for each pair of lanes. They can be pickled and merged."""

    def __init__(self, lanes: int) -> None:
        self.totals = np.zeros((lanes, 3))
        self.products = np.zeros((lanes, lanes, 4))

    def add(self, traces: Floats) -> None:
        """Add events: (L, n, 3), c, c V_k and whether it was accepted."""
        kernels.add(traces, self.totals, self.products)

    def merge(self, other: Crossing) -> None:
        self.totals += other.totals
        self.products += other.products

    def shared(self, values: Floats, weights: Floats) -> Shared:
        """What the lanes share.

        values   V/C of each lane; NaN for a lane without a complete replicate, whose covariances are 0.
        weights  C, over complete replicates. The events of incomplete ones have been added, too. Noise is as if it
                 were spread evenly over the log.
        """
        values = np.nan_to_num(values)
        squares, products, accepted = (
            np.tril(self.products[:, :, i]) + np.tril(self.products[:, :, i], -1).T for i in range(3)
        )
        crossed = self.products[:, :, 3]
        sums = products - crossed * values - (crossed * values).T + squares * np.outer(values, values)
        added, steps = self.totals[:, 0], self.totals[:, 2]
        with np.errstate(all="ignore"):
            complete = np.where(weights > 0, added / weights, 0.0)
            noise = sums / np.outer(added, added) * np.minimum.outer(complete, complete)
            history = accepted / np.sqrt(np.outer(steps, steps))
        known = np.outer(weights, weights) > 0
        return Shared(np.where(known, noise, 0.0), np.where(known, history, 0.0))


class Traces:
    """Space in which the lanes of a grid write c, c V_k and whether it was accepted, for each event of a chunk."""

    def __init__(self, first: int, last: int, rows: int) -> None:
        self.lanes = range(first, last)
        self.crossing = Crossing(len(self.lanes))
        self._spaces = [np.zeros((len(self.lanes), rows, 3)) for _ in range(IN_FLIGHT)]

    def open(self, number: int, rows: int) -> dict[int, Floats]:
        """Space for a chunk, by lane. Chunks have numbers; those of IN_FLIGHT chunks in a row do not share space."""
        space = self._spaces[number % IN_FLIGHT][:, :rows]
        space[:] = 0.0
        return dict(zip(self.lanes, space, strict=True))

    def close(self, number: int, rows: int) -> None:
        """Add the events of a chunk that all lanes have taken."""
        self.crossing.add(np.ascontiguousarray(self._spaces[number % IN_FLIGHT][:, :rows]))
