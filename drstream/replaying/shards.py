"""Feeds the chunks to the lanes, in one shard or in several shards in parallel."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drstream.errors import LogError, parameter
from drstream.log import Log
from drstream.models.calibration import Calibration
from drstream.replaying.chunks import Chunk, Spaces
from drstream.replaying.crossing import IN_FLIGHT, Crossing, Traces
from drstream.replaying.keeping import Keeper, state_of
from drstream.replaying.lanes import NO_TRACE, Lane
from drstream.replaying.outcome import Outcome
from drstream.replaying.plan import Plan
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.running.executors import submit
from drstream.running.progress import reporter
from drstream.sources.base import Part
from drstream.states.checkpoint import Kept
from drstream.types import Floats

AHEAD_BYTES = 1 << 25  # of all prepared chunks that wait for lanes; more of them only leave the cache
PATIENCE = 2.0  # seconds that shards in an executor have to end after Ctrl-C


@dataclass
class Sums:
    """Sums over the events read. They are the same for every lane."""

    calibration: Calibration
    skipped: Counter[str] = field(default_factory=Counter)  # bad rows by reason
    crossings: list[Crossing] = field(default_factory=list)  # of each grid

    def merge(self, other: Sums) -> None:
        self.skipped += other.skipped
        self.calibration.merge(other.calibration)
        for one, more in zip(self.crossings, other.crossings, strict=True):
            one.merge(more)


def run(plan: Plan, log: Log, workers: Workers, keeper: Keeper | None = None) -> tuple[list[Outcome], Sums]:
    """Replay the log. Return the outcome of each lane, and the sums over all events.

    keeper  Of a checkpoint, from which the replay goes on.
    """
    with reporter(workers.progress, log.source_rows) as report, execution.one_blas_thread():
        found = _run(plan, log, workers, report, keeper)
        if keeper is not None and any(outcome.interrupted for outcome in found[0]):
            keeper.kept.stopped()
        return found


def _run(
    plan: Plan, log: Log, workers: Workers, report: Callable[..., None], keeper: Keeper | None
) -> tuple[list[Outcome], Sums]:
    parts = log.parts(plan.reader.columns)
    executor = workers.executor
    if plan.shards == 1 and executor is None:
        return _replay(plan, parts, log.source_rows, workers.threads, threading.Event(), report, 0, keeper)
    if log.source_rows is None and plan.shards > 1:
        raise LogError(
            f"{parameter('shards', plan.shards)}: a {log.source.name} cannot be cut into shards; pass a Parquet path "
            "or a Table"
        )
    runs = _cut(list(parts), plan.shards)
    stop = threading.Event()
    with ExitStack() as stack:
        if executor is None:
            pool = stack.enter_context(
                ThreadPoolExecutor(min(workers.threads, plan.shards), thread_name_prefix="drstream")
            )
            totals = _Totals(report)
            futures = [
                pool.submit(_replay, plan, run, _rows(run), 1, stop, totals.of(shard), shard, keeper)
                for shard, run in enumerate(runs)
            ]
        else:
            futures = [_submit(executor, plan, run, shard, keeper) for shard, run in enumerate(runs)]
        try:
            done = [execution.result_of(future, f"shard {shard}") for shard, future in enumerate(futures)]
        except BaseException as error:
            stop.set()
            for future in futures:
                future.cancel()
            if not isinstance(error, KeyboardInterrupt):
                raise
            if executor is not None:
                wait(futures, timeout=PATIENCE)  # a terminal sends Ctrl-C to worker processes, too
            done = _what_is_left(futures, all_of_them=executor is None)
            if not done:
                error.add_note("no shard had ended")
                raise
            for outcome in done[-1][0]:
                outcome.interrupted = True
    merged = [Outcome.merge([outcomes[i] for outcomes, _ in done]) for i in range(len(plan.lane_options))]
    (_, total), *others = done
    for _, sums in others:
        total.merge(sums)
    return merged, total


def _what_is_left(futures: list[Future[Any]], all_of_them: bool) -> list[tuple[list[Outcome], Sums]]:
    """The results of shards that have ended, or that end now because `stop` is set."""
    ended = [f for f in futures if not f.cancelled() and (all_of_them or f.done()) and f.exception() is None]
    return [future.result() for future in ended]


def _cut(parts: list[Part], shards: int) -> list[list[Part]]:
    """Cut the parts into contiguous runs. If they do not divide evenly, the first runs have one part more."""
    if shards > len(parts):
        raise LogError(
            f"{parameter('shards', shards)}: the log has {len(parts)} row group{'s' * (len(parts) != 1)} (or segments "
            "of 131,072 rows), and a shard needs one at least"
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


def _submit(executor: Executor, plan: Plan, parts: list[Part], shard: int, keeper: Keeper | None) -> Future[Any]:
    """Let a worker of the user's executor replay a shard, unless a checkpoint has its end."""
    if keeper is None:
        return submit(executor, _replay_elsewhere, plan, parts, shard)
    if keeper.shards[shard] is not None:
        done: Future[Any] = Future()
        nothing = threading.Event(), lambda *_: None
        done.set_result(_replay(plan, parts, _rows(parts), 1, *nothing, shard, keeper))
        return done
    asked, done = submit(executor, _replay_to_its_end, plan, parts, shard), Future()

    def received(future: Future[Any]) -> None:
        if future.cancelled():
            done.cancel()
        elif (error := future.exception()) is not None:
            done.set_exception(error)
        else:
            found, state = future.result()
            keeper.end(shard, state)
            done.set_result(found)

    asked.add_done_callback(received)
    return done


def _replay_elsewhere(plan: Plan, parts: list[Part], shard: int) -> tuple[list[Outcome], Sums]:
    """Replay a shard in a worker of the user's executor."""
    with execution.one_blas_thread():
        return _replay(plan, parts, _rows(parts), 1, threading.Event(), lambda *_: None, shard)


def _replay_to_its_end(plan: Plan, parts: list[Part], shard: int) -> tuple[tuple[list[Outcome], Sums], Kept]:
    """The same, with what a checkpoint holds of the shard."""
    last = _AtTheEnd()
    with execution.one_blas_thread():
        found = _replay(plan, parts, _rows(parts), 1, threading.Event(), lambda *_: None, shard, last)
    assert last.state is not None
    return found, last.state


class _AtTheEnd:
    """Takes the last state of a shard, in a process that has no file."""

    state: Kept | None = None
    shards: Mapping[int, Kept | None] = defaultdict(lambda: None)

    def note(self, shard: int, make: Callable[[], Kept]) -> None:
        pass

    def end(self, shard: int, state: Kept) -> None:
        self.state = state


def _rows(parts: Sequence[Part]) -> int:
    return sum(part.rows for part in parts)


def _replay(
    plan: Plan,
    parts: Sequence[Part] | Iterator[Part],
    rows: int | None,
    threads: int,
    stop: threading.Event,
    report: Callable[..., None],
    shard: int,
    keeper: Any = None,
) -> tuple[list[Outcome], Sums]:
    """Replay one shard in all lanes, from its first part, or from where a checkpoint has it, to its last."""
    lanes = plan.lanes(stop, shard, rows)
    grids = [Traces(first, last, plan.chunk_rows) for first, last in plan.grids]
    sums = Sums(Calibration(plan.preparation.typical_reward), crossings=[grid.crossing for grid in grids])
    interrupted = False
    done, taken, after = 0, 0, (0, 0)  # parts, and chunks of the next one
    if keeper is not None:
        state_of(lanes, sums, 0, 0, False)  # raises an error before the pass if a policy cannot be kept
    if keeper is not None and (kept := keeper.shards[shard]) is not None:
        sums, taken = keeper.take_up(shard, lanes, sums)
        for grid, crossing in zip(grids, sums.crossings, strict=True):
            grid.crossing = crossing
        if kept.complete:
            return [lane.outcome(shard, False) for lane in lanes], sums
        done = kept.parts
        parts = itertools.islice(parts, done, None)
        first_part = next(parts, None)
        if first_part is not None:
            after, parts = (first_part.first_row, taken), itertools.chain([first_part], parts)
    first_row: int | None = None
    ahead = max(2, AHEAD_BYTES // (threads * plan.preparation.chunk_bytes(plan.chunk_rows)))
    try:
        with ExitStack() as stack:
            produce = partial(plan.chunks, Spaces(), after=after)
            chunks = stack.enter_context(closing(execution.stream(produce, parts, threads, ahead)))
            pool = None
            if len(lanes) > 1 and threads > 1:
                pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="drstream-lane"))
                stack.callback(stop.set)  # runs before the pool is waited for
            feed = _Feed(lanes, grids, pool)
            for item in chunks:
                if isinstance(item, Counter):
                    sums.skipped += item
                    done, taken = done + 1, 0
                    continue
                sums.calibration.merge(item.calibration)
                feed.put(item)
                first_row = item.block.place.first_row if first_row is None else first_row
                report(int(item.rows[-1]) + 1 - first_row, _progress_text(lanes))
                taken += 1
                if stop.is_set() or all(lane.done for lane in lanes):
                    break
                if keeper is not None:
                    keeper.note(shard, partial(_drained, feed, sums, done, taken))
            feed.drain()
            interrupted = stop.is_set()
            if keeper is not None and not interrupted:
                keeper.end(shard, state_of(lanes, sums, done, taken, True))
    except KeyboardInterrupt:
        interrupted = True
    return [lane.outcome(shard, interrupted) for lane in lanes], sums


def _drained(feed: _Feed, sums: Sums, parts: int, chunks: int) -> Kept:
    """The state of a shard, after all lanes have taken all chunks so far."""
    feed.drain()
    return state_of(feed.lanes, sums, parts, chunks, False)


class _Feed:
    """Hands chunks to all lanes. Each lane takes them in order, but a lane need not wait for the others.

    At most IN_FLIGHT chunks are under way. What lanes have in common is added up when all of them have taken a chunk,
    while they take the next one.
    """

    def __init__(self, lanes: list[Lane], grids: list[Traces], pool: ThreadPoolExecutor | None) -> None:
        self.lanes, self.grids, self.pool = lanes, grids, pool
        self.number = 0
        self.waiting: deque[tuple[int, Chunk, list[Future[None]]]] = deque()  # number of a chunk, itself, its tasks

    def put(self, chunk: Chunk) -> None:
        number, rows = self.number, len(chunk.rows)
        self.number += 1
        traces = {lane: trace for grid in self.grids for lane, trace in grid.open(number, rows).items()}
        if self.pool is None:
            for i, lane in enumerate(self.lanes):
                lane.take(chunk, traces.get(i, NO_TRACE))
            self._close(number, chunk)
            return
        before: list[Any] = self.waiting[-1][2] if self.waiting else [None] * len(self.lanes)
        tasks = [
            self.pool.submit(_take, lane, chunk, traces.get(i, NO_TRACE), before[i])
            for i, lane in enumerate(self.lanes)
        ]
        self.waiting.append((number, chunk, tasks))
        if len(self.waiting) == IN_FLIGHT:
            self._finish()

    def drain(self) -> None:
        """Wait for all chunks."""
        while self.waiting:
            self._finish()

    def _finish(self) -> None:
        number, chunk, tasks = self.waiting[0]
        for task in tasks:
            execution.result_of(task)
        self.waiting.popleft()
        self._close(number, chunk)

    def _close(self, number: int, chunk: Chunk) -> None:
        for grid in self.grids:
            grid.close(number, len(chunk.rows))
        chunk.release()


def _take(lane: Lane, chunk: Chunk, trace: Floats, before: Future[None] | None) -> None:
    """Let a lane take a chunk after the one before, which a pool began earlier. If that failed, so does this."""
    if before is not None:
        before.result()
    lane.take(chunk, trace)


def _progress_text(lanes: list[Lane]) -> str:
    events = sum(int(lane.now["all_events"]) for lane in lanes)
    accepted = sum(int(lane.now["all_accepted"]) for lane in lanes)
    replicates = [int(lane.now["replicates"]) for lane in lanes]
    least, most = min(replicates), max(replicates)
    done = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return f"{done} replicates, {accepted / max(events, 1):.2%} accepted"
