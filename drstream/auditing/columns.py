"""Sums over the columns of contexts, and over the reward: against the reward, by action, and of numbers that stand for
something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.auditing.merging import Merging, joined_by
from drstream.kernels import audit as kernels
from drstream.log import Coded, Csr, Events, Log
from drstream.log.doubts import SENTINELS, sentinel
from drstream.log.encoding import Category
from drstream.log.outcomes import BINS, GROUPS, Bins, Suspects, code_bins, differs, nested, number_bins, same_for_all
from drstream.log.outcomes import verdict as outcomes_of
from drstream.types import Floats, Ints

MOST_TABLES = 256  # columns that are compared by action; each takes 8 KB
OF_CODES = np.arange(BINS - 2) + 1.5  # edges of bins that are numbered


@dataclass(frozen=True)
class Columns:
    """The columns of contexts, and how to count their values. It can be pickled."""

    names: tuple[str, ...]
    bins: tuple[Bins, ...]
    by_action: bool  # propensities do not depend on contexts, so that contexts should not differ by action

    def create(self) -> ColumnSums:
        width, tables = len(self.names), min(len(self.names), MOST_TABLES) if self.by_action else 0
        nothing = np.full(width + 1, np.inf)
        counts = np.zeros((width + 1, 2 * len(SENTINELS)), np.int64)
        by_action = np.zeros((tables, BINS, GROUPS), np.int64)
        return ColumnSums(np.zeros((width + 1, 4), np.int64), by_action, counts, nothing, -nothing)

    def add(self, events: Events, reward: Floats, sums: ColumnSums) -> None:
        """Add events, with the rewards that the column holds."""
        rewarded = (reward != 0).view(np.uint8)
        group = events.action % np.int32(GROUPS)
        for j, values in enumerate([*values_of(events), reward][: len(self.names) + 1]):
            bins = self.bins[j] if j < len(self.bins) else None
            x, edges = np.ascontiguousarray(values, np.float64), OF_CODES if bins is None else bins.edges
            if bins is not None and bins.codes is not None:
                x, edges = bins.of(np.asarray(values, np.int64) + 1).astype(np.float64), OF_CODES
            kernels.add_column(x, rewarded, SENTINELS, sums.cells[j], sums.sentinels[j], sums.low[j:], sums.high[j:])
            if j < len(sums.by_action):
                kernels.add_bins(x, edges, group, sums.by_action[j])


@dataclass
class ColumnSums(Merging):
    """Sums by column; the last is the reward."""

    cells: Ints  # (columns + 1, 4) rows by usual value or other, and by reward 0 or not
    by_action: Ints  # (columns, BINS, GROUPS)
    sentinels: Ints  # (columns + 1, 2 len(SENTINELS)) rows with them, and with them without their sign
    low: Floats = field(metadata=joined_by(np.minimum))  # of all other values
    high: Floats = field(metadata=joined_by(np.maximum))


def values_of(events: Events) -> Iterator[NDArray[Any]]:
    """Yield the columns of contexts, of numbers or codes; none of sparse contexts."""
    context = events.context
    if isinstance(context, np.ndarray):
        yield from context.T
    elif not isinstance(context, Csr):
        yield from context.columns if isinstance(context, Coded) else context


def columns_of(log: Log, first: Sequence[Events]) -> Columns:
    """Learn from the first events how to count values."""
    roles, names, bins = log.roles, list(log.roles.context), []
    each = [np.concatenate(parts) for parts in zip(*map(values_of, first), strict=True)] if first else []
    if roles.listed:
        names = log.feature_names
    for name, values in zip(names, each, strict=False):
        known = [] if log.encoding is None else [c for c in log.encoding.columns if c.name == name]
        if known and isinstance(known[0], Category):
            labels = ["another", *map(str, known[0].values), "missing"]
            bins.append(code_bins(values.astype(np.int64) + 1, len(labels), labels))
        else:
            bins.append(number_bins(values.astype(np.float64)))
    free = not (roles.eligible or log.has_candidates or roles.logger) and bool(first) and roles.with_propensities
    drawn = [np.concatenate([getattr(e, name) for e in first]) for name in ("action", "propensity")] if free else []
    by_action = free and same_for_all(*drawn)
    return Columns(tuple(names[: len(bins)]), tuple(bins), by_action)


def suspects(columns: Columns, sums: ColumnSums, by_action: bool) -> Suspects:
    """Return what looks like an outcome. by_action: propensities of all rows do not depend on contexts."""
    names, cells = columns.names, sums.cells.reshape(-1, 2, 2)
    because = {name: nested(cell, len(names)) for name, cell in zip(names, cells, strict=False)}
    why = {name: why.format(b.usual) for (name, why), b in zip(because.items(), columns.bins, strict=True) if why}
    tables = zip(names, sums.by_action, strict=False) if by_action else ()
    differing = [name for name, table in tables if name not in why and differs(table, len(names))]
    return outcomes_of(names, why, differing)


def sentinels(columns: Columns, sums: ColumnSums, reward: str) -> dict[str, tuple[float, int]]:
    """Return the numbers that stand for something else, by column, and in how many rows."""
    found, width = {}, len(SENTINELS)
    numbers = {name: j for j, name in enumerate(columns.names) if columns.bins[j].codes is None}
    for name, j in {reward: len(columns.names), **numbers}.items():
        counts = sums.sentinels[j]
        one = sentinel(counts[:width].tolist(), counts[width:].tolist(), sums.low[j], sums.high[j], name == reward)
        if one is not None:
            found[name] = one
    return found
