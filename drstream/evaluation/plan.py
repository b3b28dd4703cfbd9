"""What a pass for fixed policies needs to know: policies and models bound to the log, terms, and what to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from drstream.errors import DrstreamError, PolicyError, parameter
from drstream.evaluation.adaptive import find_overlaps
from drstream.evaluation.embedding import Categories, Embedding, embedding_of
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.form import SumsForm
from drstream.evaluation.header import Header
from drstream.evaluation.job import Bounds, Job
from drstream.evaluation.program import Program, make_program
from drstream.evaluation.request import Request
from drstream.evaluation.segments import check_columns
from drstream.evaluation.stacking import Stack
from drstream.evaluation.sums import Sums
from drstream.evaluation.terms import PolicyTerms, WeightTerms
from drstream.kernels.scores import TILE
from drstream.log import Log, Reader
from drstream.log.spec import ROWS as BATCH_ROWS
from drstream.models.binding import BoundModels, bind_models, others_of
from drstream.policies.base import FixedPolicy, doubt_if_learned_here
from drstream.running import execution
from drstream.running.execution import Workers, physical_memory
from drstream.sources.base import Part
from drstream.types import Ints

CACHE = 3 << 18  # bytes of a block's (K, n) buffers that the second-level cache holds beside what else a block needs
FEWEST = 1024  # rows of a block, if that takes no more memory than MOST: with fewer, Python's share of the time grows
CANDIDATES = 1 << 14  # of a block's events together: what is computed for them then stays in cache
MOST = 1 << 25  # bytes of a block's (K, n) buffers, if one event does not need more
LARGEST_TILE = 1 << 20  # bytes of a tile's contexts and scores


@dataclass(frozen=True)
class OfLists:
    """What a pass over a log of rankings needs to know beside the terms."""

    listed: bool  # whether propensities are by position
    kind: str | None  # what those are, if the user said so
    positions: int  # number of positions that have terms of their own
    known: tuple[str, ...]  # terms of lists, in the order of their codes

    def codes(self, group: WeightTerms) -> Ints:
        return np.array([self.known.index(term) for term in group.terms])


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a pass needs to know, bound to the log. It can be pickled."""

    job: Job
    request: Request  # without policies and models, which the job has
    reader: Reader
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are needed
    reward: str = ""  # the column
    lists: OfLists | None = None  # of a log of rankings

    @cached_property
    def form(self) -> SumsForm:
        job, request = self.job, self.request
        return SumsForm(
            policies=len(job.policies),
            columns=job.terms.columns,
            weights=tuple(f"{group.weight.name}.weight" for group in job.terms.weighted),
            groups=self.groups,
            down_sampled=job.down_sampled,
            fine=request.fine,
            stretches=request.stretches,
            by=request.by,
            logger=self.reader.loggers is not None,
            actions=job.n_actions,
            octaves=request.told is not None and not job.down_sampled,
            watched=self._watched,
        )

    @property
    def _watched(self) -> tuple[str, ...]:
        """The rows whose extremes are needed."""
        return ("reward", "length") if self.job.ranking else ("reward",)

    @cached_property
    def program(self) -> Program:
        return make_program(self.job, self.form.layout, list(self.form.watched))

    @property
    def path(self) -> str:
        """Which way events go, in words."""
        return "python" if self.job.asks else "compiled"

    @property
    def header(self) -> Header:
        job = self.job
        return Header(
            form=self.form,
            request=self.request,
            policies=[policy.name for policy in job.policies],
            labels=self.reader.labels,
            reward=self.reward,
            pivot=job.pivot,
            precision=job.precision,
            models=job.models.about,
            has_model=job.models.model is not None,
            has_logger=job.models.logger is not None,
            others=others_of(job.policies, job.models),
            listed=None if self.lists is None else (self.lists.listed, self.lists.kind),
            embedding=job.embedding if isinstance(job.embedding, Embedding) else None,
            path=self.path,
        )

    def in_python(self) -> Plan:
        """The same plan for observers that ask policies and models in Python."""
        return replace(self, job=replace(self.job, stack=None))

    @property
    def block_rows(self) -> int:
        """Rows of a block: few enough that buffers stay in cache.

        They depend on the log and the parameters only, so every run has the same blocks.
        """
        event = self.job.bytes_an_event
        rows = min(max(CACHE // event, FEWEST), MOST // event)
        return min(max(1, 1 << (max(rows, 1).bit_length() - 1)), BATCH_ROWS)

    @property
    def block_candidates(self) -> int | None:
        """The most candidates that the events of a block have together; None if they have none of their own."""
        return CANDIDATES if self.job.candidates else None

    def check_memory(self, workers: int) -> None:
        """Raise an error if the buffers of all workers need more memory than the machine has."""
        job, stack = self.job, self.job.stack
        weights = 0 if stack is None else stack.weights.nbytes
        rows = len(self.program.rows) + len(self.program.code.code)
        block = 8 * BATCH_ROWS * rows + (self.block_rows * job.bytes_an_event if job.asks else 0)
        needed, there = weights + workers * block, physical_memory()
        if needed > there:
            raise DrstreamError(
                f"{job.n_actions:,} actions and {len(job.policies):,} policies need about {needed / 1e9:.1f} GB for "
                f"blocks of {self.block_rows} events on {workers} threads, and the machine has {there / 1e9:.1f} GB: "
                f"take fewer policies at a time, or fewer {parameter('threads')}"
            )

    def create(self) -> Sums:
        return Sums(self.form, self.job.pivot)


def tile_of(rows: int, features: int, kind: np.dtype[Any]) -> int:
    """Events of a tile, so that contexts and scores stay in cache, if they can."""
    most = LARGEST_TILE // ((rows + features) * kind.itemsize)
    return min(TILE, max(16, 1 << (max(most, 1).bit_length() - 1)))


def bounds_of(request: Request) -> Bounds:
    """What the caller said about rewards and weights."""
    settings = request.settings
    predictions = "reward_range" in settings.needs and any(e.needs_model for e in request.estimators)
    return Bounds(settings.reward_range, settings.max_weight_bound, predictions, settings.smoothing)


def make_plan(request: Request, log: Log, workers: Workers) -> Plan:
    """Bind policies and models to the log of one reward, and find out what to read from it."""
    check_columns(log.source.schema, request.by)
    chosen, policies, inputs = request.estimators, request.policies, request.needed(request.inputs[log.roles.reward])
    with_actions = inputs.given or any(policy.needs_actions(log) for policy in policies.values())
    if known := request.users(log):
        log = log.with_actions_of(*known)
    for name, policy in policies.items():
        doubt_if_learned_here(policy, name, log)
    bound = [policy.bind_to(log, name) for name, policy in policies.items()]
    by_category = any(e.weight is not None and e.weight.marginal for e in chosen)
    if inputs.model is not None or by_category:
        _require_all_probabilities(bound, "categories" if inputs.model is None else "a reward model")
    categories = embedding_of(log, request.embedding) if by_category else None
    of_categories = categories.columns if isinstance(categories, Categories) else ()
    models = bind_models(log, inputs, workers)
    users: list[FixedPolicy | BoundModels] = [*bound, models]
    by_time = any(e.weight is not None and e.weight.power for e in chosen)
    reader = log.reader(
        context=any(u.uses_context for u in users),
        action=with_actions,
        columns=tuple(dict.fromkeys([*(c for u in users for c in u.columns), *request.by, *of_categories])),
        folds=models.folds,
        cluster=request.settings.cluster,
        start=models.start,
        propensities=by_time or (by_category and models.logger is None and bool(log.roles.propensities)),
        loggers=True,
        logger_propensities=any(e.weight is not None and e.weight.balanced for e in chosen),
        candidates=log.has_candidates and any(u.uses_candidates for u in users),
    )
    weighted = any(e.weight for e in chosen)
    terms = PolicyTerms.of(chosen, request.limits, request.extra, plain=reader.loggers is not None and weighted)
    job = Job(
        bound, models, terms, len(reader.labels), log.pivot, bounds_of(request), log.roles.sample_rate is not None
    )
    job = replace(job, candidates=log.has_candidates, with_sets=reader.with_sets)
    job = replace(job, embedding=categories)
    job = replace(job, stack=_stack(log, job, reader, request.precision))
    if not job.asks:
        reader = reader.unchecked()  # the kernel does so
    plan = Plan(job, request.bare, reader, groups_of(chosen, terms), log.roles.reward)
    if by_time:
        overlaps = find_overlaps(log, reader, bound, plan.block_rows, workers)
        plan = replace(plan, job=replace(job, overlaps=overlaps))
    plan.check_memory(workers.threads)
    return plan


def _stack(log: Log, job: Job, reader: Reader, precision: str | None) -> Stack | None:
    """What is linear in dense contexts, or looks at nothing but columns of the log."""
    if job.candidates or (reader.with_context and log.is_sparse):
        return None
    kind = None if precision is None else np.dtype(precision)
    return Stack.of(job.policies, job.models.model, lambda: log.contexts.type if kind is None else kind)


def count_loggers(reader: Reader, log: Log, workers: Workers) -> Reader:
    """Return the reader with the share of each logger in the events that it reads, if these have balanced weights.

    This is a pass of its own. It reads the column of the loggers, and those that decide which rows are events: all of
    them if bad rows are skipped.
    """
    loggers = reader.loggers
    if loggers is None or not loggers.of_loggers:
        return reader
    columns = tuple(dict.fromkeys([*reader.choosing, loggers.column]))
    counts: Counter[Any] = Counter()
    held = log.copy(source=log.source.peek())  # keeps a stream that can be read only once for later
    for found in execution.run(partial(_count, reader), held, columns, workers, "counting loggers"):
        counts.update(found)
    return reader.with_shares(loggers.counted(counts))


def _count(reader: Reader, part: Part) -> Counter[Any]:
    assert reader.loggers is not None
    counts: Counter[Any] = Counter()
    for batch in reader.rows(part):
        counts.update(reader.loggers.counts(batch))
    return counts


def groups_of(chosen: Sequence[Estimator], terms: PolicyTerms) -> tuple[tuple[str, ...], ...]:
    """The sets of terms whose covariances are needed: all of one weight, and those of estimators without a weight.

    Estimators share them. Beside its own terms, an estimator finds the weight, for its effective sample size, and the
    weighted reward, for intervals.
    """
    groups: dict[str, dict[str, None]] = {group.weight.name: dict.fromkeys(group.columns) for group in terms.weighted}
    for estimator in chosen:
        name = estimator.weight.name if estimator.weight else ""
        groups.setdefault(name, {}).update(dict.fromkeys(estimator.columns))
    return tuple(map(tuple, groups.values()))


def _require_all_probabilities(policies: Sequence[FixedPolicy], what: str) -> None:
    for policy in policies:
        if policy.only_logged:
            raise PolicyError(
                f"policy {policy.name!r} gives the probability of the logged action only, which is enough for "
                f"estimators without {what}. Those with {'them' if what == 'categories' else 'one'} need the "
                "probabilities of all actions: give a column of lists"
            )
