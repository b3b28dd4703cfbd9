"""Observations of linear policies and models, in compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import PolicyError
from drstream.evaluation.plan import Plan, tile_of
from drstream.evaluation.stacking import Stack
from drstream.evaluation.sums import Sums
from drstream.kernels import observe as kernels
from drstream.kernels import order
from drstream.log import Events
from drstream.log.encoding import Coded
from drstream.models.binding import BoundModels
from drstream.types import Floats, Ints

CODES = {np.dtype(name): code for code, name in enumerate(kernels.KINDS)}  # of types of columns
CODED = 4096  # events of which categories are encoded at a time
IN_ORDER = np.empty(0, np.int64)


class LinearObserver:
    """The kernel that observes, with its memory."""

    def __init__(self, plan: Plan, stack: Stack) -> None:
        self._job, self._rows, self._stack, self._actions = plan.job, plan.program.rows, stack, plan.form.actions
        self._linear = self._for_kernel(stack)
        rows, features = self._linear.weights.shape[1:]
        width = tile_of(rows, features, stack.kind) + kernels.PAD
        self._x, self._scores = np.zeros((features, width), stack.kind), np.zeros((rows, width), stack.kind)
        words = -(-self._actions // 32) if plan.reader.with_sets else 0
        self._words = np.empty((words, width), np.uint32) if words else None
        self._found = np.empty(self._actions)

    def _for_kernel(self, stack: Stack) -> kernels.LinearRules:
        rows = self._rows
        return kernels.LinearRules(
            stack.padded,
            stack.intercept,
            stack.kinds,
            stack.epsilons,
            stack.slots,
            np.array([rows[f"{j}.pi"] for j in stack.slots], np.int64),
            np.array([rows.get(f"{j}.b", -1) for j in stack.slots], np.int64),
            stack.model,
            stack.links,
            np.array(limits_of(self._job.models, stack.kind)),
            rows.get("rhat", -1),
        )

    def observe(self, batch: Events, values: Floats, sums: Sums) -> Events | None:
        """Fill in the observations (rows, n) of a batch. Returns some events of which one has an invalid number."""
        clipped, folds = np.zeros(1, np.int64), len(self._stack.weights)
        places, starts = IN_ORDER, np.array([0, len(batch)])
        if folds > 1 and batch.fold_starts is not None:
            starts = batch.fold_starts
        elif folds > 1 and len(batch.fold):
            places, starts = np.empty(len(batch), np.int64), np.empty(int(batch.fold.max(initial=0)) + 2, np.int64)
            order.sort_by_group(batch.fold, starts, places)
        memory = values, sums.mass, clipped, self._x, self._scores, self._found
        for fold, (first, last) in enumerate(pairwise(starts.tolist())):
            for columns, listed, start, stop in _contexts(batch, self._stack.kind, first, last):
                events = columns, listed, batch.action, batch.eligible_bits, self._words, places, start, stop
                bad = kernels.observe(self._linear, fold if folds > 1 else 0, *events, *memory)
                if bad >= 0:
                    end = min(last, bad + self._x.shape[1] - kernels.PAD)
                    return batch.take(places[bad:end] if len(places) else np.arange(bad, end))
        if self._job.models.clamp is not None and self._stack.with_model:
            sums.calibration.predictions += n_predictions(batch, self._actions)
            sums.calibration.clamped += int(clipped[0])
        return None

    def explain(self, some: Events) -> None:
        """Raise an error if a score of a policy is not finite."""
        stack, K = self._stack, self._actions
        with np.errstate(all="ignore"):
            scores = stack.weights[0, : len(stack.intercept)] @ some.features_as(stack.kind) + stack.intercept[:, None]
        for i in range(len(some)):
            for own, j in zip(scores[:, i].reshape(-1, K), stack.slots, strict=True):
                if not np.isfinite(own).all():
                    shown = ", ".join(f"{score:.6g}" for score in own[:6]) + (", ..." if K > 6 else "")
                    name = self._job.policies[j].name
                    raise PolicyError(f"policy {name!r} has a score that is not finite at {some.where(i)}: [{shown}]")


def n_predictions(block: Events, actions: int) -> int:
    """How many predictions there are for a block: those for eligible actions."""
    sets = block.eligible
    return len(block) * actions if sets is None else int(sets.lists.starts[-1] - sets.lists.starts[0])


def _contexts(batch: Events, kind: np.dtype[Any], first: int, last: int) -> Iterator[tuple[Ints, int, int, int]]:
    """Yield where contexts are, and for which events.

    Addresses and types of columns, or of a matrix with so many features. An address is where the number of event 0
    would be.
    """
    context = batch.context
    if isinstance(context, Coded):
        for start in range(first, last, CODED):
            block = batch[start : min(start + CODED, last)]
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
