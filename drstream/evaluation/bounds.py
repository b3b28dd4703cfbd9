"""What the caller said about rewards and weights, held against the observations of each batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from drstream.errors import DrstreamError, parameter
from drstream.evaluation.estimators import IMPORTANCE, MARGINAL
from drstream.evaluation.plan import Plan
from drstream.log import Events
from drstream.types import Bools, Floats

ROUNDING = 1e-5  # of a probability in float32


def refuse_outside(plan: Plan, values: Floats, batch: Events) -> None:
    """Raise an error at the first reward, prediction or weight outside of the bounds that the caller gave."""
    for wrong, numbers, what, todo in (*_outside_range(plan, values), *_beyond_weights(plan, values)):
        if wrong.any():
            places = np.flatnonzero(wrong)
            i = int(places[np.argmin(batch.numbers[places])])  # a batch may be in the order of folds
            raise DrstreamError(f"{what} is {numbers[i]:.6g} at {batch.where(i)}, {todo}")


def _outside_range(plan: Plan, values: Floats) -> Iterator[tuple[Bools, Floats, str, str]]:
    job, limits = plan.job, plan.job.bounds.reward_range
    if limits is None:
        return
    predicted = job.bounds.predictions and job.models.model is not None and not job.ranking
    for name in ("reward", *(("rhat", *(f"{j}.b" for j in range(len(job.policies)))) if predicted else ())):
        numbers, outside = values[plan.program.rows[name]], f"outside of {parameter('reward_range', limits)}"
        wrong = (numbers < limits[0]) | (numbers > limits[1])
        if name == "reward":
            yield wrong, numbers, "a reward", f"{outside}: give the range that rewards can have, or repair such rows"
        else:
            todo = f"{outside}: hold predictions within it, {parameter('clamp', limits)}"
            yield wrong, numbers, "a prediction", todo


def _beyond_weights(plan: Plan, values: Floats) -> Iterator[tuple[Bools, Floats, str, str]]:
    job, rows, most = plan.job, plan.program.rows, plan.job.bounds.max_weight
    if most is None:
        return
    slack = 1 + (ROUNDING if job.precision == "float32" else 0.0)
    todo = (
        f"outside of {parameter('max_weight_bound', most)}: give a bound that holds, or cap the weights: "
        f"{parameter('cap')} and the capped estimators"
    )
    for j, policy in enumerate(job.policies):
        for group in job.terms.weighted:
            if group.weight in (IMPORTANCE, MARGINAL):
                marginal = group.weight is MARGINAL
                p = "p.category" if marginal else "joint" if job.ranking else "p"
                w = values[rows[f"{j}.pi.category" if marginal else f"{j}.pi"]] / values[rows[p]]
                yield w > most * slack, w, f"a weight of policy {policy.name!r}", todo
