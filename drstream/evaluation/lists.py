"""The plan of a pass over a log of rankings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drstream.evaluation.job import Job
from drstream.evaluation.plan import OfLists, Plan, bounds_of, groups_of
from drstream.evaluation.rankings import (
    BY_POSITION,
    ListWeight,
)
from drstream.evaluation.request import Request
from drstream.evaluation.segments import check_columns
from drstream.evaluation.terms import PolicyTerms, WeightTerms
from drstream.log import Log
from drstream.models.binding import BoundModels
from drstream.models.positions import as_positions
from drstream.policies.base import doubt_if_learned_here
from drstream.policies.rankings import bind_ranked
from drstream.running.execution import Workers

NONE = np.empty(0)
TERMS = ("weight", "reward", "robust")  # in the order of their codes in kernels.rankings


def make_list_plan(request: Request, log: Log, workers: Workers) -> Plan:
    """Bind policies and predictions to a log of rankings, and find out what to read from it."""
    chosen, policies, model = request.estimators, request.policies, request.inputs[log.roles.reward].model
    check_columns(log.source.schema, request.by)
    for name, policy in policies.items():
        doubt_if_learned_here(policy, name, log)
    bound = [bind_ranked(policy, name, log) for name, policy in policies.items()]
    given = as_positions(model)
    needed = given is not None and any(e.needs_model for e in chosen)
    models = BoundModels(given.bind_lists(log, list(policies)) if given and needed else None, None, None, None)
    columns = [*(name for policy in bound for name in policy.columns), *models.columns, *request.by]
    reader = log.reader(
        columns=tuple(dict.fromkeys(columns)),
        cluster=request.settings.cluster,
        loggers=True,
    )
    terms = PolicyTerms.of(chosen, request.limits, request.extra, plain=reader.loggers is not None)
    terms = replace(terms, weighted=tuple(map(_without_centred, terms.weighted)))
    down_sampled = log.roles.sample_rate is not None
    job = Job([*bound], models, terms, 0, log.pivot, bounds_of(request), down_sampled)
    job = replace(job, ranking=True)
    positions = max((getattr(e, "positions", 0) for e in chosen), default=0)
    known = (*TERMS, *(f"{term} {place}" for term in BY_POSITION for place in range(positions)))
    plan = Plan(
        job,
        request.bare,
        reader,
        groups_of(chosen, terms),
        log.roles.reward,
        lists=OfLists(log.roles.propensity in log.roles.lists, log.roles.positions, positions, known),
    )
    plan.check_memory(workers.threads)
    return plan


def _without_centred(group: WeightTerms) -> WeightTerms:
    """A weight of each position is multiplied with the reward there: there is no one reward to centre."""
    if not isinstance(group.weight, ListWeight) or not group.weight.by_position:
        return group
    return replace(group, terms=tuple(term for term in group.terms if term != "centred"))
