"""Checks of rows that stand in a log more than once, and of ids that come again."""

from __future__ import annotations

import math

import numpy as np

from drstream.auditing.copies import HashedPart
from drstream.auditing.view import View, rows_of, say
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.log.doubts import of_copies
from drstream.log.ids import IdColumn

REPEATS = 20.0  # so many rows with a context that came before should have another action
CHANGES = 64  # rows of a part that differ from the row before: parts of fewer may be the same by chance
TIMES = range(10, 1, -1)  # how often each row may stand in a log
NEARLY_ALL = 0.9  # of the different rows
SURE_OF_ALL = math.log(1e6)


def duplicate_rows(view: View) -> Finding | None:
    if not view.n:
        return None
    found = repeated_parts(view) or multiplied_rows(view)
    if found is not None or view.with_context:
        return found or rows_in_a_row(view) or recurring_rows(view)
    return say(OK, "duplicate_rows", math.nan, "Rows were not compared: without contexts, events look alike.")


def repeated_parts(view: View) -> Finding | None:
    """Parts whose rows are those of another part, in the same order."""
    first: dict[tuple[int, int], HashedPart] = {}
    again: list[tuple[HashedPart, HashedPart]] = []
    for part in view.tally.repeats.parts:
        if part.changes >= CHANGES:
            earlier = first.setdefault((part.digest, part.rows), part)
            if earlier is not part:
                again.append((part, earlier))
    if not again:
        return None
    part, earlier = again[0]
    rows = sum(part.rows for part, _ in again)
    more = f", and so on: {len(again):,} such parts" if len(again) > 1 else ""
    return say(
        STOP,
        "duplicate_rows",
        rows,
        f"The rows of {part.place} are those of {earlier.place}{more}.",
        f"A file, or a part of it, was copied: {rows_of(rows)} count twice, and intervals are too narrow.",
        "Remove the copies.",
    )


def multiplied_rows(view: View) -> Finding | None:
    """Rows, or those with a reward, that all stand in the log twice. By chance, at most one in two does so."""
    copies = view.tally.copies
    rewarded = copies.hashes & np.uint64(1) == 1
    for which, chosen in (("rows", slice(None)), ("rows with a reward", rewarded)):
        counts = copies.counts[chosen]
        if not len(counts) or (counts == 1).mean() > 1 - NEARLY_ALL:
            continue
        for times in TIMES:
            share = float((counts % times == 0).mean())
            if share >= NEARLY_ALL and _surprise(share, 1 / times) * len(counts) >= SURE_OF_ALL:
                return say(
                    STOP,
                    "duplicate_rows",
                    float((counts * (1 - 1 / times)).sum()),
                    f"Nearly all different {which} ({100 * share:.3g} % of {len(counts):,}) stand in the log {times} "
                    f"times, or a multiple of it.",
                    "They were written more than once, so intervals are too narrow"
                    + (", and rewards are too frequent." if which != "rows" else "."),
                    "Remove the copies.",
                )
    return None


def _surprise(share: float, chance: float) -> float:
    """Return Chernoff's exponent: so many rows have such a share, or more, with probability exp(-rows * exponent)."""
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * math.log(share / chance) + rest


def rows_in_a_row(view: View) -> Finding | None:
    found = view.tally.repeats
    return of_copies(found.pairs, found.same, found.expected, found.variance)


def recurring_rows(view: View) -> Finding:
    """Rows that recur are implausible if the same context, coming again, should often have had another action.

    An event with the context of an earlier row takes another action than that row with probability 1 - p. So, beside a
    context's most frequent row, which repeats itself, (repeats) (1 - p) other rows or more are expected.
    """
    copies = view.tally.copies
    repeats = int((copies.counts - 1).sum())
    part = "" if not copies.bits else f" (in a sample of 1 in {2**copies.bits:,} contexts)"
    if not repeats:
        return say(OK, "duplicate_rows", 0, f"No row repeats an earlier one{part}.")
    order = np.lexsort((copies.hashes, copies.counts, copies.sampled))  # by context; its most frequent row is the last
    context, counts = copies.sampled[order], copies.counts[order]
    first = np.flatnonzero(np.concatenate([[True], context[1:] != context[:-1]]))
    last = np.append(first[1:], len(context)) - 1
    expected = float((counts[last] - 1) @ copies.weights[order][last])
    others = int((np.add.reduceat(counts, first) - counts[last]).sum())
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
    return say(OK, "duplicate_rows", repeats, f"{rows_of(repeats, 'repeat')} an earlier row{part}, as contexts recur.")


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


def repeated_ids(view: View) -> Finding | None:
    """Ids that come again, in a column without a role: its rows may depend on each other."""
    each = []
    for name, ids in view.tally.users.items():
        if len(ids.counts):
            each.append(IdColumn(name, int(ids.counts.sum()), len(ids.counts), int(ids.counts.max())))
    again = sorted((column for column in each if column.repeat), key=lambda column: column.different)
    if again:
        return say(LOOK, "repeated_ids", again[0].rows / again[0].different, again[0].message)
    return say(OK, "repeated_ids", 1, "No id in a column without a role repeats often.") if each else None
