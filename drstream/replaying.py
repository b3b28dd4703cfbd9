"""The one pass for policies that learn: log -> chunks -> lanes (a policy, a q and a seed each) -> replicates -> result.

Algorithm 1 of the paper (DR-ns, section 5.3) and its kin. Chunks are read and made ready ahead, on threads; a lane
takes them in the order of the log.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import execution, sampling
from drstream.calibration import Calibration
from drstream.comparison import Replays
from drstream.errors import DrstreamError, LogError, ModelError, PolicyError, near
from drstream.estimators import NO_PROPENSITIES
from drstream.intervals import z_score
from drstream.kernels.checks import first_not_finite
from drstream.lanes import Chunk, Lane, Outcome, Settings, Sums, contexts_of, make_lane, read_only
from drstream.log import Block, Csr, Log, Reader, as_log
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.log.source import ParquetSource, Part
from drstream.models.binding import Given, Used, most_actions, prepare
from drstream.policies.base import FixedPolicy, fill_by_pieces, warn_if_learned_here
from drstream.policies.online import Compiled, Fixed, as_online
from drstream.progress import reporter
from drstream.recording import Recorded
from drstream.runs import Replay
from drstream.terms import bad_prediction

Floats = NDArray[np.float64]

METHODS = ("dr-ns", "dr-ns-wc", "rs", "dm")
TRACKERS = ("auto", "exact", "sketch")
CHUNK_BYTES = 1 << 24  # of contexts, probabilities and predictions made ready at a time
AHEAD_BYTES = 1 << 28  # made ready and waiting, in all
LONGEST = 2**62 - 1  # steps
SPARSE_FEATURES = 100  # that are not 0 in a sparse context, for these sizes
PATIENCE = 2.0  # s, for shards in an executor to end after Ctrl-C


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


def asked_once(horizon: int | None, q: float, c_max: float, seed: int, snapshots: int) -> _Asked:
    """The parameters of `record`, checked."""
    steps = LONGEST if horizon is None else horizon
    asked = _Asked("dr-ns", steps, (q,), c_max, (seed,), False, 1, 1, "auto", snapshots)
    asked.check()
    return asked


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, Real):
        return [value]
    if isinstance(value, str) or np.ndim(value) != 1:
        raise DrstreamError(f"{name}={value!r}: a number or a list of numbers")
    return list(value)


@dataclass(frozen=True)
class _Asked:
    """The parameters that the checks are about."""

    method: str
    horizon: int
    q: tuple[float, ...]
    c_max: float
    seeds: tuple[int, ...]
    carry: bool
    replicates: int | None
    shards: int
    tracker: str
    snapshots: int | None = None

    def check(self) -> None:
        if self.method not in METHODS:
            raise DrstreamError(f"method={self.method!r}: {near(str(self.method), METHODS)}")
        if self.tracker not in TRACKERS:
            raise DrstreamError(f"tracker={self.tracker!r}: {near(str(self.tracker), TRACKERS)}")
        for name in ("horizon", "replicates", "shards", "snapshots"):
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (whole and 1 <= value <= LONGEST) and not (name in ("replicates", "snapshots") and value is None):
                raise DrstreamError(f"{name}={value!r}: a whole number, at least 1")
        for q in self.q:
            if not isinstance(q, Real) or not 0 <= q <= 1:
                raise DrstreamError(f"q={q!r}: the quantile level must be in [0, 1]")
        if not isinstance(self.c_max, Real) or not 0 < self.c_max <= 1:
            raise DrstreamError(f"c_max={self.c_max!r}: the largest multiplier must be in (0, 1]")
        for seed in self.seeds:
            if not isinstance(seed, Integral) or not -(2**63) <= seed < 2**63:
                raise DrstreamError(f"seed={seed!r}: a whole number of 64 bits")
        if self.method in ("dr-ns-wc", "rs") and len(self.q) > 1:
            raise DrstreamError(f"q={list(self.q)}: {self.method} does not use q, so give one of them")
        for name, values in (("q", self.q), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise DrstreamError(f"{name}={list(values)}: at least one value, and none of them twice")


@dataclass(frozen=True)
class _Plan:
    """All that a pass needs to know, bound to the log. It can be pickled if the policies can."""

    policies: dict[str, Any]
    settings: list[Settings]  # of each lane
    used: Used
    n_actions: int
    n_features: int
    compiled_contexts: bool  # some compiled policy looks at them
    python: bool  # some policy is Python code
    typical_reward: float
    reader: Reader
    shards: int
    copies: bool  # Python policies serve several lanes or shards
    debug: bool

    def lanes(self, stop: threading.Event, shard: int) -> list[Lane]:
        lanes = []
        for settings in self.settings:
            policy = self.policies[settings.policy]
            if self.copies and not isinstance(policy, Compiled | Fixed):
                policy = _copy_of(policy, settings.policy)
            most = settings.most_replicates
            if most is not None:  # the shards share what was asked for
                settings = replace(settings, most_replicates=most // self.shards + (shard < most % self.shards))
            lanes.append(make_lane(settings, policy, self.n_actions, self.n_features, stop, self.debug, self.sparse))
        return lanes

    @property
    def sparse(self) -> bool:
        return self.reader.roles.sparse is not None

    @property
    def event_bytes(self) -> int:
        """Of an event made ready; how many features of a sparse one are not 0 is not known ahead."""
        features = 12 * min(self.n_features, SPARSE_FEATURES) if self.sparse else 8 * self.n_features
        matrices = (self.used.model is not None) + sum(isinstance(p, Fixed) for p in self.policies.values())
        seeds = len({settings.seed for settings in self.settings})
        return 64 + 8 * seeds + features + 8 * self.n_actions * matrices

    @property
    def chunk_rows(self) -> int:
        """A function of what is asked for, so that every run has the same chunks."""
        rows = CHUNK_BYTES // self.event_bytes
        return min(max(256, 1 << (rows.bit_length() - 1)), BATCH_ROWS)

    def chunks(self, part: Part) -> Iterator[Chunk | Counter[str]]:
        """The part's events, made ready; and at the end the bad rows that were left out."""
        skipped: Counter[str] = Counter()
        for batch in self.reader.batches(part, skipped):
            for block in batch.blocks(self.chunk_rows):
                yield self._prepare(block)
        yield skipped

    def _prepare(self, block: Block) -> Chunk:
        rows = block.rows
        uniforms = {seed: sampling.at_rows(seed, rows.view(np.uint64)) for seed in {s.seed for s in self.settings}}
        contexts: NDArray[Any] | Csr = np.empty((len(block), 0))
        if self.compiled_contexts:
            contexts = contexts_of(block)
        if self.python:
            block.matrix  # noqa: B018  # made here, on the thread that reads, and not once for each lane
        predictions, calibration = np.empty((len(block), 0)), Calibration(self.typical_reward)
        if self.used.model is not None:
            predictions = _predict(self.used, block, self.n_actions, calibration)
        propensity = self.used.propensities_of_many(block, self.n_actions)
        if self.used.logger is not None:
            calibration.least_propensity = float(propensity.min())
        fixed = {
            name: _probabilities(policy.policy, block, self.n_actions)
            for name, policy in self.policies.items()
            if isinstance(policy, Fixed)
        }
        return Chunk(block, contexts, rows, uniforms, propensity, predictions, fixed, calibration)


def _predict(used: Used, block: Block, n_actions: int, calibration: Calibration) -> Floats:
    """r̂ (n, K), event by event."""
    assert used.model is not None
    out = np.empty((len(block), n_actions))
    used.model.fill_rows(block, out)
    used.hold(out, calibration)
    event, action = divmod(int(first_not_finite(out.reshape(-1))), n_actions)
    if event >= 0:
        raise bad_prediction(out[event, action], action, block.row(event))
    calibration.add(out[np.arange(len(block)), block.action], block.reward)
    return read_only(out)


def _probabilities(policy: FixedPolicy, block: Block, n_actions: int) -> Floats:
    """ν (n, K) of a fixed policy."""
    out = np.empty((len(block), n_actions))
    fill_by_pieces(policy, block, out)
    return read_only(out)


def _make_plan(
    log: Log,
    named: Mapping[Any, Any],
    given: Given,
    asked: _Asked,
    how: dict[str, Any],
    debug: bool,
    stacklevel: int = 3,
) -> _Plan:
    """Bind policies and models to the log, and find out what must be read of it."""
    policies = {str(name): as_online(policy, str(name)) for name, policy in named.items()}
    if len(policies) < len(named):
        raise PolicyError(f"two policies have the same name: {', '.join(map(repr, named))}")
    if not policies:
        raise PolicyError("there is no policy to replay: pass a policy, or a mapping of names to policies")
    if asked.method == "dm" and given.model is None:
        raise ModelError('method="dm" is r̂ alone: pass a reward model with model=')
    if log.roles.propensity is None and given.propensity is None:
        raise LogError(f"replay needs propensities, {NO_PROPENSITIES}")
    fixed = [p.policy for p in policies.values() if isinstance(p, Fixed)]
    most = [getattr(p, "n_actions", None) or 0 for p in (*fixed, *policies.values())]
    log = log.with_actions_up_to(max(most_actions(given), *most))
    bound: dict[str, Any] = {}
    for name, policy in policies.items():
        bound[name] = policy
        if isinstance(policy, Fixed):
            warn_if_learned_here(policy.policy, name, log, stacklevel)
            bound[name] = Fixed(policy.policy.bind(log, name))
            if bound[name].policy.only_logged:
                raise PolicyError(
                    f"policy {name!r} gives the probability of the logged action only; replay needs all actions'"
                )
        elif not isinstance(policy, Compiled) and hasattr(policy, "bind"):
            bound[name] = policy.bind(log) or policy
    compiled = any(isinstance(p, Compiled) and p.uses_context for p in policies.values())
    python = any(not isinstance(p, Compiled | Fixed) for p in policies.values())
    used = prepare(log, given, how, stacklevel)
    users: list[Any] = [*fixed, used]
    reader = log.reader(
        context=compiled or python or any(u.uses_context for u in users),
        action=True,
        columns=tuple(dict.fromkeys(c for u in users for c in u.columns)),
        folds=used.folds,
    )
    c_max = float(asked.c_max)
    if asked.method in ("dr-ns-wc", "rs"):
        c_max = min(c_max, smallest_propensity(log, reader, used, how["threads"]))
    lanes = list(itertools.product(bound, asked.q, asked.seeds))
    settings = [
        Settings(
            policy=name,
            method=asked.method,
            horizon=int(asked.horizon),
            q=float(level),
            c_max=c_max,
            seed=int(seed),
            carry=bool(asked.carry),
            tracker=asked.tracker,
            most_replicates=asked.replicates,
            unit_rewards=bool(getattr(bound[name], "unit_rewards", False)),
            snapshots=int(asked.snapshots or 0),
        )
        for name, level, seed in lanes
    ]
    return _Plan(
        policies=bound,
        settings=settings,
        used=used,
        n_actions=log.n_actions,
        n_features=log.n_features if reader.with_context else 0,
        compiled_contexts=compiled,
        python=python,
        typical_reward=log.typical_reward,
        reader=reader,
        shards=int(asked.shards),
        copies=len(lanes) > 1 or asked.shards > 1,
        debug=debug,
    )


def _copy_of(policy: Any, name: str) -> Any:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise PolicyError(
            f"policy {name!r} cannot be copied: {error}. Several q, seeds or shards have a copy each. "
            "Give it a __deepcopy__, or replay one q and seed at a time"
        ) from error


def smallest_propensity(log: Log, reader: Reader, used: Used, workers: int) -> float:
    """Of the log's events: from the statistics of Parquet files if all rows count, else from a pass over the column.

    Where bad rows are skipped or propensities are estimated, the pass reads all columns that the replay will.
    """
    everything = log.filter is None and not log._splits and log.on_bad_row == "error"
    column = log.roles.propensity
    if everything and column is not None and isinstance(log.source, ParquetSource):
        known = log.source.minimum_maximum(column)
        if known is not None and known[0] > 0:
            return float(known[0])
    held = log._but(source=log.source.peek())  # a stream that can be read once is kept for the pass to come
    reader = reader if log.on_bad_row == "skip" or used.logger else held.reader()
    smallest = 1.0
    for least in execution.run(_Smallest(reader, used), held, reader.columns, workers):
        smallest = min(smallest, least)
    return smallest


@dataclass(frozen=True)
class _Smallest:
    reader: Reader
    used: Used

    def __call__(self, part: Part) -> float:
        batches = self.reader.batches(part, Counter())
        blocks = (Block(batch, 0, len(batch)) for batch in batches)
        actions = len(self.reader.labels)
        return min((float(self.used.propensities_of_many(block, actions).min()) for block in blocks), default=1.0)


def _run(
    plan: _Plan, log: Log, workers: int, executor: Executor | None, report: Callable[..., None]
) -> tuple[list[Outcome], Sums]:
    """The outcome of each lane, and what is summed over all events, whatever the lane."""
    parts = log.parts(plan.reader.columns)
    if plan.shards == 1 and executor is None:
        return _replay(plan, parts, workers, threading.Event(), report, 0)
    if log.rows is None and plan.shards > 1:
        raise LogError(
            f"shards={plan.shards}: a {log.source.name} cannot be cut into shards; pass a Parquet path or a Table"
        )
    runs = _cut(list(parts), plan.shards)
    stop = threading.Event()
    with ExitStack() as stack:
        if executor is None:
            pool = stack.enter_context(ThreadPoolExecutor(min(workers, plan.shards), thread_name_prefix="drstream"))
            totals = _Totals(report)
            futures = [
                pool.submit(_replay, plan, run, 1, stop, totals.of(shard), shard) for shard, run in enumerate(runs)
            ]
        else:
            futures = [executor.submit(_replay_elsewhere, plan, run, shard) for shard, run in enumerate(runs)]
        try:
            done = [execution.result_of(future) for future in futures]
        except BaseException as error:
            stop.set()
            for future in futures:
                future.cancel()
            if not isinstance(error, KeyboardInterrupt):
                raise
            if executor is not None:
                wait(futures, timeout=PATIENCE)  # Ctrl-C reaches the processes of a terminal, too
            done = _what_is_left(futures, all_of_them=executor is None)
            if not done:
                error.add_note("no shard had ended")
                raise
            for outcome in done[-1][0]:
                outcome.interrupted = True
    merged = [Outcome.merge([outcomes[i] for outcomes, _ in done]) for i in range(len(plan.settings))]
    total = Sums(Counter(), Calibration(plan.typical_reward))
    for _, sums in done:
        total.merge(sums)
    return merged, total


def _what_is_left(futures: list[Future[Any]], all_of_them: bool) -> list[tuple[list[Outcome], Sums]]:
    """The results of shards that were complete, or that end now because they were told to."""
    ended = [f for f in futures if not f.cancelled() and (all_of_them or f.done()) and f.exception() is None]
    return [future.result() for future in ended]


def _cut(parts: list[Part], shards: int) -> list[list[Part]]:
    """Contiguous runs of parts; the first ones have one more, where they cannot all have the same number."""
    if shards > len(parts):
        raise LogError(
            f"shards={shards}: the log has {len(parts)} row group{'s' * (len(parts) != 1)} (or segments of 131,072 "
            "rows), and a shard needs one at least"
        )
    each, over = divmod(len(parts), shards)
    cuts = [i * each + min(i, over) for i in range(shards + 1)]
    return [parts[a:b] for a, b in itertools.pairwise(cuts)]


class _Totals:
    """Adds up what the shards report."""

    def __init__(self, report: Callable[..., None]) -> None:
        self.report = report
        self.rows: Counter[int] = Counter()
        self.lock = threading.Lock()

    def of(self, shard: int) -> Callable[..., None]:
        def told(done: int, text: str) -> None:
            with self.lock:
                self.rows[shard] = done
                self.report(self.rows.total(), text)

        return told


def _replay_elsewhere(plan: _Plan, parts: list[Part], shard: int) -> tuple[list[Outcome], Sums]:
    """A shard in a worker of the user's executor."""
    with execution.one_blas_thread():
        return _replay(plan, parts, 1, threading.Event(), lambda *_: None, shard)


def _replay(
    plan: _Plan,
    parts: Sequence[Part] | Iterator[Part],
    workers: int,
    stop: threading.Event,
    report: Callable[..., None],
    shard: int,
) -> tuple[list[Outcome], Sums]:
    """One shard through all lanes, from its first part to its last."""
    lanes = plan.lanes(stop, shard)
    sums = Sums(Counter(), Calibration(plan.typical_reward))
    interrupted = False
    first_row: int | None = None
    ahead = max(2, AHEAD_BYTES // (workers * plan.chunk_rows * plan.event_bytes))
    try:
        with ExitStack() as stack:
            chunks = stack.enter_context(closing(execution.stream(plan.chunks, parts, workers, ahead)))
            pool = None
            if len(lanes) > 1 and workers > 1:
                pool = stack.enter_context(ThreadPoolExecutor(workers, thread_name_prefix="drstream-lane"))
                stack.callback(stop.set)  # before the pool is waited for
            for item in chunks:
                if isinstance(item, Counter):
                    sums.skipped += item
                    continue
                sums.calibration.merge(item.calibration)
                _feed(lanes, item, pool)
                first_row = item.block.batch.first_row if first_row is None else first_row
                report(int(item.rows[-1]) + 1 - first_row, _progress_text(lanes))
                if stop.is_set() or all(lane.done for lane in lanes):
                    break
            interrupted = stop.is_set()
    except KeyboardInterrupt:
        interrupted = True
    return [lane.outcome(shard, interrupted) for lane in lanes], sums


def _feed(lanes: list[Lane], chunk: Chunk, pool: ThreadPoolExecutor | None) -> None:
    if pool is None:
        for lane in lanes:
            lane.take(chunk)
    else:
        for future in [pool.submit(lane.take, chunk) for lane in lanes]:
            execution.result_of(future)


def _progress_text(lanes: list[Lane]) -> str:
    events = sum(int(lane.state[0].all_events) for lane in lanes)
    accepted = sum(int(lane.state[0].all_accepted) for lane in lanes)
    replicates = [int(lane.state[0].replicates) for lane in lanes]
    least, most = min(replicates), max(replicates)
    done = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{done} replicates, {accepted / max(events, 1):.2%} accepted"
