"""The checks of an audit: each reads the sums of the pass and returns a finding. `CHECKS` at the end lists them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from drstream.auditing import doubts, duplicates, propensities
from drstream.auditing.drift import DRIFTS, blocks_of, drift
from drstream.auditing.view import View, percent, rows_of, say
from drstream.findings import LOOK, OK, STOP, Finding

MANY_BAD = 0.01  # share of bad rows that is a "stop"


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
        f'{view.known.unit}Repair what writes the log, or leave them out knowingly, with on_bad_row "skip".',
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
    propensities.inverse_over_sets,
    propensities.large_propensities,
    propensities.distinct_propensities,
    propensities.rounded_propensities,
    propensities.smallest_propensity,
    unlogged_actions,
    *doubts.CHECKS,
    duplicates.duplicate_rows,
    duplicates.duplicate_event_ids,
    duplicates.repeated_ids,
    time_order,
    *(drift(name) for name in DRIFTS),
)


def findings(view: View) -> list[Finding]:
    """Return what each check found. A check that does not apply to the log finds nothing."""
    of_first_rows = [finding for finding in view.known.doubts if finding.check not in doubts.TOLD]
    return [finding for check in CHECKS if (finding := check(view)) is not None] + of_first_rows


def actions(view: View) -> pa.Table:
    """Return a row for each action: count, share, and the mean of 1{a}/p with its standard error and z against 1.

    With eligible sets, also the number of events whose set has the action. The mean is over these. Candidates have no
    rows: a log may have millions of them.
    """
    if view.candidates:
        return pa.table({"action": pa.array([], pa.string()), "count": pa.array([], pa.int64())})
    counts = view.tally.inverses.counts
    share = counts / view.n if view.n else np.full(len(counts), np.nan)
    eligible = {} if view.tally.eligible is None else {"eligible": view.tally.eligible.counts}
    columns = {"action": pa.array(list(view.labels)), "count": counts, "share": share, **eligible, **view.actions}
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
