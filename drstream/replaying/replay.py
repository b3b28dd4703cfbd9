"""The one pass for policies that learn: log -> chunks -> lanes (a policy, a q and a seed each) -> replicates -> result.

Algorithm 1 of the paper (DR-ns, section 5.3) and its kin. Chunks are read and made ready ahead, on threads; a lane
takes them in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

from drstream import execution
from drstream.errors import DrstreamError
from drstream.intervals import z_score
from drstream.log import Log, as_log
from drstream.models.binding import Given
from drstream.progress import reporter
from drstream.replaying.comparison import Replays
from drstream.replaying.options import _Asked, _listed, asked_once
from drstream.replaying.plan import _make_plan
from drstream.replaying.result import Replay
from drstream.replaying.shards import _run
from drstream.replaying.snapshots import Recorded


def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    method: str = "dr-ns",
    q: float | Sequence[float] = 0.01,
    c_max: float = 1.0,
    seed: int | Sequence[int] = 0,
    carry: bool = False,
    replicates: int | None = None,
    shards: int = 1,
    tracker: str = "auto",
    propensity: Any = None,
    crossfit: int | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    confidence: float = 0.95,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Any = False,
    debug: bool = False,
) -> Any:
    """How much reward would a policy have had in its first `horizon` steps, learning as it went?

    policies    a policy, or a mapping of names to policies: compiled ones of `drs.policies`, Python objects with
                reset(), probabilities(X), update(x, action, reward) and perhaps version, or fixed policies.
    horizon     T: events that the policy is to see; simulated again and again, until the log ends.
    model       a reward model, fitted on other events, or not yet fitted, with crossfit; without one, r̂ is 0.
    method      "dr-ns" (Algorithm 1), "dr-ns-wc" (its multiplier c is the smallest propensity of the log), "rs" (the
                same c, accepted rewards only) or "dm" (as dr-ns, with r̂ alone).
    q           the quantile level of c, 0 <= q <= 1: the larger, the more events are accepted, and the more bias.
    c_max       the largest c, and the first.
    seed        of the random numbers u_k = drs.uniforms(seed, k, 1).
    carry       keep the set Q from one replicate to the next.
    replicates  stop after so many.
    shards      so many contiguous runs of row groups are replayed independently, and may run in parallel.
    tracker     of the quantile: "exact", "sketch" (constant memory), or "auto": exact until it holds 8 million values.
    debug       check that a Python policy's version moves whenever its probabilities do, and that a compiled one keeps
                within its arrays.

    Several q or seeds, or a mapping of policies, run side by side over the same events and random numbers; the result
    is then a `Replays`, else a `Replay`. Ctrl-C returns what was complete by then. The other parameters (propensity,
    crossfit, cluster, fold_seed, clamp, ...) are those of `evaluate`.

    >>> import drstream as drs
    >>> table = drs.synth.World(n_actions=3, n_features=2).table(5000)
    >>> run = drs.replay(drs.Log(table), drs.policies.EpsilonGreedy(epsilon=0.1), horizon=100, q=0.05)
    >>> run.horizon, len(run.replicates) > 1, run.low < run.value < run.high
    (100, True, True)
    """
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    several = isinstance(policies, Mapping) or not isinstance(q, Real) or not isinstance(seed, Integral)
    named = policies if isinstance(policies, Mapping) else {"policy": policies}
    z_score(confidence)
    levels, seeds = tuple(_listed("q", q)), tuple(_listed("seed", seed))
    asked = _Asked(method, horizon, levels, c_max, seeds, carry, replicates, shards, tracker)
    asked.check()
    workers = execution.how_many(threads)
    if executor is not None and not hasattr(executor, "submit"):
        raise DrstreamError(f"executor={executor!r}: a concurrent.futures.Executor, or another object with submit()")
    given = Given(model, propensity, crossfit, cluster, fold_seed, clamp)
    given = given.needed(model=method != "rs", propensity=True)
    how = {"threads": workers, "executor": executor, "progress": progress}
    plan = _make_plan(log, named, given, asked, how, debug)
    with reporter(progress, log.rows) as report, execution.one_blas_thread():
        outcomes, sums = _run(plan, log, workers, executor, report)
    runs = [
        Replay(settings, outcome, plan.reader.labels, sums, confidence, shards, plan.used)
        for settings, outcome in zip(plan.settings, outcomes, strict=True)
    ]
    result = Replays(runs) if several else runs[0]
    if not any(run.complete for run in runs):
        if any(run.interrupted for run in runs):
            stop = KeyboardInterrupt()
            stop.add_note(f"before any replicate of {horizon} steps was complete: {runs[0].how_far}")
            raise stop
        raise runs[0].failure
    return result


def record(
    log: Log,
    policy: Any,
    horizon: int | None,
    given: Given,
    *,
    q: float,
    c_max: float,
    seed: int,
    snapshots: int,
    threads: int | None,
    executor: Executor | None,
    progress: Any,
) -> tuple[Replay, Recorded]:
    """One replicate of DR-ns, with the states in which its blocks found the policy.

    Without a horizon it goes on to the end of the log, and is never complete. The executor is for the fit of models.
    """
    asked = asked_once(horizon, q, c_max, seed, snapshots)
    workers = execution.how_many(threads)
    how = {"threads": workers, "executor": executor, "progress": progress}
    plan = _make_plan(log, {"policy": policy}, given, asked, how, False, stacklevel=4)
    with reporter(progress, log.rows) as report, execution.one_blas_thread():
        (outcome,), sums = _run(plan, log, workers, None, report)
    settings = plan.settings[0] if horizon is not None else replace(plan.settings[0], horizon=1)  # for the message
    run = Replay(settings, outcome, plan.reader.labels, sums, 0.95, 1, plan.used)
    if run.interrupted:
        stop = KeyboardInterrupt()
        stop.add_note(f"before the replay had ended: {run.how_far}")
        raise stop
    if outcome.recorded is None or (horizon is not None and not run.complete):
        raise run.failure
    return run, outcome.recorded
