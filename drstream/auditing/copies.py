"""Counts rows and event ids that occur more than once, by 64-bit hashes, in bounded memory.

Up to a limit of different hashes the counts are exact. Beyond it, only hashes whose leading bits are 0 are kept. Which
ones these are depends on the hashes alone, so the result depends neither on the order of the log nor on its parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drstream.auditing.merging import Merging
from drstream.kernels import audit as kernels
from drstream.log import Coded, Csr, Events
from drstream.log.kinds.candidates.reading import Offered
from drstream.log.rows import keys_of
from drstream.sources.base import Place
from drstream.types import Bools, Floats, Ints

Hashes = NDArray[np.uint64]
ROWS_KEPT = 5_000_000  # different rows; each takes 32 bytes
IDS_KEPT = 20_000_000  # different event ids
USERS_KEPT = 200_000  # different ids in a column that has no role
PENDING = 1 << 20  # rows that wait to be sorted


@dataclass
class Copies:
    """How often each hash occurs. Beside it stands a hash by which rows are sampled, and one more number."""

    most: int  # hashes that are kept
    bits: int = 0  # of the sampled hash, the leading bits that must be 0
    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))  # sorted, all different
    sampled: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    weights: Floats = field(default_factory=lambda: np.empty(0))
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    waiting: list[tuple[Hashes, Hashes, Floats, Ints]] = field(default_factory=list)

    def add(self, hashes: Hashes, sampled: Hashes, weights: Floats) -> None:
        self._append(hashes, sampled, weights, np.ones(len(hashes), np.int64))

    def merge(self, other: Copies) -> None:
        other.settle()
        self.bits = max(self.bits, other.bits)
        self._append(other.hashes, other.sampled, other.weights, other.counts)

    def _append(self, hashes: Hashes, sampled: Hashes, weights: Floats, counts: Ints) -> None:
        if self.bits:
            kept = sampled >> np.uint64(64 - self.bits) == 0
            hashes, sampled, weights, counts = hashes[kept], sampled[kept], weights[kept], counts[kept]
        self.waiting.append((hashes, sampled, weights, counts))
        if sum(len(rows[0]) for rows in self.waiting) > max(PENDING, len(self.hashes)):
            self.settle()

    def settle(self) -> None:
        """Sort what waits, count equal hashes, and sample if there are too many."""
        if self.waiting:
            all_of = [(self.hashes, self.sampled, self.weights, self.counts), *self.waiting]
            hashes, sampled, weights, counts = (np.concatenate(columns) for columns in zip(*all_of, strict=True))
            order = np.argsort(hashes, kind="stable")
            hashes = hashes[order]
            first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
            places = order[first]
            total = np.add.reduceat(counts[order], first) if len(first) else counts
            self.hashes, self.sampled, self.weights, self.counts = (
                hashes[first],
                sampled[places],
                weights[places],
                total,
            )
            self.waiting = []
        self._sample()
        while len(self.hashes) > self.most:
            self.bits += 1
            self._sample()

    def _sample(self) -> None:
        if self.bits:
            kept = self.sampled >> np.uint64(64 - self.bits) == 0
            self.hashes, self.sampled = self.hashes[kept], self.sampled[kept]
            self.weights, self.counts = self.weights[kept], self.counts[kept]


class HashedPart(NamedTuple):
    """A part, by the hash of its rows in their order."""

    digest: int
    rows: int
    changes: int  # rows that differ from the row before
    place: Place


@dataclass
class Repeats(Merging):
    """Parts by content, and consecutive rows of one context: how often they have one action, and should have."""

    parts: list[HashedPart] = field(default_factory=list)
    pairs: int = 0
    same: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, context: Hashes, action: NDArray[np.int32], propensity: Floats) -> None:
        """Add consecutive events. The propensities of one row are those of the next one, if it has the same context."""
        again = np.flatnonzero(context[1:] == context[:-1])
        p = propensity[again]
        self.pairs += len(again)
        self.same += int((action[again] == action[again + 1]).sum())
        self.expected += float(p.sum())
        self.variance += float((p * (1 - p)).sum())


@dataclass
class PartHash:
    """The hash of the rows of a part, in their order, however they come in batches."""

    digest: int = 0
    rows: int = 0
    changes: int = 0

    def add(self, hashes: Hashes) -> None:
        place = np.arange(self.rows, self.rows + len(hashes), dtype=np.uint64)
        self.digest = (self.digest + int((hashes * (2 * place + 1)).sum())) % 2**64
        self.rows += len(hashes)
        self.changes += int((hashes[1:] != hashes[:-1]).sum())


def with_mark(hashes: Hashes, marked: Bools) -> Hashes:
    """Return hashes whose last bit says whether a row has a reward."""
    return (hashes & ~np.uint64(1)) | marked


def hash_columns(rows: int, columns: Iterator[tuple[Ints | None, Hashes]]) -> Hashes:
    """Return a hash of each row's values. Columns are keys, one a row or, with where they start, several."""
    hashes = np.zeros(rows, np.uint64)
    one_each = np.arange(rows + 1)
    for starts, keys in columns:
        kernels.add_to_hashes(hashes, one_each if starts is None else np.ascontiguousarray(starts), keys)
    return hashes


def context_keys(batch: Events) -> Iterator[tuple[Ints | None, Hashes]]:
    """Yield the values of the contexts as keys, and candidates or eligible sets: a policy acts on all of them."""
    context = batch.context
    if batch.eligible is not None:
        lists = batch.eligible.lists
        yield lists.starts - lists.starts[0], lists.flat.astype(np.uint64)
    if isinstance(context, Csr):
        first, last = int(context.indptr[0]), int(context.indptr[-1])
        starts = context.indptr - first
        yield starts, context.indices[first:last].astype(np.uint64)
        yield starts, float_keys(context.values[first:last])
    elif isinstance(context, np.ndarray):
        yield np.arange(len(context) + 1) * context.shape[1], float_keys(context.reshape(-1))
    else:
        for column in context.columns if isinstance(context, Coded) else context:
            yield None, float_keys(column)
    if len(batch.candidates):
        yield from _candidate_keys(batch.candidates)


def _candidate_keys(offered: Offered) -> Iterator[tuple[Ints | None, Hashes]]:
    """Yield the features of candidates if they are sparse, as ids may be positions then; else ids, if there are any."""
    rows, starts = offered.features, offered.starts
    if isinstance(rows, Csr):
        first, last = int(rows.indptr[0]), int(rows.indptr[-1])
        of_events = (rows.indptr - first)[starts]
        yield of_events, rows.indices[first:last].astype(np.uint64)
        yield of_events, float_keys(rows.values[first:last])
    elif offered.ids is not None:
        yield starts, keys_of(offered.ids)
    elif rows is not None:
        yield starts * rows.dim, float_keys(rows.matrix.reshape(-1))


def float_keys(values: NDArray[np.generic]) -> Hashes:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)
