"""The pass of an audit: parts of the log -> batches, bad rows included -> states that merge -> findings."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.auditing import checks
from drstream.auditing.columns import Columns, columns_of
from drstream.auditing.copies import (
    USERS_KEPT,
    Copies,
    HashedPart,
    Hashes,
    PartHash,
    context_keys,
    float_keys,
    hash_columns,
    with_mark,
)
from drstream.auditing.eligible import Eligible
from drstream.auditing.guess import FIRST_EVENTS, Guess, learn
from drstream.auditing.result import Audit
from drstream.auditing.shift import Lens, lens_of
from drstream.auditing.tally import Inverses, Spot, Tally
from drstream.auditing.times import SUMS, Clock, check_time, make_clock
from drstream.auditing.view import First, View
from drstream.errors import LogError, parameter
from drstream.log import Events, Log, Reader
from drstream.log.bad_rows import likely_cause
from drstream.log.columns import floats_or_nan, nulls
from drstream.log.reader import Read
from drstream.log.rows import check_key, keys_of
from drstream.log.schema import require_column
from drstream.provenance import provenance
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part
from drstream.sources.parquet import ParquetSource
from drstream.types import Floats

MOST_USERS = 3  # columns of ids that have no role


@dataclass(frozen=True)
class Plan:
    """What each part needs. It can be pickled."""

    reader: Reader
    guess: Guess | None
    typical_reward: float
    candidates: bool  # each event has its own; then all that is summed by action is summed over all of them
    event_id: str | None
    clock: Clock | None
    columns: Columns
    lens: Lens | None  # None: there are too few events to compare rewards with those of other rows
    users: tuple[str, ...]  # columns without a role that hold ids

    def create(self) -> Tally:
        eligible = Eligible.create(len(self.reader.labels)) if self.reader.with_sets else None
        lags = None if self.lens is None else self.lens.create()
        return Tally(Inverses.create(self.groups), self.columns.create(), lags, eligible)

    @property
    def groups(self) -> int:
        return 1 if self.candidates else len(self.reader.labels)


def audit(
    log: Log,
    event_id: str | None = None,
    time: str | None = None,
    expected_rows: int | None = None,
    expected_reward: float | None = None,
    threads: int | None = None,
    executor: Any = None,
    progress: Any = False,
) -> Audit:
    """See `Log.audit`."""
    expected: dict[str, Any] = {"expected_rows": expected_rows, "expected_reward": expected_reward}
    given = {"event_id": event_id, "time": time, **expected}
    schema = log.source.schema
    if log.roles.sample_rate is not None:
        raise LogError(
            "an audit needs every event, and this log is down-sampled: "
            f"{parameter('sample_rate', log.roles.sample_rate)}"
        )
    for role, name in (("event_id", event_id), ("time", time)):
        if name is not None:
            require_column(schema, name, role)
    if event_id is not None:
        check_key(schema, event_id, "event_id", "an event's id")
    if time is not None:
        check_time(schema, time)
    for role, number in expected.items():
        if number is not None and not (isinstance(number, Real) and np.isfinite(float(number))):
            raise LogError(f"{parameter(role, number)}: give a number")
    workers = Workers.of(threads, executor, progress)
    log = verified(log)
    plan = make_plan(lenient(log), event_id, time)
    known = First(log.doubts, _unit(log), **expected)
    total = plan.create()
    for tally in execution.run(partial(consume, plan), log, plan.reader.columns, workers):
        total.merge(tally)
    if not total.rows:
        raise LogError("the log is empty: there is no row to audit")
    return finish(log, plan, total, known, provenance(audit, given, log, total.rows))


def verified(log: Log) -> Log:
    """Return the log. Pages of Parquet files that have checksums are compared with them as they are read."""
    source = log.source
    if isinstance(source, ParquetSource):
        log = log.copy(source=source.verified())
    return log


def lenient(log: Log) -> Log:
    """Return the log with bad rows skipped, but with its own labels, if it has any: skipped rows may have a say."""
    lenient = log.with_bad_rows("skip")
    with suppress(LogError):  # e.g. a negative action: then only the labels of good rows count
        lenient = lenient.copy(labels=log.labels)
    return lenient


def make_plan(log: Log, event_id: str | None, time: str | None) -> Plan:
    users = tuple(name for name in log.id_columns() if name not in (event_id, time))[:MOST_USERS]
    columns = [name for name in dict.fromkeys((event_id, time, *users)) if name is not None]
    of_all = bool(log.roles.propensities)
    reader = log.reader(context=True, action=True, columns=columns, candidates=log.has_candidates, propensities=of_all)
    clock = None if time is None else make_clock(log.source.schema, time, _first_times(log, time))
    first, actions = _first_events(log, reader), 1 if log.has_candidates else log.n_actions
    guess = None
    if log.roles.with_propensities and not log.has_candidates:
        guess = learn(first, actions)
    return Plan(
        reader=reader,
        guess=guess,
        typical_reward=log.typical_reward,
        candidates=log.has_candidates,
        event_id=event_id,
        clock=clock,
        columns=columns_of(log, first),
        lens=lens_of(first, actions),
        users=users,
    )


def _unit(log: Log) -> str:
    name = log.roles.propensity
    first = None if name is None or log.roles.ranking else log.facts.first([name])
    return "" if first is None else likely_cause(floats_or_nan(first.column(0)))


def _first_times(log: Log, time: str) -> Floats:
    """Return some of the first times, if they are floats."""
    if pa.types.is_floating(log.source.schema.field(time).type):
        first = log.facts.first([time])
        return np.empty(0) if first is None else floats_or_nan(first.column(0))
    return np.empty(0)


def _first_events(log: Log, reader: Reader) -> list[Events]:
    """Return the first good rows. They do not depend on how the log is cut into batches."""
    found: list[Events] = []
    for part in log.source.peek(FIRST_EVENTS).parts(reader.columns, log.filter):
        for batch in reader.batches(part, Counter()):
            found.append(batch[: FIRST_EVENTS - sum(map(len, found))])
            if sum(map(len, found)) >= FIRST_EVENTS:
                return found
    return found


def consume(plan: Plan, part: Part) -> Tally:
    """Read one part and return its state."""
    tally, reader, hashed = plan.create(), plan.reader, PartHash()
    seen = False
    for batch, found in reader.read(part):
        execution.raise_if_stopped()
        for bad in found.bad:
            tally.count_bad(bad.reason, bad.count, Spot(part.place, bad.row, bad.value))
        tally.rows += batch.num_rows
        tally.good += len(found.kept)
        events = found.events
        if events is not None:
            if plan.lens is not None and tally.lags is not None and not seen:
                plan.lens.add(events, tally.lags)
            seen = True
            hashed.add(_add_events(plan, events, tally))
        for name in plan.users:
            _add_ids(batch.column(name), tally.users.setdefault(name, Copies(USERS_KEPT)))
        if plan.event_id is not None:
            tally.ids_missing += _add_ids(batch.column(plan.event_id), tally.ids)
        if plan.clock is not None:
            _add_times(plan, plan.clock, batch, found, tally)
    for copies in (tally.copies, tally.ids, *tally.users.values()):
        copies.settle()
    tally.repeats.parts.append(HashedPart(hashed.digest, hashed.rows, hashed.changes, part.place))
    return tally


def _add_events(plan: Plan, events: Events, tally: Tally) -> Hashes:
    """Add events, and return the hashes of their rows."""
    plan.columns.add(events, -events.reward if plan.reader.roles.negated else events.reward, tally.columns)
    tally.rewards.add(events.reward - plan.typical_reward)
    others = np.full(len(events), 0.5)
    action, offered = np.ascontiguousarray(events.action), events.candidates
    if len(offered):
        tally.offers.add(np.diff(offered.starts), events.propensity)
        action = np.zeros_like(action)
    if tally.eligible is not None and events.eligible is not None:
        tally.eligible.add(events.eligible, events.propensity)
    if len(events.propensity):
        propensity = np.ascontiguousarray(events.propensity)
        tally.inverses.add(action, propensity)
        tally.propensities.add(propensity, events.place, events.numbers)
        if plan.guess is not None:
            later = events.numbers > plan.guess.after
            tally.guessed.add((plan.guess.of(events) == events.action)[later], propensity[later])
        others = 1 - propensity
    else:
        tally.inverses.counts += np.bincount(action, minlength=plan.groups)
    context = hash_columns(len(events), context_keys(events))
    rows = [context, events.action.astype(np.uint64), float_keys(events.reward)]
    rows += [float_keys(events.propensity)] if len(events.propensity) else []
    rows += [keys_of(events.columns.column(plan.event_id))] if plan.event_id else []
    rows += [plan.clock.read(events.columns.column(plan.clock.column))[0].view(np.uint64)] if plan.clock else []
    hashes = with_mark(hash_columns(len(events), ((None, column) for column in rows)), events.reward != 0)
    if events.n_features or len(offered):
        tally.copies.add(hashes, context, others)
        if len(events.propensity):
            tally.repeats.add(context, events.action, events.propensity)
    return hashes


def _add_ids(column: pa.Array, ids: Copies) -> int:
    """Add ids, and return how many are missing."""
    missing = nulls(column)
    hashes = hash_columns(len(column), iter([(None, keys_of(column))]))[~missing]
    ids.add(hashes, hashes, np.zeros(len(hashes)))
    return int(missing.sum())


def _add_times(plan: Plan, clock: Clock, batch: pa.RecordBatch, found: Read, tally: Tally) -> None:
    events, good = found.events, found.kept
    sums = np.zeros((len(SUMS), batch.num_rows))
    sums[0] = 1
    smallest = np.full(batch.num_rows, np.inf)
    if events is not None:
        reward = events.reward - plan.typical_reward
        sums[1:4, good] = np.ones(len(reward)), reward, reward * reward
        if len(events.propensity):
            with np.errstate(over="ignore"):
                inverse = 1 / events.propensity
                sums[4:6, good] = inverse, inverse * inverse
            smallest[good] = events.propensity
    tally.times.add(*clock.read(batch.column(clock.column)), sums, smallest)


def finish(log: Log, plan: Plan, total: Tally, known: First, made_from: dict[str, Any] | None = None) -> Audit:
    """Make the result from the final state."""
    for copies in (total.copies, total.ids, *total.users.values()):
        copies.settle()
    view = View(
        tally=total,
        labels=list(plan.reader.labels),
        candidates=plan.candidates,
        labels_given=log.labels_are_given,
        with_propensities=log.roles.with_propensities,
        with_context=bool(plan.reader.n_features) or plan.candidates,
        event_id=plan.event_id,
        clock=plan.clock,
        typical_reward=plan.typical_reward,
        roles=log.roles,
        columns=plan.columns,
        known=known,
    )
    return Audit(
        name=log.source.name,
        rows=total.rows,
        findings=checks.findings(view),
        actions=checks.actions(view),
        blocks=checks.blocks(view),
        bad={reason: {"count": bad.count, **bad.first.to_dict()} for reason, bad in total.bad.items()},
        provenance=made_from,
    )
