"""The fast way of a batch: one compiled call from contexts to sums, where policies and models are linear.

Everything else goes block by block (`evaluation/terms.py`), through the same helpers of kernels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # loads the BLAS of the kernel before a pass limits its threads
from numpy.typing import NDArray

from drstream.buffers import read_only
from drstream.evaluation.plan import Plan
from drstream.evaluation.scoring import Stack
from drstream.evaluation.tally import Tally
from drstream.evaluation.terms import Job, Workspace, block_terms, prediction_limits
from drstream.evaluation.totals import THIN
from drstream.execution import raise_if_stopped
from drstream.kernels import fused as kernels
from drstream.kernels import terms
from drstream.kernels._jit import address_of
from drstream.kernels.pages import AT_ONCE, RESULT, UNUSUAL, Pages, decode
from drstream.log import Batch, Block, Reader
from drstream.log.memory import aligned, kept
from drstream.log.numbers import Form, Numbers
from drstream.log.pages import NO_PAGES
from drstream.log.rows import Folds
from drstream.log.source import Part
from drstream.types import Ints

CODES = {np.dtype(name): code for code, name in enumerate(kernels.KINDS)}  # of types of columns
WHOLE = {np.dtype(np.int32), np.dtype(np.int64)}  # types of actions
MOST_FORMS = 64  # of rows, that are kept: most parts of a log have one number of rows
WORK = 1 << 30  # products of a call, or a little more; then it ends for a moment, as a row group can have many rows
FEWEST = 1 << 8  # products that a row counts for, at least
CHECKED = -1  # instead of a number of actions: the reader has looked at all events
INTS, FLOATS = np.empty(0, np.int64), np.empty(0)
IN_ORDER: tuple[Any, ...] = INTS, 0  # events, as the columns have them
NO_SETS = read_only(INTS), read_only(np.empty(0, np.int32)), read_only(np.empty(0, np.uint64))
NO_FOLDS = kernels.Folding(0, read_only(np.zeros(1, np.uint64)), 0, np.empty(0, np.int32), INTS, INTS)
NO_POLICIES = kernels.Linear(np.empty((1, 0, 0)), FLOATS, INTS, FLOATS, INTS, INTS, np.empty((1, 0)), 0, np.zeros(2))


_made: WeakKeyDictionary[Plan, tuple[kernels.Weighing, kernels.Linear]] = WeakKeyDictionary()


class Fused:
    """The constants of a pass, and memory for a tile. A thread uses it for all parts of the pass."""

    @classmethod
    def of(cls, plan: Plan) -> Fused:
        found = kept.work
        if not isinstance(found, cls) or found.plan is not plan:
            found = cls(plan)
            kept.work = found if kept.allowed else None
        return found

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        job, stack = plan.job, plan.job.stack
        kind = np.dtype(np.float64) if stack is None else stack.kind
        self.weighing, self.linear = _constants(plan)
        self.decode = address_of(decode)
        self._columns: dict[tuple[Form, int], Ints | None] = {}  # what the kernel needs, by form and number of rows
        folds, rows, features = self.linear.weights.shape
        self.at_once = WORK // max(rows * features, FEWEST)  # rows
        divided = kernels.FOLDED if folds > 1 else 0
        self.divided = np.empty(divided, np.int32), np.empty(divided, np.int64), np.zeros(folds + 1, np.int64)
        policies = len(job.policies)
        tile = kernels.TILE
        padded = tile + kernels.PAD
        self.space = kernels.Space(
            features=_numbers(features * padded, kind),
            scores=_numbers(rows * padded, kind),
            terms=_numbers((job.variables + policies) * tile),
            logged=_numbers(policies * tile),
            rhat=_numbers(tile),
            bits=_numbers(job.words * tile, np.uint32),
            columns=_numbers(2 * tile),
            action=_numbers(tile, np.int32),
            shift=_numbers(job.variables),
        )

    def add(self, batch: Batch, tally: Tally) -> None:
        """Add the events of a batch."""
        job, others = self.plan.job, np.zeros(2, np.int64)
        (events, _), found = _events(job, batch), _found(tally, others)  # the columns stay until the method ends
        bounds = [0, len(batch)] if batch.fold_starts is None else batch.fold_starts.tolist()
        folds = len(self.linear.weights)
        for fold, (first, last) in enumerate(pairwise(bounds)):
            about = events, first, last, fold if folds > 1 else 0, self.linear, self.weighing, found, self.space
            bad = kernels.add_events(self.decode, NO_PAGES, NO_FOLDS, *about)
            if bad >= 0:
                self._explain(Block(batch, bad, min(bad + kernels.TILE, last)), tally)
        self._note(others, job.n_predictions(batch), tally)
        job.spread(batch, tally)

    def add_part(self, part: Part, reader: Reader, tally: Tally) -> bool:
        """Add all rows of a part, if they are nothing but numbers, and good. Return whether they are.

        One compiled call decodes, checks and adds them. Python makes nothing of them, which would take the
        interpreter's lock. If it returns False, the tally is useless. Then batches name what is bad.
        """
        others = np.zeros(2, np.int64)
        about = int(reader.roles.listed), len(reader.labels), *NO_SETS, *IN_ORDER
        constants = 0, self.linear, self.weighing, _found(tally, others), self.space
        folding = self._folding(part, reader)

        def use(rows: Numbers, pages: Pages) -> int:
            raise_if_stopped()
            columns = self._columns_of(rows, reader)
            if columns is None:
                return UNUSUAL
            if len(pages.columns):
                pages.state[AT_ONCE] = max(1, self.at_once // max(rows.rows, 1))
            events = kernels.Events(rows.memory.address, columns, *about)
            bad = kernels.add_events(self.decode, pages, folding, events, 0, part.rows, *constants)
            return UNUSUAL if bad >= 0 else int(pages.state[RESULT])

        if not reader.hand_to(part, use):
            return False
        self._note(others, part.rows * self.plan.job.n_actions, tally)
        return True

    def _folding(self, part: Part, reader: Reader) -> kernels.Folding:
        folds = reader.folds
        if not isinstance(folds, Folds):
            return NO_FOLDS
        return kernels.Folding(folds.count, folds.key, part.first_row, *self.divided)

    def _columns_of(self, rows: Numbers, reader: Reader) -> Ints | None:
        """Return the columns that the kernel needs, for `Events.columns`. None if it cannot take them as they are."""
        about = rows.form, rows.rows
        if about not in self._columns:
            if len(self._columns) >= MOST_FORMS:
                self._columns.clear()
            self._columns[about] = self._find_columns(rows, reader)
        return self._columns[about]

    def _find_columns(self, rows: Numbers, reader: Reader) -> Ints | None:
        roles, job = reader.roles, self.plan.job
        given = [policy.given_by for policy in job.policies if policy.only_logged]
        if None in given or roles.negated or reader.constant is not None:
            return None
        if len(self.linear.weights) != (1 if reader.folds is None else reader.folds.count):
            return None
        if reader.folds is not None and roles.listed:  # a product of many rows would be another one than by batches
            return None
        if reader.with_action and not isinstance(reader.labels, range):
            return None
        action, size = roles.action if reader.with_action else None, 0
        needed: list[tuple[str | None, set[Any], int]]
        needed = [(action, WHOLE, 0), (self.plan.reward, set(CODES), 0), (roles.propensity, set(CODES), 0)]
        if job.stack is not None:
            size = self.linear.weights.shape[2] if roles.listed else 0
            needed += [(name, {job.stack.kind}, size) for name in roles.context]
        needed += [(name, set(CODES), 0) for name in given]
        found = []
        for name, kinds, size in needed:
            if name is None:
                found.append((-1, 0))
                continue
            place = rows.form.places[name]
            column = rows.form.columns[place]
            if column.number not in kinds or column.size != size:
                return None
            found.append((rows.starts[place], CODES[column.number]))
        return np.array(found)

    def _note(self, others: Ints, predictions: int, tally: Tally) -> None:
        """Add what the kernel has counted: rewards that are neither 0 nor 1, and predictions outside of the limits."""
        rewards, clamped = others.tolist()
        tally.other_than_clicks += rewards
        if self.plan.job.models.clamp is not None:
            tally.calibration.predictions += predictions
            tally.calibration.clamped += clamped
        if len(self.weighing.given):
            tally.mass[self.weighing.given] = np.nan

    def _explain(self, block: Block, tally: Tally) -> None:
        """Raise the error about a tile with an invalid number: the slow way finds it, and names the event."""
        self.plan.reader.check_finite(block)
        block_terms(self.plan.job, block, Workspace(self.plan.job, len(block)), tally)
        raise AssertionError(f"the events from {block.where(0)} on have an invalid number, and then have none")


def _numbers(count: int, kind: Any = np.float64) -> NDArray[Any]:
    return aligned(count * np.dtype(kind).itemsize).view(kind)


def _constants(plan: Plan) -> tuple[kernels.Weighing, kernels.Linear]:
    """Return what is the same for all parts of a pass. It takes the interpreter's lock, so a process makes it once."""
    if plan not in _made:
        _made[plan] = _weighing(plan), NO_POLICIES if plan.job.stack is None else _linear(plan.job, plan.job.stack)
    return _made[plan]


def _linear(job: Job, stack: Stack) -> kernels.Linear:
    group, matrices = stack.policies, [weights.matrix for weights in stack.weights]
    intercepts = np.stack(stack.intercepts) if stack.has_model else np.empty((len(matrices), 0), stack.kind)
    limits = np.array(prediction_limits(job.models, stack.kind))
    policies = group.intercept, group.kinds, group.epsilons, group.slots, group.places
    weights = np.stack(matrices) if len(matrices) > 1 else matrices[0][np.newaxis]
    return kernels.Linear(weights, *policies, intercepts, stack.link, limits)


def _weighing(plan: Plan) -> kernels.Weighing:
    job, layout = plan.job, plan.layout
    groups, policies = job.terms.weighted, len(job.policies)
    most = max((len(group.terms) for group in groups), default=0)
    parameters, codes = np.zeros((len(groups), terms.PARAMETERS)), np.zeros((len(groups), most), np.int64)
    for k, group in enumerate(groups):
        parameters[k, : len(group.values)] = group.values
        codes[k, : len(group.codes)] = group.codes
    return kernels.Weighing(
        kinds=np.array([group.code for group in groups], np.int64),
        parameters=parameters,
        codes=codes,
        sizes=np.array([len(group.terms) for group in groups], np.int64),
        places=np.array(job.weights, np.int64).reshape(len(groups), policies),
        reduced=np.array([group.reduced for group in groups], np.int64),
        predicted=job.predicted,
        given=np.array([j for j, policy in enumerate(job.policies) if policy.only_logged], np.int64),
        inspected=plan.shape.weights.reshape(-1),
        members=layout.members,
        starts=layout.starts,
        constants=np.array([job.pivot, THIN, plan.typical_reward]),
    )


def _events(job: Job, batch: Batch) -> tuple[kernels.Events, list[NDArray[Any]]]:
    """Return what the kernel is told about a batch, and the columns, whose memory it reads."""
    whole, context = Block(batch, 0, len(batch)), batch.context
    given = [policy.logged(whole) for policy in job.policies if policy.only_logged]
    columns: list[Any] = [] if job.stack is None else context if isinstance(context, list) else [context]
    used = [batch.action, batch.reward, batch.propensity, *columns, *given]
    assert all(column.flags.c_contiguous for column in used)
    about = np.array([(_address(column), CODES[column.dtype]) for column in used])
    found = batch.eligible
    arrays = () if found is None else (found.lists.starts, found.lists.values, found.words)
    sets = tuple(map(read_only, arrays)) or NO_SETS
    listed = int(not isinstance(context, list))
    return kernels.Events(0, about, listed, CHECKED, *sets, *IN_ORDER), used


def _address(column: NDArray[Any]) -> int:
    return int(column.__array_interface__["data"][0]) if len(column) else -1


def _found(tally: Tally, others: Any) -> kernels.Found:
    totals, calibration = tally.totals, tally.calibration
    inspected = totals.inspected.reshape(-1, terms.INSPECTED)
    about = inspected, tally.reduced, tally.mass, tally.logged, others, calibration.table, calibration.sums
    return kernels.Found(*totals.fields, *about)
