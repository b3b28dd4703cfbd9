"""Several passes over one log. Parts that fit into memory are decoded once, the others in each pass."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

import numpy as np

from drstream.log import Coded, Csr, Events, Log, Reader
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.states.checkpoint import sum_parts

Result = TypeVar("Result")
Sums = TypeVar("Sums")
Task = Callable[[Iterator[Events]], Result]
HOLD_BYTES = 1 << 28  # most that is held of decoded batches, in all


class Passes:
    """Runs tasks over a log: `sum_up` adds up task(batches) of every part, in order.

    With `by_fold`, the events of a batch are in the order of their folds.
    """

    def __init__(self, log: Log, reader: Reader, workers: Workers, *, by_fold: bool = False) -> None:
        self.log, self.reader, self.workers, self.by_fold = log, reader, workers, by_fold
        self.skipped: Counter[str] | None = None  # counts of bad rows, known after the first pass
        self.count = 0
        self._held: dict[int, list[Events]] = {}  # by the part's first row
        self._waiting: Callable[[], dict[int, list[Events]]] | None = None  # gives them, when they are needed
        self._space = HOLD_BYTES
        self._lock = threading.Lock()

    def hold(self, held: Callable[[], dict[int, list[Events]]]) -> Self:
        """Read nothing, but take these batches, by the first row of their part, when a pass is made. Return self."""
        self._waiting = held
        return self

    def by_part(self) -> dict[int, list[Events]]:
        """Read the log once, and return the batches of each part, by its first row."""
        parts = execution.run(self._read, self.log, self.reader.columns, self.workers)
        return dict(parts)

    def _read(self, part: Part) -> tuple[int, list[Events]]:
        return part.first_row, list(self.reader.batches(part, Counter()))

    def sum_up(self, task: Task[Result], total: Sums, merge: Callable[[Sums, Result], None]) -> Sums:
        """Make a pass: let `merge` add what the task finds in each part to the total, in order. Return the total.

        What the workers' checkpoint has of this pass is not computed again.
        """
        passed = _Passed(total, Counter())
        passed = sum_parts(
            self.workers.checkpoint, partial(self._run, task), passed, partial(_Passed.merge, merge=merge)
        )
        if self.skipped is None:
            self.skipped = passed.skipped
        self.count += 1
        return passed.sums

    def _run(self, task: Task[Result], done: int) -> Iterator[tuple[Result, Counter[str]]]:
        """Yield what the task finds in each part after the first `done` ones, and counts of bad rows."""
        work = (
            _Elsewhere(self.reader, task, self.by_fold)
            if self.workers.executor is not None
            else partial(self._work, task)
        )
        if self._waiting is not None:
            self._held, self._waiting = self._waiting(), None
        columns = self.reader.columns
        parts = itertools.islice(self.log.parts(columns), done, None)
        yield from execution.run(work, self.log, columns, self.workers, f"pass {self.count + 1}", parts)

    def _work(self, task: Task[Result], part: Part) -> tuple[Result, Counter[str]]:
        held = self._held.get(part.first_row)
        if held is not None:
            return task(iter(held)), Counter()
        skipped: Counter[str] = Counter()
        kept: list[Events] = []
        result = task(self._keep(_batches(self.reader, part, skipped, self.by_fold), kept))
        if kept:
            self._held[part.first_row] = kept
        return result, skipped

    def _keep(self, batches: Iterator[Events], kept: list[Events]) -> Iterator[Events]:
        """Yield the part's batches, and keep them if all of them fit into the memory that is left."""
        size = 0
        fits = True
        for batch in batches:
            yield batch
            batch.scratch = {}
            if fits:
                size += _bytes(batch)
                kept.append(batch)
                fits = size <= self._space
        with self._lock:
            if fits and size <= self._space:
                self._space -= size
            else:
                kept.clear()


@dataclass
class _Passed(Generic[Sums]):
    """What a pass has summed up, and counts of bad rows."""

    sums: Sums
    skipped: Counter[str]

    def merge(self, found: tuple[Any, Counter[str]], merge: Callable[[Sums, Any], None]) -> None:
        merge(self.sums, found[0])
        self.skipped += found[1]


class _Elsewhere:
    """Runs a task on a part in another process, where no batches are kept."""

    def __init__(self, reader: Reader, task: Task[Any], by_fold: bool) -> None:
        self.reader, self.task, self.by_fold = reader, task, by_fold

    def __call__(self, part: Part) -> tuple[Any, Counter[str]]:
        skipped: Counter[str] = Counter()
        return self.task(_batches(self.reader, part, skipped, self.by_fold)), skipped


def _batches(reader: Reader, part: Part, skipped: Counter[str], by_fold: bool) -> Iterator[Events]:
    batches = reader.batches(part, skipped)
    return (batch.by_fold() for batch in batches) if by_fold else batches


def _bytes(batch: Events) -> int:
    context = batch.context
    if isinstance(context, Csr):
        contexts = context.indptr.nbytes + context.indices.nbytes + context.values.nbytes
    elif isinstance(context, np.ndarray | Coded):
        contexts = context.nbytes
    else:
        contexts = sum(column.nbytes for column in context)
    contexts += batch.candidates.nbytes
    return contexts + batch.action.nbytes + batch.reward.nbytes + batch.propensity.nbytes + batch.columns.nbytes
