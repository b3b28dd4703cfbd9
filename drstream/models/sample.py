"""A uniform sample of a log's events, in memory: which they are depends on their rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import execution, sampling
from drstream.execution import Workers
from drstream.log import Block, Log, Reader
from drstream.log.source import Part
from drstream.types import Floats, Ints

Check = Callable[[Block], None]
More = Callable[[Block], Floats]  # of n events, (n, m)
SAMPLE_SEED = 0x8CB92BA72F3D8DD7  # samples draw other numbers than splits, folds and replays of the same seed


@dataclass
class Events:
    """Events in memory, in any order."""

    X: Any  # (n, d), dense or a csr_array
    action: NDArray[np.int32]
    reward: Floats
    row: Ints  # the number in the log
    lot: Floats  # the random number
    more: Floats  # (n, m): what else was asked for

    def __len__(self) -> int:
        return len(self.row)

    def take(self, places: Ints) -> Events:
        return Events(*(values[places] for values in vars(self).values()))


def _join(pieces: Sequence[Events]) -> Events:
    from scipy import sparse

    X = [piece.X for piece in pieces]
    matrix = sparse.vstack(X, format="csr") if sparse.issparse(X[0]) else np.concatenate(X)
    others = ("action", "reward", "row", "lot", "more")
    return Events(matrix, *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in others))


@dataclass
class Lottery:
    """Which events are drawn: those with the smallest random numbers of their rows."""

    most: int
    seed: int
    limit: float = 1.0  # a larger number cannot be drawn any more


@dataclass
class Sample:
    """Of all events added to it, those that are drawn. Which they are depends on their rows alone."""

    lottery: Lottery
    more: More | None = None
    seen: int = 0
    pieces: list[Events] = field(default_factory=list)
    held: int = 0

    def update(self, block: Block) -> None:
        self.seen += len(block)
        lot = sampling.at_rows(self.lottery.seed, block.rows.view(np.uint64))
        places = np.flatnonzero(lot <= self.lottery.limit)
        if len(places):
            rows = block.action[places], block.reward[places], block.rows[places], lot[places]
            more = np.empty((len(places), 0)) if self.more is None else self.more(block.take(places))
            self._add(Events(block.matrix[places], *rows, more))

    def merge(self, other: Sample) -> None:
        self.seen += other.seen
        for piece in other.pieces:
            self._add(piece)

    def _add(self, events: Events) -> None:
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

    def events(self) -> Events:
        """Those drawn, in the order of the log."""
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
) -> tuple[Sample, Counter[str]]:
    """A sample of at most so many events of the log, and the bad rows left out; all events pass the check.

    `more` is asked for what else is to be kept of the events that are drawn.
    """
    reader = log.reader(context=True, action=True) if reader is None else reader
    lottery = Lottery(most, seed + SAMPLE_SEED)
    sample, skipped = Sample(lottery), Counter[str]()
    task = partial(_draw, reader, lottery, check, more)
    for drawn, left_out in execution.run(task, log, reader.columns, workers):
        sample.merge(drawn)
        skipped += left_out
    return sample, skipped


def _draw(
    reader: Reader, lottery: Lottery, check: Check | None, more: More | None, part: Part
) -> tuple[Sample, Counter[str]]:
    skipped: Counter[str] = Counter()
    sample = Sample(replace(lottery), more)  # with the limit so far
    for batch in reader.batches(part, skipped):
        execution.raise_if_stopped()
        block = Block(batch, 0, len(batch))
        if check is not None:
            check(block)
        sample.update(block)
    return sample, skipped


def tidy(X: Any) -> Any:
    """Contexts as scikit-learn wants them: arrays row by row; sparse ones its own to sort, no index twice in a row."""
    if hasattr(X, "tocsr"):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
        return X
    return np.ascontiguousarray(X)
