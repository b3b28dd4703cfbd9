"""Several passes over one log. Parts that fit into memory are decoded once, the others in each pass."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from drstream import execution
from drstream.execution import Workers
from drstream.log import Batch, Coded, Csr, Log, Reader
from drstream.log.source import Part

Result = TypeVar("Result")
Task = Callable[[Iterator[Batch]], Result]
HOLD_BYTES = 1 << 28  # most that is held of decoded batches, in all


class Passes:
    """Runs tasks over a log: `run(task)` yields task(batches) for every part, in order.

    With `by_fold`, the events of a batch are in the order of their folds.
    """

    def __init__(self, log: Log, reader: Reader, workers: Workers, *, by_fold: bool = False) -> None:
        self.log, self.reader, self.workers, self.by_fold = log, reader, workers, by_fold
        self.skipped: Counter[str] | None = None  # counts of bad rows, known after the first pass
        self.count = 0
        self._held: dict[int, list[Batch]] = {}  # by the part's first row
        self._space = HOLD_BYTES
        self._lock = threading.Lock()

    def hold(self, held: dict[int, list[Batch]]) -> Self:
        """Read nothing, but take these batches, by the first row of their part. Return self."""
        self._held = held
        return self

    def by_part(self) -> dict[int, list[Batch]]:
        """Read the log once, and return the batches of each part, by its first row."""
        parts = execution.run(self._read, self.log, self.reader.columns, self.workers)
        return dict(parts)

    def _read(self, part: Part) -> tuple[int, list[Batch]]:
        return part.first_row, list(self.reader.batches(part, Counter()))

    def run(self, task: Task[Result]) -> Iterator[Result]:
        work = (
            _Elsewhere(self.reader, task, self.by_fold)
            if self.workers.executor is not None
            else partial(self._work, task)
        )
        skipped: Counter[str] = Counter()
        text = f"pass {self.count + 1}"
        for result, left_out in execution.run(work, self.log, self.reader.columns, self.workers, text):
            skipped += left_out
            yield result
        if self.skipped is None:
            self.skipped = skipped
        self.count += 1

    def _work(self, task: Task[Result], part: Part) -> tuple[Result, Counter[str]]:
        held = self._held.get(part.first_row)
        if held is not None:
            return task(iter(held)), Counter()
        skipped: Counter[str] = Counter()
        kept: list[Batch] = []
        result = task(self._keep(_batches(self.reader, part, skipped, self.by_fold), kept))
        if kept:
            self._held[part.first_row] = kept
        return result, skipped

    def _keep(self, batches: Iterator[Batch], kept: list[Batch]) -> Iterator[Batch]:
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


class _Elsewhere:
    """Runs a task on a part in another process, where no batches are kept."""

    def __init__(self, reader: Reader, task: Task[Any], by_fold: bool) -> None:
        self.reader, self.task, self.by_fold = reader, task, by_fold

    def __call__(self, part: Part) -> tuple[Any, Counter[str]]:
        skipped: Counter[str] = Counter()
        return self.task(_batches(self.reader, part, skipped, self.by_fold)), skipped


def _batches(reader: Reader, part: Part, skipped: Counter[str], by_fold: bool) -> Iterator[Batch]:
    batches = reader.batches(part, skipped)
    return (batch.by_fold() for batch in batches) if by_fold else batches


def _bytes(batch: Batch) -> int:
    context = batch.context
    if isinstance(context, Csr):
        contexts = context.indptr.nbytes + context.indices.nbytes + context.values.nbytes
    elif isinstance(context, np.ndarray | Coded):
        contexts = context.nbytes
    else:
        contexts = sum(column.nbytes for column in context)
    contexts += 0 if batch.candidates is None else batch.candidates.nbytes
    return contexts + batch.action.nbytes + batch.reward.nbytes + batch.propensity.nbytes + batch.columns.nbytes
