"""The one pass for fixed policies: log -> blocks -> probabilities and predicted rewards -> terms -> state -> result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from drstream import execution
from drstream.errors import DrstreamError, LogError
from drstream.evaluation import estimators as registry
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.plan import Plan, make_plan
from drstream.evaluation.result import Evaluation, Group, Sums
from drstream.evaluation.terms import Tally, Workspace, block_terms
from drstream.execution import Workers
from drstream.intervals import z_score
from drstream.log import as_log
from drstream.log.source import Part
from drstream.models.binding import ModelInputs, no_propensities
from drstream.parameters import number
from drstream.policies.base import as_policies


def evaluate(
    log: Any,
    policies: Any,
    model: Any = None,
    estimators: Sequence[str | Estimator] | str | None = None,
    *,
    propensity: Any = None,
    crossfit: int | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    cap: float | None = None,
    floor: float | None = None,
    lambda_: float | None = None,
    confidence: float = 0.95,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Any = None,
    progress: Any = False,
) -> Evaluation:
    """Estimate how good policies would have been. One pass over the log serves all policies and estimators.

    policies    A mapping of names to policies, or one policy. A policy is an object of `drs.policies`, any object with
                probabilities(X) -> (n, K), or a function of that shape.
    model       A reward model. Either it was fitted on other events, or it is unfitted and crossfit= is given.
                Estimators that use a reward model raise an error without one.
    estimators  Names from `drs.estimators.ALL`, or estimators of your own. By default, all that the other parameters
                allow, except those that are marked as not default.
    propensity  A model of the propensities, or the logging policy itself. It replaces the propensities of the log.
    crossfit    Number of folds. Events of each fold are scored by models fitted on the other folds.
    cluster     A column, e.g. the user. All rows with the same value are in one fold. Intervals still treat events as
                independent.
    fold_seed   Random seed of the folds.
    clamp       (low, high): predictions are held within this range. True takes the range of the rewards that the model
                was fitted on.
    cap, floor  Limits of the capped estimators: w = min(cap, ν / max(floor, p)).
    lambda_     Limit of the estimators that shrink or drop large weights.
    confidence  Confidence level of the intervals.
    on_bad_row  "error" or "skip". It replaces the setting of the log.
    threads     Number of threads; all usable cores by default. The result does not depend on it.
    executor    A concurrent.futures.Executor that does the work instead of threads.
    progress    True shows a bar on a terminal. A function is called with (rows done, rows in all).

    >>> import drstream as drs, pyarrow as pa
    >>> table = pa.table({"action": [0, 1, 1, 0], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4})
    >>> result = drs.evaluate(drs.Log(table), {"always 1": drs.policies.Constant(1)}, estimators=["ips", "snips"])
    >>> result["always 1", "ips"].value
    0.5
    """
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    z_score(confidence)
    parameters = {
        "cap": _limit("cap", cap),
        "floor": _limit("floor", floor, high=1),
        "lambda_": _limit("lambda_", lambda_),
    }
    with_propensities = propensity is not None or log.roles.propensity is not None
    available = registry.Available(model is not None, with_propensities, parameters)
    chosen = registry.choose(estimators, available, no_propensities())
    inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
    workers = Workers.of(threads, executor, progress)
    plan = make_plan(log, as_policies(policies), inputs, chosen, parameters, workers)
    total = plan.create()
    for tally in execution.run(partial(consume, plan), log, plan.reader.columns, workers):
        plan.merge(total, tally)
    if not plan.layout.count(total.moments):
        left = f", after {total.skipped.total()} bad rows were skipped" if total.skipped else ""
        raise LogError(f"the log is empty{left}: there is no event to evaluate on")
    return finish(plan, total, confidence)


def _limit(name: str, value: Any, high: float = math.inf) -> float | None:
    return None if value is None else number(name, value, 0, high, above=True, error=DrstreamError)


def consume(plan: Plan, part: Part) -> Tally:
    """The state of one part."""
    tally = plan.create()
    space = Workspace(plan.job, plan.block_rows)
    for batch in plan.reader.batches(part, tally.skipped):
        for block in batch.blocks(plan.block_rows):
            execution.raise_if_stopped()
            plan.layout.update(tally.moments, block_terms(plan.job, block, space, tally))
    return tally


def finish(plan: Plan, total: Tally, confidence: float) -> Evaluation:
    """Read the result off the state."""
    job, layout, state = plan.job, plan.layout, total.moments
    means = layout.means(state)
    groups = {}
    for terms in plan.groups:
        members = plan.group(terms)
        groups[terms] = Group(means[list(members)], layout.comoment(state, members))
    weights = [f"{group.weight.name}.weight" for group in job.terms.weighted]
    sums = Sums(layout.count(state), groups, weights, total.largest, total.reduced, job.typical_reward)
    return Evaluation(
        policies=[policy.name for policy in job.policies],
        labels=list(plan.reader.labels),
        estimators=plan.estimators,
        sums=sums,
        models=job.models.summary(total.calibration),
        skipped=dict(total.skipped),
        confidence=confidence,
    )
