"""What a pass for fixed policies needs to know: policies and models bound to the log, terms, and what to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from drstream import execution
from drstream.errors import DrstreamError, PolicyError, parameter
from drstream.evaluation.adaptive import find_overlaps
from drstream.evaluation.embedding import Categories, embedding_of
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.form import Form
from drstream.evaluation.scoring import Stack
from drstream.evaluation.segments import check_columns
from drstream.evaluation.tally import Tally, new_tally
from drstream.evaluation.terms import Bounds, Job, Terms
from drstream.evaluation.totals import Shape
from drstream.execution import Workers, physical_memory
from drstream.kernels.fused import PAD
from drstream.kernels.fused import TILE as FUSED_ROWS
from drstream.kernels.terms import GIVEN
from drstream.log import Log, Reader
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.log.rows import Blocks
from drstream.log.source import Part
from drstream.models.binding import BoundModels, ModelInputs, bind_models
from drstream.moments import Layout
from drstream.policies.base import FixedPolicy, warn_if_learned_here

CACHE = 3 << 18  # bytes of a block's (K, n) buffers that the second-level cache holds beside what else a block needs
FEWEST = 1024  # rows of a block, if that takes no more memory than MOST: with fewer, Python's share of the time grows
MOST_PAIRED = 32  # policies: the number of covariances between them grows with its square
CANDIDATES = 1 << 14  # of a block's events together: what is computed for them then stays in cache
MOST = 1 << 25  # bytes of a block's (K, n) buffers, if one event does not need more


@dataclass(frozen=True)
class Gather:
    """What a pass gathers beside moments of the terms."""

    buckets: bool = False
    stretches: bool = False
    by: tuple[str, ...] = ()  # columns whose values make segments
    cluster: str | None = None  # the column that buckets are made from; None: from row numbers
    bounds: Bounds = field(default_factory=Bounds)
    extra: frozenset[str] = frozenset()  # what terms shall explain: `Estimator.explained_by`
    octaves: bool = False  # weights by size


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a pass needs to know, bound to the log. It can be pickled."""

    job: Job
    estimators: list[Estimator]
    reader: Reader
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are needed
    gather: Gather = field(default_factory=Gather)
    reward: str = ""  # the column
    typical_reward: float = 0.0  # that predictions are compared about: 0, unless rewards are far from it
    paired: bool = True  # whether the covariances of terms of two policies are needed, too
    fused: bool = False  # whether batches go the way of `evaluation/fused.py`

    @cached_property
    def form(self) -> Form:
        job, gather = self.job, self.gather
        return Form(
            policies=len(job.policies),
            columns=job.terms.columns,
            weights=tuple(f"{group.weight.name}.weight" for group in job.terms.weighted),
            groups=self.groups,
            down_sampled=job.down_sampled,
            paired=self.paired,
            buckets=gather.buckets,
            stretches=gather.stretches,
            by=gather.by,
            logger=self.reader.loggers is not None,
            actions=job.n_actions,
            with_sets=job.with_sets,
            octaves=gather.octaves and not job.down_sampled,
        )

    @property
    def layout(self) -> Layout:
        return self.form.layout

    @property
    def shape(self) -> Shape:
        return self.form.shape

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
        weights = 0 if stack is None else sum(found.matrix.nbytes for found in stack.weights)
        block = self.block_rows * (job.bytes_an_event + 8 * (job.variables + 2 * len(job.policies)))
        needed, there = weights + workers * block, physical_memory()
        if needed > there:
            raise DrstreamError(
                f"{job.n_actions:,} actions and {len(job.policies):,} policies need about {needed / 1e9:.1f} GB for "
                f"blocks of {self.block_rows} events on {workers} threads, and the machine has {there / 1e9:.1f} GB: "
                f"take fewer policies at a time, or fewer {parameter('threads')}"
            )

    def fused_if_possible(self, contexts: Set[np.dtype[Any]]) -> Plan:
        """Let batches go the fast way, if they can. It finds contexts that are not finite by itself."""
        if not _can_fuse(self, contexts):
            return self
        reader = replace(self.reader, checks_context=False, unit=None if self.reader.folds else FUSED_ROWS)
        return replace(self, reader=reader, fused=True)

    def create(self) -> Tally:
        return new_tally(self.form, self.typical_reward)


def make_plan(
    log: Log,
    policies: dict[str, FixedPolicy],
    inputs: ModelInputs,
    chosen: list[Estimator],
    parameters: dict[str, float | None],
    workers: Workers,
    gather: Gather | None = None,
    precision: str | None = None,
    pairs: bool | None = None,
    embedding: Any = None,
) -> Plan:
    """Bind policies and models to the log, and find out what to read from it.

    embedding  The categories of actions, as the caller gave them, for estimators that need them.
    """
    gather = gather or Gather()
    check_columns(log.source.schema, gather.by)
    inputs = inputs.needed(model=any(e.needs_model for e in chosen), propensity=any(e.weight for e in chosen))
    with_actions = inputs.given or any(policy.needs_actions(log) for policy in policies.values())
    log = with_known_actions(log, policies, [inputs], chosen)
    for name, policy in policies.items():
        warn_if_learned_here(policy, name, log)
    bound = [policy.bind_to(log, name) for name, policy in policies.items()]
    by_category = any(e.weight is not None and e.weight.marginal for e in chosen)
    if inputs.model is not None or by_category:
        _require_all_probabilities(bound, "categories" if inputs.model is None else "a reward model")
    categories = embedding_of(log, embedding) if by_category else None
    of_categories = categories.columns if isinstance(categories, Categories) else ()
    models = bind_models(log, inputs, workers)
    users: list[FixedPolicy | BoundModels] = [*bound, models]
    by_time = any(e.weight is not None and e.weight.power for e in chosen)
    reader = log.reader(
        context=any(u.uses_context for u in users),
        action=with_actions,
        columns=tuple(dict.fromkeys([*(c for u in users for c in u.columns), *gather.by, *of_categories])),
        folds=models.folds,
        cluster=gather.cluster,
        start=models.start,
        propensities=by_time or (by_category and models.logger is None and bool(log.roles.propensities)),
        loggers=True,
        logger_propensities=any(e.weight is not None and e.weight.balanced for e in chosen),
        candidates=log.has_candidates and any(u.uses_candidates for u in users),
    )
    weighted = any(e.weight for e in chosen)
    terms = Terms.of(chosen, parameters, gather.extra, plain=reader.loggers is not None and weighted)
    job = Job(bound, models, terms, len(reader.labels), log.pivot, gather.bounds, log.roles.sample_rate is not None)
    job = replace(job, candidates=log.has_candidates, with_sets=reader.with_sets)
    job = replace(job, embedding=categories, typical_reward=log.typical_reward)
    if reader.with_context and not job.candidates:
        kind = log.context_type if precision is None else np.dtype(precision)
        job = replace(job, stack=Stack.of(bound, job.predicted, models.model, kind))
    paired = len(bound) <= MOST_PAIRED if pairs is None else pairs
    about = gather, log.roles.reward, log.pivot, paired
    plan = Plan(job, chosen, reader, groups_of(chosen, terms), *about)
    plan.check_memory(workers.threads)
    if not by_time:
        return plan.fused_if_possible(log.context_types)
    overlaps = find_overlaps(log, reader, bound, plan.block_rows, workers)
    return replace(plan, job=replace(job, overlaps=overlaps))


def with_known_actions(
    log: Log, policies: dict[str, FixedPolicy], inputs: Iterable[ModelInputs], chosen: Sequence[Estimator]
) -> Log:
    """Return the log with all actions that policies know, and the models of all rewards."""
    model, weighted = any(e.needs_model for e in chosen), any(e.weight for e in chosen)
    needed = [one.needed(model=model, propensity=weighted) for one in inputs]
    if not any(one.given for one in needed) and not any(policy.needs_actions(log) for policy in policies.values()):
        return log
    return log.with_actions_of(*(user for one in needed for user in one.users), *policies.values())


def _can_fuse(plan: Plan, contexts: Set[np.dtype[Any]]) -> bool:
    """Whether a pass can go the way of `evaluation/fused.py`. `contexts` are the types of dense contexts' columns."""
    job, gather = plan.job, plan.gather
    models, stack = job.models, job.stack
    if (
        gather.buckets
        or gather.stretches
        or gather.by
        or gather.octaves
        or job.down_sampled
        or job.overlaps is not None
    ):
        return False
    if gather.bounds.reward_range is not None or gather.bounds.max_weight is not None:
        return False
    if models.logger is not None or models.second is not None or isinstance(models.folds, Blocks):
        return False
    if plan.reader.offers is not None:
        return False
    if plan.reader.loggers is not None:  # sums by logger, and balanced weights
        return False
    if any(group.with_extra or group.weight.power or group.code == GIVEN for group in job.terms.weighted):
        return False
    if models.model is not None and (stack is None or not stack.has_model):
        return False
    if any(j not in job.stacked and not policy.only_logged for j, policy in enumerate(job.policies)):
        return False
    if stack is None:
        return True
    tile = (FUSED_ROWS + PAD) * sum(stack.weights[0].matrix.shape) * stack.kind.itemsize  # bytes of its largest arrays
    # with one row of weights, BLAS may leave out a product of 0 and NaN, by which the kernel finds bad contexts
    return contexts == {stack.kind} and stack.rows > 1 and tile <= MOST


def count_loggers(reader: Reader, log: Log, workers: Workers) -> Reader:
    """Return the reader with the share of each logger in the events that it reads, if these have balanced weights.

    This is a pass of its own. It reads the column of the loggers, and those that decide which rows are events: all of
    them if bad rows are skipped.
    """
    loggers = reader.loggers
    if loggers is None or not loggers.columns:
        return reader
    columns = tuple(dict.fromkeys([*reader.choosing, loggers.column]))
    counts: Counter[Any] = Counter()
    held = log._but(source=log.source.peek())  # keeps a stream that can be read only once for later
    for found in execution.run(partial(_count, reader), held, columns, workers, "counting loggers"):
        counts.update(found)
    return replace(reader, loggers=replace(loggers, shares=loggers.counted(counts)))


def _count(reader: Reader, part: Part) -> Counter[Any]:
    assert reader.loggers is not None
    counts: Counter[Any] = Counter()
    for batch in reader.rows(part):
        counts.update(reader.loggers.counts(batch))
    return counts


def groups_of(chosen: Sequence[Estimator], terms: Terms) -> tuple[tuple[str, ...], ...]:
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
