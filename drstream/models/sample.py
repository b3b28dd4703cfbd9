"""A uniform sample of a log's events, in memory. Only the row numbers decide which events are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream import sampling
from drstream.frames import record_batch
from drstream.log import Events, Log, Reader
from drstream.log.chunks import joined
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.types import Floats, Ints

Check = Callable[[Events], None]
More = Callable[[Events], Floats]  # returns m numbers for each of n events, as (n, m)
SAMPLE_SEED = 0x8CB92BA72F3D8DD7  # gives samples other random numbers than splits, folds and replays with the same seed


@dataclass
class Drawn:
    """Drawn events in memory, in any order."""

    X: Any  # (n, d), dense or a csr_array; or a record batch
    action: NDArray[np.int32]
    reward: Floats
    row: Ints  # row number in the log
    lot: Floats  # random number of the row
    more: Floats  # (n, m): what `More` returned

    def __len__(self) -> int:
        return len(self.row)

    def take(self, places: Ints) -> Drawn:
        X = self.X.take(pa.array(places)) if isinstance(self.X, pa.RecordBatch) else self.X[places]
        return Drawn(X, *(values[places] for name, values in vars(self).items() if name != "X"))


def _join(pieces: Sequence[Drawn]) -> Drawn:
    from scipy import sparse

    X = [piece.X for piece in pieces]
    if isinstance(X[0], pa.RecordBatch):
        matrix = joined(X)
    else:
        matrix = sparse.vstack(X, format="csr") if sparse.issparse(X[0]) else np.concatenate(X)
    others = ("action", "reward", "row", "lot", "more")
    return Drawn(matrix, *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in others))


@dataclass
class Lottery:
    """Draws the `most` events whose rows have the smallest random numbers."""

    most: int
    seed: int
    limit: float = 1.0  # events with larger random numbers cannot be drawn any more


@dataclass
class Sample:
    """The events that a lottery draws from all events added. Only the row numbers decide which."""

    lottery: Lottery
    more: More | None = None
    schema: pa.Schema | None = None  # the columns that are drawn instead of contexts
    seen: int = 0
    pieces: list[Drawn] = field(default_factory=list)
    held: int = 0

    def update(self, block: Events) -> None:
        self.seen += len(block)
        lot = sampling.at_rows(self.lottery.seed, block.numbers.view(np.uint64))
        places = np.flatnonzero(lot <= self.lottery.limit)
        if len(places):
            rows = block.action[places], block.reward[places], block.numbers[places], lot[places]
            more = np.empty((len(places), 0)) if self.more is None else self.more(block.take(places))
            X = block.matrix[places] if self.schema is None else record_batch(block, self.schema).take(pa.array(places))
            self._add(Drawn(X, *rows, more))

    def merge(self, other: Sample) -> None:
        self.seen += other.seen
        for piece in other.pieces:
            self._add(piece)

    def _add(self, events: Drawn) -> None:
        self.pieces.append(events)
        self.held += len(events)
        if self.held > 2 * self.lottery.most:
            self._cut()

    def _cut(self) -> None:
        events = _join(self.pieces)
        if len(events) > self.lottery.most:
            drawn = np.lexsort((events.row, events.lot))[: self.lottery.most]
            self.lottery.limit = float(events.lot[drawn[-1]])
            events = events.take(drawn)
        self.pieces, self.held = [events], len(events)

    def events(self) -> Drawn:
        """Return the drawn events, in the order of the log."""
        self._cut()
        return self.pieces[0].take(np.argsort(self.pieces[0].row))


def draw(
    log: Log,
    most: int,
    seed: int,
    check: Check | None,
    workers: Workers,
    *,
    reader: Reader | None = None,
    more: More | None = None,
    schema: pa.Schema | None = None,
) -> tuple[Sample, Counter[str]]:
    """Draw a sample of at most `most` events. Return it, and counts of the bad rows that were left out.

    `check` sees all events and raises an error for a bad one. `more` returns further numbers of the drawn events. With
    a schema, X is a record batch of these columns, which the reader must read.
    """
    reader = log.reader(context=True, action=True) if reader is None else reader
    lottery = Lottery(most, seed + SAMPLE_SEED)
    sample, skipped = Sample(lottery), Counter[str]()
    task = partial(_draw, reader, Sample(lottery, more, schema), check)
    for drawn, left_out in execution.run(task, log, reader.columns, workers):
        sample.merge(drawn)
        skipped += left_out
    return sample, skipped


def _draw(reader: Reader, empty: Sample, check: Check | None, part: Part) -> tuple[Sample, Counter[str]]:
    skipped: Counter[str] = Counter()
    sample = Sample(
        replace(empty.lottery), empty.more, empty.schema
    )  # copied, so that the part starts with the limit so far
    for batch in reader.batches(part, skipped):
        execution.raise_if_stopped()
        if check is not None:
            check(batch)
        sample.update(batch)
    return sample, skipped


def tidy(X: Any) -> Any:
    """Return contexts for scikit-learn: a contiguous array, or a sparse copy without repeated indices."""
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        return X
    return np.ascontiguousarray(X)
