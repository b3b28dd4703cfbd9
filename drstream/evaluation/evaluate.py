"""The one pass for fixed policies: log -> batches -> observations -> terms -> sums -> result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from drstream.errors import LogError
from drstream.evaluation.calibrated import finding_about
from drstream.evaluation.conclude import conclude
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.groupings import groups_of
from drstream.evaluation.lists import make_list_plan
from drstream.evaluation.observe import observer_of
from drstream.evaluation.plan import Plan, count_loggers, make_plan
from drstream.evaluation.request import Request
from drstream.evaluation.result import Evaluation
from drstream.evaluation.segments import check_number
from drstream.evaluation.states.by_file import ByFile, sum_up
from drstream.evaluation.states.identity import keeping, state_of
from drstream.evaluation.states.state import State
from drstream.evaluation.sums import Sums
from drstream.findings import CATEGORIES, LOOK, Finding, distinct, gathered
from drstream.intervals.statistic import Constants
from drstream.log import Log, Reader, as_log
from drstream.log.doubts import COPIES
from drstream.log.loggers import check_number as check_loggers
from drstream.provenance import provenance
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.states.checkpoint import EVERY, open_checkpoint
from drstream.states.identity import about_fits


def evaluate(
    log: Any,
    policies: Any,
    model: Any = None,
    estimators: Sequence[str | Estimator] | str | None = None,
    *,
    propensity: Any = None,
    crossfit: int | str | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    cap: float | str | None = None,
    floor: float | str | None = None,
    inflation: float | None = None,
    lambda_: float | str | None = None,
    embedding: Any = None,
    interval: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    reward_range: Sequence[float] | None = None,
    max_weight_bound: float | None = None,
    propensity_error: float | None = None,
    constants: Constants | None = None,
    by: str | Sequence[str] | None = None,
    precision: str | None = None,
    explain: bool | Explain = False,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Any = None,
    progress: Any = False,
    state: Any = None,
    checkpoint: Any = None,
    checkpoint_every: float = EVERY,
) -> Evaluation:
    """Estimate how good policies would have been. One pass over the log serves all policies and estimators.

    log         A `drs.Log`, or anything that opens as one: a path, a table, a frame.
    policies    A mapping of names to policies, or one policy. A policy is an object of `drs.policies`, any object with
                probabilities(X) -> (n, K), or a function of that shape.
    model       A reward model. Either it was fitted on other events, or it is unfitted and crossfit= is given.
                Estimators that use a reward model raise an error without one.
    estimators  Names from `drs.estimators.ALL`, or estimators of your own. By default, all that the other parameters
                allow, except those that are marked as not default.
    propensity  A model of the propensities, or the logging policy itself. It replaces the propensities of the log.
    crossfit    Number of folds. Events of each fold are scored by models fitted on the other folds. "forward" fits
                models on earlier rows only, for a log whose logging policy learned as it went: the log is cut into
                blocks of rows, and each block is scored by models of all blocks before it. The first block has 1,000
                rows, or as many as "forward:500" says. There r̂ is 0, or, if propensities are estimated, the block is
                left out and counted.
    cluster     A column, e.g. the user. All rows with the same value are in one fold, and intervals allow for them to
                depend on each other. With "forward", it is about intervals alone.
    fold_seed   Random seed of the folds.
    clamp       (low, high): predictions are held within this range. True takes the range of the rewards that the model
                was fitted on.
    cap, floor, inflation
                Limits of the capped estimators: w = min(cap, ν / max(floor, inflation * p)). "auto", for the cap or for
                the floor, tries a grid of limits in one pass and chooses by SLOPE; `result.grid` has all of them.
    lambda_     Limit of the estimators that shrink or drop large weights. "auto" chooses in the same way, also the cap
                of the capped estimators.
    embedding   Categories of the actions: a mapping of labels to categories, or the column with the category of the
                logged action. In a log of candidates: a column with lists of categories, or a column of the table of
                items. Estimators that weigh by category (mips, snmips, offcem)
                need it, and the propensities of all actions. They assume that actions of one category have the same
                rewards.
    interval    The method of the intervals, or several: "tails", "normal", "bootstrap", "cluster", "bernstein",
                "freedman", "anytime", "likelihood", "gamma", "ls", "ix". The first one is shown. By default, "cluster"
                if cluster= is given, else "tails". DM has an interval only on request.
    confidence  Confidence level of the intervals.
    reward_range
                (low, high): the smallest and the largest reward that can occur. Intervals stay within it, and some
                methods need it.
    max_weight_bound
                The largest weight ν / p that can occur. Some methods need it.
    propensity_error
                How wrong propensities may be: true ones are within this share of those that are used, e.g. 0.1.
                Intervals are then wider by what this can do to an estimate (Theorem 3.4).
    constants   `drs.Constants(...)`: what you know about the model and the policies, for interval="freedman".
    by          Columns, e.g. ["country", "device"]. The same pass evaluates each segment: `result.segments`.
    precision   "float64" computes scores, probabilities and predictions of linear policies and models in float64. By
                default they have the type of the contexts. Weights and sums are always float64.
    explain     True gathers what `result.explain` needs for DR, and counts weights by size. `drs.Explain(...)`
                also says what you know about the log, and takes a second reward model.
    on_bad_row  "error" or "skip". It replaces the setting of the log.
    threads     Number of threads; all usable cores by default. The result does not depend on it.
    executor    A concurrent.futures.Executor that does the work instead of threads, e.g. `drs.Processes(8)`.
    progress    True shows a bar on a terminal or in a notebook, else a line every 10 seconds. A function is called with
                (rows done, rows in all).
    state       Path of a file for the state of the pass: `drs.merge` makes results of such files without the logs.
    checkpoint  Path of a file that is written while the pass runs, and deleted at its end. If the run is killed, the
                same call goes on from there, to the same bits.
    checkpoint_every
                Seconds between two writes of the checkpoint.

    >>> import drstream as drs, pyarrow as pa
    >>> table = pa.table({"action": [0, 1, 1, 0], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4})
    >>> result = drs.evaluate(drs.Log(table), {"always 1": drs.policies.Constant(1)}, estimators=["ips", "snips"])
    >>> result["always 1", "ips"].value
    0.5
    """
    given = dict(locals())
    log = as_log(log, propensities=propensity is None, rankings=True)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    request, workers = Request.of(log, given), Workers.of(threads, executor, progress)
    keep = keeping(state, log, request)
    request = request.for_length(log, workers)
    if users := request.users(log):
        log = log.with_actions_of(*users)
    make = make_list_plan if log.roles.ranking else make_plan
    kind, about_run = "checkpoint of an evaluation", partial(about_fits, log, request.inputs.values())
    with gathered() as doubts, open_checkpoint(checkpoint, checkpoint_every, log, kind, about_run) as kept:
        plans = [
            make(request, of_reward.about_zero() if keep else of_reward, replace(workers, checkpoint=kept))
            for of_reward in map(log.for_reward, log.roles.rewards)
        ]
        request.settings.check_propensities(estimated=plans[0].job.models.estimated)
        headers = [plan.header for plan in plans]
        clustered = request.settings.cluster is not None  # rows of one draw are kept together
        findings = [one for one in log.doubts if one.check != COPIES or not clustered]
        findings += _about_ids(log, request, plans)
        findings += [one for one in distinct(doubts) if one.check != CATEGORIES]  # headers have their counts
        findings += finding_about(plans[0], log)
        reader = count_loggers(_reader(plans, log), log, workers)
        sums, about = ByFile(lambda: [plan.create() for plan in plans], keep), {}
        if keep or kept is not None:
            last = state_of(request, log, plans, headers, reader)
            about = {**(last.identity or {}), "state": keep}
        sums = sum_up(partial(consume, plans, reader), log, reader.columns, workers, sums, kept, about)
        totals = sums.close()
        if keep:
            last.take(sums, findings)
        if isinstance(state, State):
            vars(state).update(vars(last))
        if not totals[0].count:
            left = f", after {totals[0].skipped.total()} rows were skipped" if totals[0].skipped else ""
            raise LogError(f"the log is empty{left}: there is no event to evaluate on")
        made_from = provenance(evaluate, given, log, totals[0].count)
        found = {
            one.reward: conclude(one, total, made_from, findings) for one, total in zip(headers, totals, strict=True)
        }
        if keep and not isinstance(state, State):
            last.save(state)
        if kept is not None:
            kept.remove()
    first = found[log.roles.reward]
    first.rewards = found
    return first


def _about_ids(log: Log, request: Request, plans: Sequence[Plan]) -> list[Finding]:
    """Say so if the rows of a user, or of another id, are taken for independent."""
    if request.settings.cluster is not None:
        return []
    job = plans[0].job
    used = {*request.by, *job.models.columns, *(name for policy in job.policies for name in policy.columns)}
    found = [ids for ids in log.ids() if ids.column not in used]
    return [Finding(LOOK, "ids", None, ids.rows / ids.different, ids.message) for ids in found[:1]]


def _reader(plans: Sequence[Plan], log: Log) -> Reader:
    """Return a reader for all plans. They differ in their rewards, and in what their models read."""
    readers = [plan.reader for plan in plans]
    assert all(list(reader.labels) == list(readers[0].labels) for reader in readers)  # else actions mean other labels
    return Reader.for_all(readers, log.roles)


def consume(plans: Sequence[Plan], reader: Reader, part: Part) -> list[Sums]:
    """Read one part and return its sums, for each reward."""
    found = [plan.create() for plan in plans]
    observers = [observer_of(plan) for plan in plans]
    form, loggers, skipped = plans[0].form, reader.loggers, found[0].skipped
    logger = None if loggers is None else loggers.column
    scratch: dict[Any, Any] = {}  # of all batches: fresh memory for each would cost 1 ns an event
    for batch in reader.batches(part, skipped):
        execution.raise_if_stopped()
        for observer in observers:  # one that asks in Python is faster in the order of folds, which suits the others
            batch = observer.in_order(batch)
        batch.scratch = scratch
        groups = groups_of(form, batch, logger)
        if "segment" in groups:
            keys = found[0].tables["segment"].places.keys() | groups["segment"].keys  # before any takes memory
            check_number(len(keys), form.by, form.bytes_a_segment, groups=form.stretches)
        if logger is not None and "logger" in groups:
            check_loggers(len(found[0].tables["logger"].places.keys() | groups["logger"].keys), logger)
        for plan, sums, observer in zip(plans, found, observers, strict=True):
            observer.add(batch.for_reward(plan.reward), groups, sums)
    for sums in found[1:]:
        sums.skipped.update(skipped)
    return found
