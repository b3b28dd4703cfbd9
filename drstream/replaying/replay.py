"""The one pass for policies that learn: log -> chunks -> lanes (a policy, a bias or q, a seed) -> replicates -> result.

Algorithm 1 of the paper (DR-ns, section 5.3) and its variants. Threads read and prepare chunks ahead. Each lane takes
the chunks in the order of the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, overload

import numpy as np

from drstream import parameters
from drstream.errors import warn_user
from drstream.findings import distinct, gathered
from drstream.intervals import z_score
from drstream.log import Log, as_log
from drstream.models.binding import ModelInputs
from drstream.policies.online import as_online
from drstream.provenance import provenance
from drstream.replaying import shards as sharding
from drstream.replaying.comparison import Replays
from drstream.replaying.crossing import Crossing
from drstream.replaying.keeping import KIND, Keeper, check_policies, identity_of
from drstream.replaying.options import Keywords, Levels, ReplayOptions, are_several, listed
from drstream.replaying.outcome import Outcome
from drstream.replaying.plan import Plan, make_plan
from drstream.replaying.result import Replay
from drstream.replaying.snapshots import Recorded
from drstream.running.execution import Workers
from drstream.states.checkpoint import EVERY, Checkpoint, open_checkpoint
from drstream.states.identity import about_fits


@overload
def replay(
    log: Any,
    policies: Mapping[Any, Any],
    horizon: int,
    model: Any = None,
    *,
    bias: float | str | Sequence[float] = ...,
    q: float | Sequence[float] | None = ...,
    seed: int | Sequence[int] = ...,
    **options: Unpack[Keywords],
) -> Replays: ...
@overload
def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    bias: Sequence[float],
    q: None = ...,
    seed: int | Sequence[int] = ...,
    **options: Unpack[Keywords],
) -> Replays: ...
@overload
def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    bias: str = ...,
    q: Sequence[float],
    seed: int | Sequence[int] = ...,
    **options: Unpack[Keywords],
) -> Replays: ...
@overload
def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    bias: float | str = ...,
    q: float | None = ...,
    seed: Sequence[int],
    **options: Unpack[Keywords],
) -> Replays: ...
@overload
def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    bias: float | str = ...,
    q: float | None = ...,
    seed: int = ...,
    **options: Unpack[Keywords],
) -> Replay: ...
def replay(
    log: Any,
    policies: Any,
    horizon: int,
    model: Any = None,
    *,
    method: str = "dr-ns",
    bias: float | str | Sequence[float] = "auto",
    q: float | Sequence[float] | None = None,
    c_max: float | None = None,
    c: float | None = None,
    seed: int | Sequence[int] = 0,
    carry: bool = False,
    replicates: int | None = None,
    shards: int = 1,
    tracker: str = "auto",
    propensity: Any = None,
    crossfit: int | str | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    confidence: float = 0.95,
    precision: str | None = None,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Any = False,
    debug: bool = False,
    checkpoint: Any = None,
    checkpoint_every: float = EVERY,
) -> Replay | Replays:
    """Estimate the reward that a policy would have had in its first `horizon` steps, learning as it went.

    log         A `drs.Log`, or anything that opens as one: a path, a table, a frame.
    policies    A policy, or a mapping of names to policies. A policy is a compiled one of `drs.policies`, a Python
                object with reset(), probabilities(X), update(x, action, reward) and perhaps version, or a fixed policy.
                In a log with eligible sets, they act on these: see docs/eligible.md.
    horizon     T, the number of steps to simulate. In each step, the policy learns from one event. The simulation is
                repeated until the log ends; each repetition is a replicate.
    model       A reward model. Either it was fitted on other events, or it is unfitted and crossfit= is given. Without
                one, r̂ is 0.
    method      "dr-ns" (Algorithm 1), "dr-ns-wc" (the multiplier c is the smallest propensity of the log), "rs" (the
                same c, accepted rewards only) or "dm" (as dr-ns, with r̂ alone).
    bias        Target of the bias mass, in (0, 1): the multiplier c is the largest one that loses at most this share of
                the policy's probability. The first replicate is a pilot, which finds c and does not count. "auto" runs
                several targets side by side, with random numbers of their own, pools them as far as their bias is
                small, and puts the measured bias into the interval. If q or c_max is given, "auto" does not apply.
    q           Instead of bias, the quantile level of c in the paper's Algorithm 1, 0 <= q <= 1. A larger q accepts
                more events and brings more bias. If only c_max is given, q is 0.01.
    c_max       With q, the upper limit of c, and its value in the first step; 1 by default.
    c           For dr-ns-wc and rs, the multiplier. It should be the smallest propensity μ(a|x) of all actions and
                contexts. By default, it is the smallest propensity of the logged events, which may be larger.
    seed        Random seed. The number u_k = drs.uniforms(seed, k, 1) decides whether event k is accepted.
    carry       With q, keep the set Q from one replicate to the next.
    replicates  Maximum number of replicates; with several targets or q, for each of them.
    shards      Number of contiguous runs of row groups that are replayed independently, perhaps in parallel.
    tracker     With q, how the quantile is tracked: "exact", "sketch" (constant memory), or "auto", which is exact
                until it holds 8 million values.
    precision   None: contexts in float32 are multiplied in float32 for predictions of linear models, others in float64.
                "float64": always in float64. Sums, weights and what policies learn are in float64 either way.
    debug       Check that a Python policy's version changes whenever its probabilities do, and that a compiled policy
                stays within the bounds of its arrays.

    checkpoint  Path of a file that is written while the replay runs, and deleted at its end. If the run is killed, the
                same call goes on from there, to the same bits. A policy in Python then needs get_state() and
                set_state(state): see docs/states.md.

    Several bias, q or seeds, or a mapping of policies, run side by side over the same events and random numbers. The
    result is then a `Replays`, else a `Replay`. Ctrl-C returns what was complete by then. The other parameters
    (propensity, crossfit, cluster, fold_seed, clamp, ...) are those of `evaluate`.

    >>> import drstream as drs
    >>> table = drs.synth.World(n_actions=3, n_features=2).table(5000)
    >>> run = drs.replay(drs.Log(table), drs.policies.EpsilonGreedy(epsilon=0.1), horizon=100)
    >>> run.horizon, len(run.replicates) > 1, run.low < run.value < run.high
    (100, True, True)
    """
    given = dict(locals())
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    several = isinstance(policies, Mapping) or are_several(bias, q, seed)
    named = policies if isinstance(policies, Mapping) else {"policy": policies}
    z_score(confidence)
    levels = Levels.of(method, bias, q, c_max, c)
    options = ReplayOptions(method, horizon, levels, listed("seed", seed), carry, replicates, shards, tracker)
    options.check()
    workers = Workers.of(threads, executor, progress)
    inputs = ModelInputs(model, propensity, crossfit, cluster, fold_seed, clamp)
    inputs = inputs.needed(model=method != "rs", propensity=True)
    kept = checkpoint, checkpoint_every
    about_log = log.doubts  # before a stream is read
    with gathered() as doubts:
        outcomes, sums, plan, file = _run(log, named, inputs, options, workers, kept, debug, precision)
    models, labels = plan.preparation.models.summary(sums.calibration), plan.reader.labels
    runs = [
        Replay(lane, outcome, labels, models, dict(sums.skipped), confidence, shards, plan.precision)
        for lane, outcome in zip(plan.lane_options, outcomes, strict=True)
    ]
    if plan.grids:
        runs = [
            _of_grid(runs[first:last], crossing)
            for (first, last), crossing in zip(plan.grids, sums.crossings, strict=True)
        ]
    if not any(run.complete for run in runs):
        if any(run.interrupted for run in runs):
            raise _interrupted(f"before any replicate of {horizon} steps was complete: {runs[0].how_far}", file)
        raise runs[0].failure
    if not any(run.interrupted for run in runs):
        if file is not None:
            file.remove()
    elif file is not None and file.exists:
        warn_user(f"interrupted: {file.advice}")
    made_from = provenance(replay, given, log, max(run.events for run in runs))
    for run in runs:
        run.provenance, run.doubts = made_from, distinct([*about_log, *doubts])
    return Replays(runs) if several else runs[0]


def _run(
    log: Log,
    named: Mapping[Any, Any],
    inputs: ModelInputs,
    options: ReplayOptions,
    workers: Workers,
    checkpoint: tuple[Any, float],
    debug: bool = False,
    precision: str | None = None,
) -> tuple[list[Outcome], sharding.Sums, Plan, Checkpoint | None]:
    """Replay a log, from its checkpoint if there is one. Also return the plan, and the checkpoint."""
    path, every = checkpoint
    if path is not None:
        check_policies({str(name): as_online(policy, str(name)) for name, policy in named.items()})
    with open_checkpoint(path, every, log, KIND, partial(about_fits, log, [inputs])) as kept:
        fitting = replace(workers, checkpoint=kept)
        plan = make_plan(log, named, inputs, options, fitting, debug, parameters.precision(precision))
        keeper = None
        if kept is not None:
            keeper = Keeper(kept, identity_of(log, named, inputs, options, plan), plan.shards)
        workers = replace(workers, executor=None) if options.snapshots else workers
        outcomes, sums = sharding.run(plan, log, workers, keeper)
    return outcomes, sums, plan, kept


def _of_grid(tried: list[Replay], crossing: Crossing) -> Replay:
    values = np.array([run.pooled.value if run.complete else math.nan for run in tried])
    weights = np.array([float(run.replicates["weight"].to_numpy().sum()) for run in tried])
    return Replay.of_grid(tried, crossing.shared(values, weights))


def _interrupted(note: str, file: Checkpoint | None) -> KeyboardInterrupt:
    stop = KeyboardInterrupt()
    stop.add_note(note)
    if file is not None and file.exists:
        stop.add_note(file.advice)
    return stop


def record(
    log: Log,
    policy: Any,
    options: ReplayOptions,
    inputs: ModelInputs,
    workers: Workers,
    *,
    to_the_end: bool,
    checkpoint: tuple[Any, float] = (None, EVERY),
) -> tuple[Replay, Recorded, Checkpoint | None]:
    """Replay one replicate of DR-ns, and record the states of the policy step by step.

    to_the_end  There is no horizon: the replicate runs to the end of the log and is never complete.

    The executor, if any, only fits models.
    """
    with gathered() as doubts:
        found = _run(log, {"policy": policy}, inputs, options, workers, checkpoint)
    (outcome,), sums, plan, file = found
    lane = replace(plan.lane_options[0], horizon=1) if to_the_end else plan.lane_options[0]  # for the message
    models = plan.preparation.models.summary(sums.calibration)
    run = Replay(lane, outcome, plan.reader.labels, models, dict(sums.skipped), 0.95, 1, plan.precision)
    run.doubts = distinct(doubts)
    if run.interrupted:
        raise _interrupted(f"before the replay had ended: {run.how_far}", file)
    if outcome.recorded is None or (not to_the_end and not run.complete):
        raise run.failure
    return run, outcome.recorded, file
