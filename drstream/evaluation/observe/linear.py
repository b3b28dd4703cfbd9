"""Observations of linear policies and models: one compiled call for the events of each fold of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # loads the BLAS of the kernel before a pass limits its threads
from numpy.typing import NDArray

from drstream.evaluation.observe.actions import Actions, n_predictions
from drstream.evaluation.observe.base import Observer
from drstream.evaluation.plan import Plan, tile_of
from drstream.evaluation.scoring import Stack
from drstream.evaluation.sums import Sums
from drstream.execution import raise_if_stopped
from drstream.kernels import observe as kernels
from drstream.kernels import order
from drstream.log import Batch, Block
from drstream.log.encoding import Coded
from drstream.models.binding import BoundModels
from drstream.types import Floats, Ints

CODES = {np.dtype(name): code for code, name in enumerate(kernels.KINDS)}  # of types of columns
CODED = 4096  # events of which categories are encoded at a time
IN_ORDER = np.empty(0, np.int64)


class Linear(Observer):
    """Observes in compiled code. What policies find in columns of the log is copied from there."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        stack = self.job.stack
        asked = self.job.models.second is not None or self.job.embedding is not None
        self._rest = Actions(plan) if asked else None
        if stack is not None:
            rows, features = stack.weights.shape[1:]
            width = tile_of(rows, features, stack.kind) + kernels.PAD
            self._stack = self._for_kernel(stack)
            self._x, self._scores = np.zeros((features, width), stack.kind), np.zeros((rows, width), stack.kind)
            words = -(-plan.form.actions // 32) if plan.reader.with_sets else 0
            self._words = np.empty((words, width), np.uint32) if words else None
            self._found = np.empty(plan.form.actions)

    def _for_kernel(self, stack: Stack) -> kernels.Linear:
        rows = self.program.rows
        return kernels.Linear(
            stack.weights,
            stack.intercept,
            stack.kinds,
            stack.epsilons,
            stack.slots,
            np.array([rows[f"{j}.pi"] for j in stack.slots], np.int64),
            np.array([rows.get(f"{j}.b", -1) for j in stack.slots], np.int64),
            stack.model,
            stack.links,
            np.array(limits_of(self.job.models, stack.kind)),
            rows.get("rhat", -1),
        )

    def in_order(self, batch: Batch) -> Batch:
        by_fold = isinstance(batch.context, Coded) or self._rest is not None
        return batch.by_fold() if self.plan.reader.folds is not None and by_fold else batch

    def observe(self, batch: Batch, sums: Sums) -> Floats:
        self.begin(batch)
        whole = Block(batch, 0, len(batch))
        if self.job.models.logger is not None:
            self.job.models.logger.fill(whole, np.empty((0, len(batch))), self.values[self.program.rows["p"]])
        for j, policy in enumerate(self.job.policies):
            if self.job.direct[j]:
                self.values[self.program.rows[f"{j}.pi"]] = policy.logged(whole, sums.mass[j])
        if self.job.stack is not None:
            self._observe(whole, self.job.stack, sums)
        if self._rest is not None:
            self._rest.values = self.values
            for block in batch.blocks(self.plan.block_rows):
                raise_if_stopped()
                self._rest.see_rest(block)
        for j in range(len(self.job.policies)):
            self.weigh_own(j, whole, self.values[self.program.rows["p"]])
        return self.values

    def _observe(self, whole: Block, stack: Stack, sums: Sums) -> None:
        batch, clipped, folds = whole.batch, np.zeros(1, np.int64), len(stack.weights)
        places, starts = IN_ORDER, np.array([0, len(batch)])
        if folds > 1 and batch.fold_starts is not None:
            starts = batch.fold_starts
        elif folds > 1 and batch.fold is not None:
            places, starts = np.empty(len(batch), np.int64), np.empty(int(batch.fold.max(initial=0)) + 2, np.int64)
            order.sort_by_group(batch.fold, starts, places)
        memory = self.values, sums.mass, clipped, self._x, self._scores, self._found
        for fold, (first, last) in enumerate(pairwise(starts.tolist())):
            for columns, listed, start, stop in _contexts(batch, stack.kind, first, last):
                events = columns, listed, batch.action, whole.eligible_bits, self._words, places, start, stop
                bad = kernels.observe(self._stack, fold if folds > 1 else 0, *events, *memory)
                if bad >= 0:
                    self._explain(batch, places, bad, last)
        if self.job.models.clamp is not None:
            sums.calibration.predictions += n_predictions(whole, self.plan.form.actions)
            sums.calibration.clamped += int(clipped[0])

    def _explain(self, batch: Batch, places: Ints, first: int, last: int) -> None:
        """Raise the error about a tile with an invalid number: asking in Python finds it, and names the event."""
        last = min(last, first + self._x.shape[1] - kernels.PAD)
        events = places[first:last] if len(places) else np.arange(first, last)
        one = Block(batch.take(events), 0, len(events))
        self.plan.reader.check_finite(one)
        Actions(self.plan.in_python()).observe(one.batch, self.plan.create())
        raise AssertionError(f"the events from {one.where(0)} on have an invalid number, and then have none")


def _contexts(batch: Batch, kind: np.dtype[Any], first: int, last: int) -> Iterator[tuple[Ints, int, int, int]]:
    """Yield where contexts are, and for which events.

    Addresses and types of columns, or of a matrix with so many features. An address is where the number of event 0
    would be.
    """
    context = batch.context
    if isinstance(context, Coded):
        for start in range(first, last, CODED):
            block = Block(batch, start, min(start + CODED, last))
            features = block.features_as(kind)
            yield _addresses(list(features), start), 0, start, block.stop
    elif isinstance(context, np.ndarray):
        matrix = np.ascontiguousarray(context, kind)
        yield _addresses([matrix]), matrix.shape[1], first, last
    else:
        assert isinstance(context, list)
        columns = [np.ascontiguousarray(c if c.dtype in CODES else c.astype(kind)) for c in context]
        yield _addresses(columns), 0, first, last


def _addresses(columns: list[NDArray[Any]], start: int = 0) -> Ints:
    found = [(c.__array_interface__["data"][0] - start * c.itemsize, CODES[c.dtype]) for c in columns]
    return np.array(found, np.int64).reshape(-1, 2)


def limits_of(models: BoundModels, kind: np.dtype[Any]) -> tuple[float, float]:
    """The range that predictions are held within, in another type, rounded inwards: float32(0.1) is above 0.1."""
    if models.clamp is None:
        return -np.inf, np.inf
    low, high = kind.type(models.clamp[0]), kind.type(models.clamp[1])
    return (
        float(low if float(low) >= models.clamp[0] else np.nextafter(low, kind.type(np.inf))),
        float(high if float(high) <= models.clamp[1] else np.nextafter(high, kind.type(-np.inf))),
    )
