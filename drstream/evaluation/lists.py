"""The pass over a log of rankings: what it needs to know, and the terms of a block of lists.

Rankings have no (K, n) buffers. A policy gives its probabilities of the shown items, in the order of the log's flat
arrays, and `kernels/rankings.py` makes weights and terms from them. Weights of whole lists go on like those of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from drstream import execution
from drstream.errors import parameter
from drstream.evaluation.estimators import Estimator, choose
from drstream.evaluation.explanation import Explain
from drstream.evaluation.plan import MOST_PAIRED, Gather, Plan, groups_of
from drstream.evaluation.rankings import (
    BY_POSITION,
    KNOWN,
    AvailableLists,
    ListWeight,
    at_positions,
    has_position_terms,
)
from drstream.evaluation.segments import check_columns
from drstream.evaluation.tally import Tally
from drstream.evaluation.terms import Job, Terms, WeightTerms, Workspace, events_of, weigh_group
from drstream.evaluation.totals import Events, Lengths
from drstream.execution import Workers
from drstream.kernels import rankings as kernels
from drstream.kernels import terms as of_events
from drstream.log import Block, Log, Reader
from drstream.log.columns import lengths
from drstream.log.rankings import Lists
from drstream.log.source import Part
from drstream.models.binding import BoundModels
from drstream.models.positions import Positions, as_positions
from drstream.policies.base import FixedPolicy, warn_if_learned_here
from drstream.policies.rankings import Ranker, bind_ranked, event_of
from drstream.types import Floats, Ints

NONE = np.empty(0)
NO_PROPENSITIES = f"and the log has none: name their column of lists with {parameter('propensity')}"
TERMS = ("weight", "reward", "robust")  # in the order of their codes in kernels.rankings


@dataclass(frozen=True)
class ListPlan(Plan):
    """All that a pass over a log of rankings needs to know. It can be pickled."""

    listed: bool = True  # whether propensities are by position
    kind: str | None = None  # what those are, if the user said so
    positions: int = 0  # number of positions that have terms of their own

    @cached_property
    def by_position(self) -> list[tuple[ListWeight, Ints, Ints]]:
        """The kinds of weights that each position has: with the codes of their terms, and their places by policy."""
        pairs = zip(self.job.terms.weighted, self.job.weights, strict=True)
        found = [(group, group.weight, places) for group, places in pairs]
        return [
            (weight, self._codes(group), places)
            for group, weight, places in found
            if isinstance(weight, ListWeight) and weight.by_position
        ]

    def _codes(self, group: WeightTerms) -> Ints:
        known = [*TERMS, *(f"{term} {place}" for term in BY_POSITION for place in range(self.positions))]
        return np.array([known.index(term) for term in group.terms])

    @property
    def model(self) -> Positions | None:
        model = self.job.models.model
        assert model is None or isinstance(model, Positions)
        return model


def check_options(log: Log, given: Mapping[str, Any], told: Explain | None) -> None:
    """Refuse the parameters of `evaluate` that are about events with one action."""
    for name in ("propensity", "crossfit", "clamp", "propensity_error", "embedding"):
        if given[name] is not None:
            log.refuse_rankings(f"Leave out {parameter(name)}, which is about events with one action")
    if told is not None:
        log.refuse_rankings(f"Leave out {parameter('explain')}, which is about events with one action")


def choose_for_lists(log: Log, names: Any, inputs_given: tuple[Any, ...]) -> list[Estimator]:
    """The estimators of rankings that were named; by default, those whose inputs the log has.

    inputs_given  The fields of `Available`.
    """
    roles = log.roles
    by_position = set(roles.rewards) <= set(roles.lists)
    listed = roles.propensity in roles.lists
    available = AvailableLists(  # type: ignore[misc]
        *inputs_given, by_position=by_position, listed=listed, positions=roles.positions
    )
    return choose(names, available, NO_PROPENSITIES, KNOWN)


def for_lists(chosen: Sequence[Estimator], log: Log, workers: Workers) -> list[Estimator]:
    """Return the estimators with terms for each position, where they need such. This may read the log."""
    return at_positions(chosen, longest(log, workers)) if has_position_terms(chosen) else list(chosen)


def longest(log: Log, workers: Workers) -> int:
    """Return the length of the longest list. Unless it is fixed, this is a pass over a column of lists."""
    roles = log.roles
    name = roles.propensity if roles.propensity in roles.lists else roles.lists[0]
    kind = log.source.schema.field(name).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    reader = log.reader()
    columns = tuple(dict.fromkeys([*reader.choosing, name]))
    held = log._but(source=log.source.peek())  # keeps a stream that can be read only once for later
    return max(execution.run(partial(_longest, reader, name), held, columns, workers, "finding lengths"), default=0)


def _longest(reader: Reader, name: str, part: Part) -> int:
    return max((int(lengths(batch.column(name)).max()) for batch in reader.rows(part)), default=0)


def make_list_plan(
    log: Log,
    policies: Mapping[str, FixedPolicy],
    model: Any,
    chosen: list[Estimator],
    parameters: dict[str, float | None],
    workers: Workers,
    gather: Gather,
    pairs: bool | None = None,
) -> ListPlan:
    """Bind policies and predictions to a log of rankings, and find out what to read from it."""
    check_columns(log.source.schema, gather.by)
    for name, policy in policies.items():
        warn_if_learned_here(policy, name, log)
    bound = [bind_ranked(policy, name, log) for name, policy in policies.items()]
    given = as_positions(model)
    needed = given is not None and any(e.needs_model for e in chosen)
    models = BoundModels(given.bind_lists(log, list(policies)) if given and needed else None, None, None, None)
    columns = [*(name for policy in bound for name in policy.columns), *models.columns, *gather.by]
    reader = log.reader(
        context=any(policy.uses_context for policy in bound),
        action=log.has_candidates,
        candidates=log.has_candidates and any(policy.uses_candidates for policy in bound),
        columns=tuple(dict.fromkeys(columns)),
        cluster=gather.cluster,
        loggers=True,
    )
    terms = Terms.of(chosen, parameters, gather.extra, plain=reader.loggers is not None)
    terms = replace(terms, weighted=tuple(map(_without_centred, terms.weighted)))
    down_sampled = log.roles.sample_rate is not None
    job = Job([*bound], models, terms, 0, log.pivot, gather.bounds, down_sampled, candidates=log.has_candidates)
    plan = ListPlan(
        job,
        chosen,
        reader,
        groups_of(chosen, terms),
        gather,
        log.roles.reward,
        paired=len(bound) <= MOST_PAIRED if pairs is None else pairs,
        listed=log.roles.propensity in log.roles.lists,
        kind=log.roles.positions,
        positions=max((getattr(e, "positions", 0) for e in chosen), default=0),
    )
    plan.check_memory(workers.threads)
    return plan


def _without_centred(group: WeightTerms) -> WeightTerms:
    """A weight of each position is multiplied with the reward there: there is no one reward to centre."""
    if not isinstance(group.weight, ListWeight) or not group.weight.by_position:
        return group
    return replace(group, terms=tuple(term for term in group.terms if term != "centred"))


def list_terms(plan: ListPlan, block: Block, space: Workspace, tally: Tally) -> Events:
    """The terms (variables, n) of a block's rankings: the reward, then those of each policy."""
    job, lists = plan.job, block.lists
    space.fit(len(block))
    space.terms[0] = block.reward
    tally.lengths = Lengths.of(lists.starts).merged(tally.lengths)
    pseudo = np.empty_like(space.logged)
    shown = NONE
    if plan.model is not None:
        shown = plan.model.of_shown(block, lists.starts)
        tally.calibration.add(shown, lists.reward)
    for j, policy in enumerate(job.policies):
        assert isinstance(policy, Ranker)
        if not plan.listed:
            space.logged[j] = policy.of_lists(block, lists)
            continue
        weights = _weigh_items(policy, block, lists, space.logged[j], pseudo[j])
        expected = NONE if plan.model is None else plan.model.of_policy(j, block, lists.starts)
        for weight, codes, places in plan.by_position:
            out = space.all_terms[places[j] : places[j] + len(codes)]
            v = weights[str(weight.kernel)]
            kernels.fill_terms(codes, plan.positions, lists.starts, v, lists.reward, shown, expected, out)
    for k, group in enumerate(job.terms.weighted):
        if not isinstance(group.weight, ListWeight):
            weigh_group(job, k, block, space, lists.joint, tally)
        elif not group.weight.by_position:
            _fill_whole(job, k, pseudo, block, space)
    return events_of(job, block, space, block.propensity)


def _weigh_items(policy: Ranker, block: Block, lists: Lists, whole: Floats, pseudo: Floats) -> dict[str, Floats]:
    """Return the weights of items, by kind, and fill in the policy's probability and the pseudo-inverse of lists."""
    pi = policy.of_items(block, lists)
    ratio, product = np.empty((2, len(pi)))
    first_bad = kernels.weigh(lists.starts, pi, lists.propensity, ratio, product, whole, pseudo)
    if first_bad >= 0:
        raise policy.invalid(pi[first_bad], block.where(event_of(lists.starts, first_bad)))
    whole *= lists.joint  # the weight of the list, until here
    return {"positions": ratio, "cascade": product}


def _fill_whole(job: Job, k: int, weights: Floats, block: Block, space: Workspace) -> None:
    """Fill in the terms of one kind of weight, given these weights of whole lists."""
    group = job.terms.weighted[k]
    about = NONE, group.codes, job.weights[k], job.predicted, weights, space.ones, block.reward, space.logged_rhat
    of_events.weigh(of_events.WEIGHTS.index("importance"), *about, job.pivot, space.all_terms)
