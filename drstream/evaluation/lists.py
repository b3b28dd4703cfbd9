"""The plan of a pass over a log of rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from drstream import execution
from drstream.errors import parameter
from drstream.evaluation.estimators import Estimator, choose
from drstream.evaluation.explanation import Explain
from drstream.evaluation.plan import MOST_PAIRED, Gather, OfLists, Plan, groups_of
from drstream.evaluation.rankings import (
    BY_POSITION,
    KNOWN,
    AvailableLists,
    ListWeight,
    at_positions,
    has_position_terms,
)
from drstream.evaluation.segments import check_columns
from drstream.evaluation.terms import Job, Terms, WeightTerms
from drstream.execution import Workers
from drstream.log import Log, Reader
from drstream.log.columns import lengths
from drstream.log.source import Part
from drstream.models.binding import BoundModels
from drstream.models.positions import as_positions
from drstream.policies.base import FixedPolicy, warn_if_learned_here
from drstream.policies.rankings import bind_ranked

NONE = np.empty(0)
NO_PROPENSITIES = f"and the log has none: name their column of lists with {parameter('propensity')}"
TERMS = ("weight", "reward", "robust")  # in the order of their codes in kernels.rankings


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
    held = log.copy(source=log.source.peek())  # keeps a stream that can be read only once for later
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
) -> Plan:
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
    job = Job([*bound], models, terms, 0, log.pivot, gather.bounds, down_sampled)
    job = replace(job, candidates=log.has_candidates, ranking=True)
    positions = max((getattr(e, "positions", 0) for e in chosen), default=0)
    known = (*TERMS, *(f"{term} {place}" for term in BY_POSITION for place in range(positions)))
    plan = Plan(
        job,
        chosen,
        reader,
        groups_of(chosen, terms),
        gather,
        log.roles.reward,
        paired=len(bound) <= MOST_PAIRED if pairs is None else pairs,
        lists=OfLists(log.roles.propensity in log.roles.lists, log.roles.positions, positions, known),
    )
    plan.check_memory(workers.threads)
    return plan


def _without_centred(group: WeightTerms) -> WeightTerms:
    """A weight of each position is multiplied with the reward there: there is no one reward to centre."""
    if not isinstance(group.weight, ListWeight) or not group.weight.by_position:
        return group
    return replace(group, terms=tuple(term for term in group.terms if term != "centred"))
