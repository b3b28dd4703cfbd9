"""The checks of an audit: each reads the sums of the pass and returns a finding. `CHECKS` at the end lists them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from drstream.auditing import propensities
from drstream.auditing.drift import DRIFTS, blocks_of, drift
from drstream.auditing.view import View, percent, rows_of, say
from drstream.findings import LOOK, OK, STOP, Finding

MANY_BAD = 0.01  # share of bad rows that is a "stop"
REPEATS = 20.0  # so many rows with a context that came before should have another action


def bad_values(view: View) -> Finding:
    tally = view.tally
    if not tally.bad:
        return say(OK, "bad_values", 0, "No row has a bad value.")
    share = 1 - view.n / tally.rows
    each = "; ".join(
        f"{rows_of(bad.count)}: {reason}, first {bad.first.value!r} at {bad.first}" for reason, bad in tally.bad.items()
    )
    return say(
        STOP if share >= MANY_BAD else LOOK,
        "bad_values",
        share,
        f"{percent(share)} of the rows have a bad value ({each}).",
        "Such rows cannot be used, and leaving them out can bias an estimate.",
        'Repair what writes the log, or leave them out knowingly, with on_bad_row "skip".',
    )


def no_propensities(view: View) -> Finding | None:
    if view.with_propensities:
        return None
    return say(
        LOOK,
        "no_propensities",
        math.nan,
        "The log was opened without propensities.",
        "So nothing about how actions were chosen could be checked.",
        "Name the column of propensities, if there is one.",
    )


def unlogged_actions(view: View) -> Finding | None:
    if not view.n or view.candidates:
        return None
    missing = np.flatnonzero(view.tally.inverses.counts == 0)
    if not len(missing):
        return say(OK, "unlogged_actions", 0, f"Each of the {len(view.labels):,} actions was logged.")
    be = "were" if len(missing) > 1 else "was"
    shown = ", ".join(repr(view.labels[i]) for i in missing[:5]) + (", ..." if len(missing) > 5 else "")
    return say(
        LOOK,
        "unlogged_actions",
        len(missing),
        f"{len(missing):,} of {len(view.labels):,} actions {be} never logged: {shown}.",
        "The log says nothing about policies that take them.",
        "Leave these actions out, or collect events with them.",
    )


def duplicate_rows(view: View) -> Finding | None:
    """Rows that recur are implausible if the same context, coming again, should often have had another action.

    An event with the context of an earlier row takes another action than that row with probability 1 - p. So, beside a
    context's most frequent row, which repeats itself, (repeats) (1 - p) other rows or more are expected.
    """
    if not view.n:
        return None
    copies = view.tally.copies
    if not view.with_context:
        message = "Rows were not compared: without contexts, events look alike."
        return say(OK, "duplicate_rows", math.nan, message)
    order = np.lexsort((copies.hashes, copies.counts, copies.sampled))  # by context; its most frequent row is the last
    context, counts = copies.sampled[order], copies.counts[order]
    first = np.flatnonzero(np.concatenate([[True], context[1:] != context[:-1]]))
    last = np.append(first[1:], len(context)) - 1
    repeats = int((copies.counts - 1).sum())
    expected = float((counts[last] - 1) @ copies.weights[order][last])
    others = int((np.add.reduceat(counts, first) - counts[last]).sum())
    part = "" if not copies.bits else f" (in a sample of 1 in {2**copies.bits:,} contexts)"
    if expected >= REPEATS and others < expected / 4:
        return say(
            LOOK,
            "duplicate_rows",
            repeats,
            f"{rows_of(repeats, 'repeat')} an earlier row{part}, but only {others:,} have an earlier row's context "
            "with another action or reward.",
            "Events were logged more than once, or one draw of an action served several events.",
            "Remove the copies, or keep such events together with cluster=.",
        )
    message = f"{rows_of(repeats, 'repeat')} an earlier row{part}" + (", as contexts recur." if repeats else ".")
    return say(OK, "duplicate_rows", repeats, message)


def duplicate_event_ids(view: View) -> Finding | None:
    if view.event_id is None:
        return None
    ids, missing = view.tally.ids, view.tally.ids_missing
    repeats = int((ids.counts - 1).sum())
    part = "" if not ids.bits else f" (in a sample of 1 in {2**ids.bits:,} ids)"
    if repeats:
        return say(
            STOP,
            "duplicate_event_ids",
            repeats,
            f"{rows_of(repeats, 'have')} an event id that an earlier row has{part}.",
            "Their events count more than once, so estimates are biased and intervals too narrow.",
            "Keep one row of each event.",
        )
    if missing:
        return say(
            LOOK,
            "duplicate_event_ids",
            repeats,
            f"{rows_of(missing, 'have')} no event id.",
            "They may be copies of other rows.",
            "Check what writes the log.",
        )
    return say(OK, "duplicate_event_ids", 0, f"All event ids are different{part}.")


def time_order(view: View) -> Finding | None:
    if view.clock is None:
        return None
    times, name = view.tally.times, view.clock.column
    if times.missing:
        return say(
            LOOK,
            "time_order",
            times.missing,
            f"{rows_of(times.missing, 'have')} no time in {name!r}.",
            "They are in no block of time.",
            "Check what writes the log.",
        )
    if times.backwards:
        return say(
            LOOK,
            "time_order",
            times.backwards,
            f"{rows_of(times.backwards, 'are')} earlier than the row before.",
            "A replay takes events in the order of the log, which is not that of time.",
            "Sort the log by time before a replay; for drs.evaluate the order does not matter.",
        )
    return say(OK, "time_order", 0, "Rows are in the order of time.")


CHECKS: tuple[Callable[[View], Finding | None], ...] = (
    bad_values,
    no_propensities,
    propensities.exploration,
    propensities.inverse_propensity,
    propensities.guessed_action,
    propensities.inverse_over_all,
    propensities.inverse_over_candidates,
    propensities.large_propensities,
    propensities.distinct_propensities,
    propensities.rounded_propensities,
    propensities.smallest_propensity,
    unlogged_actions,
    duplicate_rows,
    duplicate_event_ids,
    time_order,
    *(drift(name) for name in DRIFTS),
)


def findings(view: View) -> list[Finding]:
    """Return what each check found. A check that does not apply to the log finds nothing."""
    return [finding for check in CHECKS if (finding := check(view)) is not None]


def actions(view: View) -> pa.Table:
    """Return a row for each action: count, share, and the mean of 1{a}/p with its standard error and z against 1.

    Candidates have no rows: a log may have millions of them.
    """
    if view.candidates:
        return pa.table({"action": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
    counts = view.tally.inverses.counts
    share = counts / view.n if view.n else np.full(len(counts), np.nan)
    columns = {"action": pa.array(list(view.labels)), "count": counts, "share": share, **view.actions}
    return pa.table(columns)


def blocks(view: View) -> pa.Table | None:
    """Return a row for each block of time, in order; None without a column of times."""
    if view.clock is None:
        return None
    rows = []
    for block in blocks_of(view):
        shown = {"start": block.start, "end": block.end, "rows": block.rows}
        for name in ("bad_share", "reward", "mean_inverse"):
            shown |= {name: getattr(block, name), f"{name}_z": block.z[name]}
        rows.append({**shown, "smallest_propensity": block.smallest_propensity})
    return pa.Table.from_pylist(rows)
