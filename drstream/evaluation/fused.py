"""The fast way of a batch: one compiled call from contexts to sums, where policies and models are linear.

Everything else goes block by block (`evaluation/terms.py`), through the same helpers of kernels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  # loads the BLAS of the kernel before a pass limits its threads

from drstream.buffers import read_only
from drstream.evaluation.plan import Plan
from drstream.evaluation.tally import Tally
from drstream.evaluation.terms import Job, Workspace, block_terms, prediction_limits
from drstream.evaluation.totals import THIN
from drstream.kernels import fused as kernels
from drstream.kernels import terms
from drstream.log import Batch, Block
from drstream.moments import fields_of

INTS, FLOATS = np.empty(0, np.int64), np.empty(0)
NO_SETS = read_only(INTS), read_only(np.empty(0, np.int32)), read_only(np.empty(0, np.uint64))
NO_POLICIES = kernels.Linear(np.empty((0, 0)), FLOATS, INTS, FLOATS, INTS, INTS, FLOATS, 0, np.zeros(2))


_made: WeakKeyDictionary[Plan, tuple[kernels.Weighing, list[kernels.Linear]]] = WeakKeyDictionary()


class Fused:
    """The constants of a pass, and memory for a tile."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        job, stack = plan.job, plan.job.stack
        kind = np.dtype(np.float64) if stack is None else stack.kind
        self.weighing, self.linear = _constants(plan)
        rows, features = self.linear[0].weights.shape
        policies = len(job.policies)
        numbers = (features, kind), (rows, kind), (job.variables + policies, float), (policies, float), (1, float)
        sizes = [kernels.TILE + kernels.PAD] * 2 + [kernels.TILE] * 3
        spaces: list[Any] = [np.empty(count * size, of) for (count, of), size in zip(numbers, sizes, strict=True)]
        self.space = kernels.Space._make([*spaces, np.empty(job.words * kernels.TILE, np.uint32)])

    def add(self, batch: Batch, tally: Tally) -> None:
        """Add the events of a batch."""
        job, others = self.plan.job, np.zeros(2, np.int64)
        events, found = _events(job, batch), _found(tally, others)
        bounds = [0, len(batch)] if batch.fold_starts is None else batch.fold_starts.tolist()
        for fold, (first, last) in enumerate(pairwise(bounds)):
            linear = self.linear[fold if len(self.linear) > 1 else 0]
            bad = kernels.add_events(events, first, last, linear, self.weighing, found, self.space)
            if bad >= 0:
                self._explain(Block(batch, bad, min(bad + kernels.TILE, last)), tally)
        tally.other_than_clicks += int(others[0])
        if job.models.clamp is not None:
            tally.calibration.predictions += job.n_predictions(batch)
            tally.calibration.clamped += int(others[1])
        tally.mass[self.weighing.given] = np.nan
        job.spread(batch, tally)

    def _explain(self, block: Block, tally: Tally) -> None:
        """Raise the error about a tile with an invalid number: the slow way finds it, and names the event."""
        self.plan.reader.check_finite(block)
        block_terms(self.plan.job, block, Workspace(self.plan.job, len(block)), tally)
        raise AssertionError(f"the events from {block.where(0)} on have an invalid number, and then have none")


def _constants(plan: Plan) -> tuple[kernels.Weighing, list[kernels.Linear]]:
    """Return what is the same for all parts of a pass. It takes the interpreter's lock, so a process makes it once."""
    if plan not in _made:
        stack = plan.job.stack
        folds = [] if stack is None else [_linear(plan.job, fold) for fold in range(len(stack.weights))]
        _made[plan] = _weighing(plan), folds or [NO_POLICIES]
    return _made[plan]


def _linear(job: Job, fold: int) -> kernels.Linear:
    stack = job.stack
    assert stack is not None
    group, none = stack.policies, np.empty(0, stack.kind)
    intercept = stack.intercepts[fold] if stack.has_model else none
    limits = np.array(prediction_limits(job.models, stack.kind))
    policies = group.intercept, group.kinds, group.epsilons, group.slots, group.places
    return kernels.Linear(stack.weights[fold].matrix, *policies, intercept, stack.link, limits)


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


def _events(job: Job, batch: Batch) -> kernels.Events:
    whole = Block(batch, 0, len(batch))
    given = [policy.logged(whole) for policy in job.policies if policy.only_logged]
    context = batch.context
    columns: list[Any] = [] if job.stack is None else context if isinstance(context, list) else [context]
    addresses = np.array([column.__array_interface__["data"][0] for column in columns], np.int64)
    assert all(column.flags.c_contiguous for column in columns)
    rows = given[0][np.newaxis] if len(given) == 1 else np.array(given) if given else np.empty((0, 0))
    logged: list[Any] = [batch.action, batch.reward, batch.propensity, rows]
    action, reward, propensity, rows = map(read_only, logged)
    found = batch.eligible
    arrays = () if found is None else (found.lists.starts, found.lists.values, found.words)
    sets = tuple(map(read_only, arrays)) or NO_SETS
    return kernels.Events(action, reward, propensity, rows, addresses, int(not isinstance(context, list)), *sets)


def _found(tally: Tally, others: Any) -> kernels.Found:
    totals, calibration = tally.totals, tally.calibration
    inspected = totals.inspected.reshape(-1, terms.INSPECTED)
    about = inspected, tally.reduced, tally.mass, tally.logged, others, calibration.table, calibration.sums
    return kernels.Found(*fields_of(totals.moments), *about)
