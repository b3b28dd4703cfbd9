"""The one pass for fixed policies: log -> blocks -> probabilities and predicted rewards -> terms -> state -> result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from drstream import execution
from drstream.errors import DrstreamError, LogError
from drstream.evaluation import estimators as estimator_list
from drstream.evaluation.plan import Plan, make_plan
from drstream.evaluation.result import Evaluation
from drstream.evaluation.terms import Room, Tally, block_terms
from drstream.intervals import z_score
from drstream.log import as_log
from drstream.log.source import Part
from drstream.models.binding import Given
from drstream.policies.base import as_policies


def evaluate(
    log: Any,
    policies: Any,
    model: Any = None,
    estimators: Sequence[str] | str | None = None,
    *,
    propensity: Any = None,
    crossfit: int | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    cap: float | None = None,
    floor: float | None = None,
    confidence: float = 0.95,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Any = None,
    progress: Any = False,
) -> Evaluation:
    """How good would these policies have been? One pass over the log for all policies and estimators.

    policies    a mapping of names to policies, or one policy: objects of `drs.policies`, objects with
                probabilities(X) -> (n, K), or functions of that shape.
    model       a reward model, fitted on other events, or not yet fitted, with crossfit; DM, DR and SNDR need one.
    estimators  of "dm", "ips", "snips", "dr", "sndr", "ips-capped", "dr-capped".
    propensity  a model of the propensities, or the logging policy itself, instead of what the log says.
    crossfit    so many folds of the log: for the events of each, models are fitted on the others.
    cluster     a column, e.g. the user: all rows of one of its values are in one fold. Intervals take events as
                independent nevertheless.
    fold_seed   of the folds.
    clamp       hold predictions within (low, high), or, if True, within the rewards that the model was fitted on.
    cap, floor  of the capped estimators: w = min(cap, ν / max(floor, p)).
    confidence  of the intervals.
    on_bad_row  "error" or "skip", instead of what the log says.
    threads     how many; all usable cores by default. The result does not depend on it.
    executor    a concurrent.futures.Executor to work on instead of threads.
    progress    True for a bar on a terminal, or a function of (rows done, rows in all).

    >>> import drstream as drs, pyarrow as pa
    >>> table = pa.table({"action": [0, 1, 1, 0], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4})
    >>> result = drs.evaluate(drs.Log(table), {"always 1": drs.policies.Constant(1)}, estimators=["ips", "snips"])
    >>> result["always 1", "ips"].value
    0.5
    """
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    z_score(confidence)
    cap, floor = _limit("cap", cap, np.inf), _limit("floor", floor, 1)
    chosen = estimator_list.choose(
        estimators,
        with_model=model is not None,
        with_cap=cap is not None or floor is not None,
        with_propensity=propensity is not None or log.roles.propensity is not None,
    )
    given = Given(model, propensity, crossfit, cluster, fold_seed, clamp)
    how = {"threads": threads, "executor": executor, "progress": progress}
    plan = make_plan(log, as_policies(policies), given, chosen, cap, floor, how)
    total = plan.create()
    for tally in execution.run(partial(consume, plan), log, plan.reader.columns, threads, executor, progress):
        plan.merge(total, tally)
    if not plan.layout.count(total.moments):
        left = f", after {total.skipped.total()} bad rows were skipped" if total.skipped else ""
        raise LogError(f"the log is empty{left}: there is no event to evaluate on")
    return finish(plan, total, confidence)


def _limit(name: str, value: Any, most: float) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real) or not 0 < float(value) <= most:
        raise DrstreamError(f"{name}={value!r}: it must be a positive number{' of at most 1' if most == 1 else ''}")
    return float(value)


def consume(plan: Plan, part: Part) -> Tally:
    """The state of one part."""
    tally = plan.create()
    room = Room(plan)
    for batch in plan.reader.batches(part, tally.skipped):
        for block in batch.blocks(plan.block_rows):
            execution.go_on()
            plan.layout.update(tally.moments, block_terms(plan, block, room, tally))
    return tally


def finish(plan: Plan, total: Tally, confidence: float) -> Evaluation:
    """Read the result off the state."""
    layout, state = plan.layout, total.moments
    means = layout.means(state)
    groups = {}
    for terms in plan.groups:
        members = plan.group(terms)
        groups[terms] = (means[list(members)], layout.comoment(state, members))
    return Evaluation(
        policies=[policy.name for policy in plan.policies],
        labels=list(plan.reader.labels),
        estimators=plan.estimators,
        groups=groups,
        typical_reward=plan.typical_reward,
        n=layout.count(state),
        largest=total.largest,
        capped=total.capped,
        used=plan.used,
        calibration=total.calibration,
        skipped=dict(total.skipped),
        confidence=confidence,
    )
