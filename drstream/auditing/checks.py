"""The checks of an audit: each reads the sums of the pass and returns a finding. `CHECKS` at the end lists them.

Tests that lead to "stop" hold for any log whose propensities are right, however many rows it has, however rare an
action is, and also if the logging policy learned. They bet against the log (Waudby-Smith and Ramdas 2024): if y >= -1
and E[y | past] <= 0, the product of 1 + λ y is at least 1/α with probability at most α. `evidence` bounds its logarithm
from below by sums of y and y², for many λ at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.auditing.tally import DISTINCT, Tally
from drstream.auditing.times import SUMS, Clock
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.types import Floats

ALPHA = 0.0005  # chance of a false alarm, for each check
STAKES = 2.0 ** -np.arange(1.0, 31.0)  # λ
MANY_BAD = 0.01  # share of bad rows that is a "stop"
ROUND_VALUES = {2: 15, 3: 100}  # so many different propensities, all of so few digits, are no design but rounded
ROUND_SHARE = 0.99
SURE_SHARE = 0.5  # share of rows with p = 1 that is a "look"
ONE_EVENT = 0.25  # share of one event in the sum of all 1/p that is a "look"
LEFT_OVER = 0.02  # of the probability, beside as many actions of the constant p as fit: more is not rounding
REPEATS = 20.0  # so many rows with a context that came before should have another action


@dataclass(frozen=True)
class View:
    """What checks look at."""

    tally: Tally
    labels: Sequence[Any]
    labels_given: bool  # else they were found in the log
    with_propensities: bool
    with_context: bool
    event_id: str | None
    clock: Clock | None
    typical_reward: float

    @property
    def n(self) -> int:
        """Number of events that were not bad."""
        return self.tally.good

    @property
    def propensities(self) -> bool:
        """Whether there is any propensity to check."""
        return self.with_propensities and self.n > 0

    @cached_property
    def actions(self) -> dict[str, Floats]:
        """Statistics of 1{a}/p by action."""
        sums = self.tally.inverses
        if not self.propensities:
            nothing = np.full(len(self.labels), np.nan)
            return {"mean_inverse": nothing, "stderr": nothing, "z": nothing}
        with np.errstate(all="ignore"):
            mean = sums.sums / self.n
            variance = np.maximum(sums.squares - self.n * mean**2, 0) / (self.n - 1)
            stderr = np.sqrt(variance / self.n)
            return {"mean_inverse": mean, "stderr": stderr, "z": (mean - 1) / stderr}


def evidence(total: Any, squares: Any, lost: Any = 0) -> Any:
    """Return a lower bound of the logarithm of the mean, over all stakes λ, of the product of 1 + λ y.

    total and squares are the sums of y and y². If `lost` is given, it is the number of other events, whose y is -1, and
    all y of the sums are at least 0, for which the bound is tighter.
    """
    result = np.full(np.shape(total), -np.inf)
    with np.errstate(all="ignore"):
        for stake in STAKES:
            if np.ndim(lost):  # log(1 + y) >= y - y²/2 for y >= 0
                bound = lost * math.log1p(-stake) + stake * total - stake**2 / 2 * squares
            else:  # log(1 + z) >= z - z² / (2 (1 - λ)) for z >= -λ
                bound = stake * total - stake**2 / (2 * (1 - stake)) * squares
            result = np.logaddexp(result, bound)
    return np.where(np.isnan(result), -np.inf, result) - math.log(len(STAKES))


def _say(level: str, check: str, value: float, *sentences: str) -> Finding:
    return Finding(level, check, None, float(value), " ".join(sentences))


def _rows(count: int, verb: str = "") -> str:
    """Return "1 row has" or "2 rows have", as the plural of the verb asks for."""
    one = {"have": "has", "are": "is", "repeat": "repeats"}.get(verb, "")
    return f"{count:,} row{'s' * (count != 1)} {verb if count != 1 else one}".rstrip()


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def bad_values(view: View) -> Finding:
    tally = view.tally
    if not tally.bad:
        return _say(OK, "bad_values", 0, "No row has a bad value.")
    share = 1 - view.n / tally.rows
    each = "; ".join(
        f"{_rows(bad.count)}: {reason}, first {bad.first.value!r} at {bad.first}" for reason, bad in tally.bad.items()
    )
    return _say(
        STOP if share >= MANY_BAD else LOOK,
        "bad_values",
        share,
        f"{_percent(share)} of the rows have a bad value ({each}).",
        "Such rows cannot be used, and leaving them out can bias an estimate.",
        'Repair what writes the log, or leave them out knowingly, with on_bad_row "skip".',
    )


def no_propensities(view: View) -> Finding | None:
    if view.with_propensities:
        return None
    return _say(
        LOOK,
        "no_propensities",
        math.nan,
        "The log was opened without propensities.",
        "So nothing about how actions were chosen could be checked.",
        "Name the column of propensities, if there is one.",
    )


def exploration(view: View) -> Finding | None:
    if not view.propensities:
        return None
    share = view.tally.propensities.counts[0] / view.n
    if share == 1 and len(view.labels) > 1:
        return _say(
            STOP,
            "exploration",
            share,
            "All propensities are 1.",
            "Either the logging policy explored nothing, or its probabilities were not recorded.",
            "Log the probability with which each action was drawn.",
        )
    if share >= SURE_SHARE and len(view.labels) > 1:
        return _say(
            LOOK,
            "exploration",
            share,
            f"The propensity is 1 in {_percent(share)} of the rows.",
            "These rows tell nothing about other actions.",
            "Check that their actions really were chosen without chance.",
        )
    return _say(OK, "exploration", share, f"The propensity is 1 in {_percent(share)} of the rows.")


def inverse_propensity(view: View) -> Finding | None:
    """For each action, E[1{a}/p] is the share of the events in which it was possible: at most 1."""
    if not view.propensities:
        return None
    sums, found, n = view.tally.inverses, view.actions, view.n
    mean, z = found["mean_inverse"], found["z"]
    limit = math.log(len(mean) / ALPHA)
    sure = evidence(*_beyond_one(sums.counts, sums.sums, sums.squares), n - sums.counts)
    high = np.flatnonzero(sure >= limit)
    if len(high):
        worst = int(high[np.argmax(sure[high])])
        return _say(
            STOP,
            "inverse_propensity",
            z[worst],
            f"The mean of 1{{a}}/p is {mean[worst]:.4g} for action {view.labels[worst]!r} (z = {z[worst]:.3g})"
            f"{_more(len(high) - 1)}, but it cannot be above 1.",
            "The action was taken more often than its propensities say, so they are wrong or belong to other rows.",
            "Compare how they were computed with how actions were drawn; look for a constant or shifted column.",
        )
    with np.errstate(all="ignore"):
        variance = np.maximum(sums.squares / n - mean**2, 0)
        noise = _chance(variance, float(sums.largest.max()), limit, n)  # of all: a rare p of this action may be unseen
        low = np.flatnonzero((1 - mean > noise) & (sums.counts > 0))
    if len(low):
        worst = int(low[np.argmin(mean[low])])
        return _say(
            LOOK,
            "inverse_propensity",
            z[worst],
            f"The mean of 1{{a}}/p is {mean[worst]:.4g} for action {view.labels[worst]!r} (z = {z[worst]:.3g})"
            f"{_more(len(low) - 1)}; it is 1 for an action that every event could have shown.",
            "Either the action was not possible, or next to impossible, in some events, or its propensities are too "
            "large.",
            "If all actions were always possible, do not trust the propensities.",
        )
    at = np.flatnonzero(sums.counts)
    worst = int(at[np.argmax(np.nan_to_num(np.abs(z[at]), nan=0.0, posinf=0.0))])
    return _say(
        OK,
        "inverse_propensity",
        z[worst],
        f"The mean of 1{{a}}/p agrees with 1 for each action; the largest |z| is {abs(z[worst]):.3g}.",
    )


def _chance(variance: Any, largest: float, limit: float, n: int) -> Any:
    """Return how far a mean of numbers >= 0 may fall below its expectation by chance, as in Bernstein's inequality.

    Variance and largest number are those of the sample, so events much rarer than all that were seen can deceive it. It
    decides on a "look" only.
    """
    return np.sqrt(4 * variance * limit / n) + largest * limit / n


def _beyond_one(counts: Any, sums: Any, squares: Any) -> tuple[Any, Any]:
    """Return the sums of 1/p - 1 and of its square."""
    with np.errstate(all="ignore"):
        return sums - counts, np.maximum(squares - 2 * sums + counts, 0)


def _more(others: int) -> str:
    return f" and out of bounds for {others} more" if others else ""


def guessed_action(view: View) -> Finding | None:
    """The same for an action that is guessed from the context: a p that belongs to another context is found here."""
    found = view.tally.guessed
    if not found.rows:
        return None
    mean = found.inverse / found.rows
    sums = np.array([found.hits, found.inverse, found.squares]).reshape(3, 1)
    sure = evidence(*_beyond_one(*sums), np.array([found.rows - found.hits]))
    if sure[0] >= math.log(1 / ALPHA):
        return _say(
            STOP,
            "guessed_action",
            mean,
            f"The mean of 1{{a}}/p is {mean:.4g} for an action guessed from the context, but it cannot be above 1.",
            "The propensities do not follow the contexts as the actions do, so they are wrong or belong to other rows.",
            "Check that each row has the propensity of its own event; look for a constant or shifted column.",
        )
    message = (
        f"The mean of 1{{a}}/p is {mean:.4g} for an action guessed from the context, not above 1 by more than chance."
    )
    return _say(OK, "guessed_action", mean, message)


def inverse_over_all(view: View) -> Finding | None:
    """The mean of 1/p is the mean number of possible actions."""
    if not view.propensities:
        return None
    sums, n, actions = view.tally.inverses, view.n, len(view.labels)
    with np.errstate(all="ignore"):
        total, squares = float(sums.sums.sum()), float(sums.squares.sum())
        mean = total / n
        y, y2 = total / actions - n, squares / actions**2 - 2 * total / actions + n
        variance = max(squares / n - mean * mean, 0)
        limit = math.log(1 / ALPHA)
        noise = float(_chance(variance, float(sums.largest.max()), limit, n))
        logged = int((sums.counts > 0).sum())
    if evidence(y, max(y2, 0)) >= limit:
        level, cause = STOP, "the propensities are too small"
        if not view.labels_given:
            level, cause = LOOK, "actions that were possible were never logged, or the propensities are too small"
        return _say(
            level,
            "inverse_over_all",
            mean,
            f"The mean of 1/p is {mean:.4g}, above the number of actions, {actions}.",
            f"So {cause}.",
            "Give all possible actions when you open the log, and check the propensities.",
        )
    if logged - mean > noise:
        return _say(
            LOOK,
            "inverse_over_all",
            mean,
            f"The mean of 1/p is {mean:.4g}; it is {logged}, the number of logged actions, if each is always possible.",
            "Either fewer actions were possible in some events, or propensities are too large.",
            "If all actions were always possible, do not trust the propensities.",
        )
    return _say(
        OK, "inverse_over_all", mean, f"The mean of 1/p is {mean:.4g}, which agrees with the {logged} logged actions."
    )


def large_propensities(view: View) -> Finding | None:
    """Let h = 1 - p for p > 1/2, p - 1 for p < 1/2, and 0 else. Then E[h] <= 0, whatever the probabilities q are.

    At most one q is above 1/2. It contributes q (1 - q). The others add up to 1 - q < 1/2 and each is at most that, so
    they contribute -Σ q' (1 - q') <= -(1 - q) q.
    """
    if not view.propensities:
        return None
    total, squares = map(float, view.tally.propensities.excess)
    mean = total / view.n
    if float(evidence(total, squares)) >= math.log(1 / ALPHA):
        return _say(
            STOP,
            "large_propensities",
            mean,
            "There are too many propensities above 1/2 for the number of those below.",
            "If an action has probability 0.7, others must be taken in 30 % of such events; so propensities are too "
            "large, or rows with rarer actions are missing.",
            "Check how propensities were computed and which rows were left out.",
        )
    return _say(OK, "large_propensities", mean, "Propensities above 1/2 are as frequent as those below allow.")


def distinct_propensities(view: View) -> Finding | None:
    if not view.propensities:
        return None
    distinct = view.tally.propensities.distinct
    if distinct is None:
        return _say(OK, "distinct_propensities", math.nan, f"There are more than {DISTINCT:,} different propensities.")
    values = distinct.view(np.float64)
    if len(values) == 1:
        p = float(values[0])
        fits = math.floor(1 / p * (1 + 1e-6)) if p > 1e-9 else 1
        left = 1 - p * fits
        if left > LEFT_OVER and -view.n * math.log1p(-left) > math.log(1 / ALPHA):
            return _say(
                STOP,
                "distinct_propensities",
                1,
                f"Every propensity is {p:.6g}.",
                f"If {fits} action{'s have' if fits > 1 else ' has'} this probability, others have the rest, so other "
                "propensities must occur.",
                "Log the probability with which each action was drawn.",
            )
        return _say(OK, "distinct_propensities", 1, f"Every propensity is {p:.6g}, as if actions were drawn evenly.")
    return _say(OK, "distinct_propensities", len(values), f"There are {len(values):,} different propensities.")


def rounded_propensities(view: View) -> Finding | None:
    if not view.propensities:
        return None
    found = view.tally.propensities
    distinct = math.inf if found.distinct is None else len(found.distinct)
    shares = {digits: found.counts[digits - 1] / view.n for digits in ROUND_VALUES}
    for digits, share in shares.items():
        if share >= ROUND_SHARE and distinct >= ROUND_VALUES[digits]:
            assert found.smallest is not None
            error = 0.5 * 10.0**-digits / found.smallest.value
            return _say(
                LOOK,
                "rounded_propensities",
                share,
                f"{_percent(share)} of the propensities have at most {digits} digits, with {distinct:,.0f} different "
                "values.",
                f"They were rounded, which changes a weight by up to {_percent(error)}.",
                "Log propensities with all their digits.",
            )
    return _say(
        OK,
        "rounded_propensities",
        shares[2],
        f"{_percent(shares[2])} of the propensities have at most 2 digits, which is no sign of rounding here.",
    )


def smallest_propensity(view: View) -> Finding | None:
    spot = view.tally.propensities.smallest
    if not view.propensities or spot is None:
        return None
    with np.errstate(all="ignore"):
        share = float(1 / spot.value / view.tally.inverses.sums.sum()) if spot.value else math.nan
    seen = f"The smallest propensity is {spot.value:.6g}, at {spot}."
    if not share <= ONE_EVENT and view.n >= 2 / ONE_EVENT:
        return _say(
            LOOK,
            "smallest_propensity",
            spot.value,
            seen,
            f"Its inverse is {_percent(share)} of the sum over all events, so this event can decide an estimate.",
            "Check that event, and cap weights in estimates.",
        )
    return _say(OK, "smallest_propensity", spot.value, seen)


def unlogged_actions(view: View) -> Finding | None:
    if not view.n:
        return None
    missing = np.flatnonzero(view.tally.inverses.counts == 0)
    if not len(missing):
        return _say(OK, "unlogged_actions", 0, f"Each of the {len(view.labels):,} actions was logged.")
    be = "were" if len(missing) > 1 else "was"
    shown = ", ".join(repr(view.labels[i]) for i in missing[:5]) + (", ..." if len(missing) > 5 else "")
    return _say(
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
        return _say(OK, "duplicate_rows", math.nan, message)
    order = np.lexsort((copies.hashes, copies.counts, copies.sampled))  # by context; its most frequent row is the last
    context, counts = copies.sampled[order], copies.counts[order]
    first = np.flatnonzero(np.concatenate([[True], context[1:] != context[:-1]]))
    last = np.append(first[1:], len(context)) - 1
    repeats = int((copies.counts - 1).sum())
    expected = float((counts[last] - 1) @ copies.weights[order][last])
    others = int((np.add.reduceat(counts, first) - counts[last]).sum())
    part = "" if not copies.bits else f" (in a sample of 1 in {2**copies.bits:,} contexts)"
    if expected >= REPEATS and others < expected / 4:
        return _say(
            LOOK,
            "duplicate_rows",
            repeats,
            f"{_rows(repeats, 'repeat')} an earlier row{part}, but only {others:,} have an earlier row's context with "
            "another action or reward.",
            "Events were logged more than once, or one draw of an action served several events.",
            "Remove the copies, or keep such events together with cluster=.",
        )
    message = f"{_rows(repeats, 'repeat')} an earlier row{part}" + (", as contexts recur." if repeats else ".")
    return _say(OK, "duplicate_rows", repeats, message)


def duplicate_event_ids(view: View) -> Finding | None:
    if view.event_id is None:
        return None
    ids, missing = view.tally.ids, view.tally.ids_missing
    repeats = int((ids.counts - 1).sum())
    part = "" if not ids.bits else f" (in a sample of 1 in {2**ids.bits:,} ids)"
    if repeats:
        return _say(
            STOP,
            "duplicate_event_ids",
            repeats,
            f"{_rows(repeats, 'have')} an event id that an earlier row has{part}.",
            "Their events count more than once, so estimates are biased and intervals too narrow.",
            "Keep one row of each event.",
        )
    if missing:
        return _say(
            LOOK,
            "duplicate_event_ids",
            repeats,
            f"{_rows(missing, 'have')} no event id.",
            "They may be copies of other rows.",
            "Check what writes the log.",
        )
    return _say(OK, "duplicate_event_ids", 0, f"All event ids are different{part}.")


def time_order(view: View) -> Finding | None:
    if view.clock is None:
        return None
    times, name = view.tally.times, view.clock.column
    if times.missing:
        return _say(
            LOOK,
            "time_order",
            times.missing,
            f"{_rows(times.missing, 'have')} no time in {name!r}.",
            "They are in no block of time.",
            "Check what writes the log.",
        )
    if times.backwards:
        return _say(
            LOOK,
            "time_order",
            times.backwards,
            f"{_rows(times.backwards, 'are')} earlier than the row before.",
            "A replay takes events in the order of the log, which is not that of time.",
            "Sort the log by time before a replay; for drs.evaluate the order does not matter.",
        )
    return _say(OK, "time_order", 0, "Rows are in the order of time.")


@dataclass(frozen=True)
class Block:
    """A block of time, and how it compares with all others."""

    start: Any
    end: Any
    rows: int
    bad_share: float
    reward: float
    mean_inverse: float
    smallest_propensity: float
    z: dict[str, float]
    drifts: frozenset[str]  # names of what differs from the rest by more than chance allows


def _blocks(view: View) -> list[Block]:
    if view.clock is None:
        return []
    clock, found = view.clock, view.tally.times.blocks()
    sums = np.array([block[3] for block in found]).reshape(len(found), len(SUMS))
    limit = math.log(2 * 3 * max(len(found), 1) / ALPHA)
    tally = view.tally
    ranges = {"reward": tally.rewards.high - tally.rewards.low, "mean_inverse": float(tally.inverses.largest.max())}
    bad = sums[:, 0] - sums[:, 1]
    values = {
        "bad_share": _compare(sums[:, 0], bad, bad, 1.0, limit),
        "reward": _compare(sums[:, 1], sums[:, 2], sums[:, 3], ranges["reward"], limit),
        "mean_inverse": _compare(sums[:, 1], sums[:, 4], sums[:, 5], ranges["mean_inverse"], limit),
    }
    if not view.with_propensities:
        values["mean_inverse"] = np.full((2, len(found)), math.nan), np.zeros(len(found), bool)
    result = []
    for i, (start, end, smallest, _) in enumerate(found):
        result.append(
            Block(
                clock.shown(start),
                clock.shown(end),
                int(sums[i, 0]),
                float(values["bad_share"][0][0, i]),
                float(values["reward"][0][0, i]) + view.typical_reward,
                float(values["mean_inverse"][0][0, i]),
                smallest if math.isfinite(smallest) else math.nan,
                {name: float(numbers[1, i]) for name, (numbers, _) in values.items()},
                frozenset(name for name, (_, drifts) in values.items() if drifts[i]),
            )
        )
    return result


def _compare(rows: Floats, sums: Floats, squares: Floats, span: float, limit: float) -> tuple[Floats, Any]:
    """Return the mean of each block with its z against the others, and whether Bernstein's bound excludes chance."""
    with np.errstate(all="ignore"):
        n = rows.sum()
        mean, rest = sums / rows, (sums.sum() - sums) / (n - rows)
        variance = max(float(squares.sum() / n - (sums.sum() / n) ** 2), 0.0)
        scale = 1 / rows + 1 / (n - rows)
        z = (mean - rest) / np.sqrt(variance * scale)
        drifts = np.abs(mean - rest) > np.sqrt(2 * variance * limit * scale) + span * limit * scale / 3
    return np.array([mean, z]), drifts


DRIFTS = {
    "reward": ("mean reward", "The world or the logging policy changed", "Evaluate such times apart"),
    "mean_inverse": (
        "mean of 1/p",
        "The number of possible actions, or how propensities are computed, changed",
        "Check the propensities of such times, and evaluate them apart",
    ),
    "bad_share": ("share of bad rows", "What writes the log changed", "Check the bad rows of such times"),
}


def drift(name: str) -> Callable[[View], Finding | None]:
    """Return the check that no block of time differs from the others."""

    def check(view: View) -> Finding | None:
        if view.clock is None or (name == "mean_inverse" and not view.propensities):
            return None
        blocks = _blocks(view)
        what, means, do = DRIFTS[name]
        far = [block for block in blocks if name in block.drifts]
        if not far:
            return _say(OK, f"drift_{name}", 0, f"The {what} is alike in {len(blocks)} blocks of time.")
        worst = max(far, key=lambda block: abs(block.z[name]))
        several = f" and differs in {len(far) - 1} more of {len(blocks)} blocks" if len(far) > 1 else ""
        return _say(
            LOOK,
            f"drift_{name}",
            worst.z[name],
            f"The {what} from {worst.start} to {worst.end} is {getattr(worst, name):.4g} (z = {worst.z[name]:.3g} "
            f"against all other times){several}.",
            f"{means}.",
            f"{do}.",
        )

    return check


CHECKS: tuple[Callable[[View], Finding | None], ...] = (
    bad_values,
    no_propensities,
    exploration,
    inverse_propensity,
    guessed_action,
    inverse_over_all,
    large_propensities,
    distinct_propensities,
    rounded_propensities,
    smallest_propensity,
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
    """Return a row for each action: count, share, and the mean of 1{a}/p with its standard error and z against 1."""
    counts = view.tally.inverses.counts
    share = counts / view.n if view.n else np.full(len(counts), np.nan)
    columns = {"action": pa.array(list(view.labels)), "count": counts, "share": share, **view.actions}
    return pa.table(columns)


def blocks(view: View) -> pa.Table | None:
    """Return a row for each block of time, in order; None without a column of times."""
    if view.clock is None:
        return None
    rows = []
    for block in _blocks(view):
        shown = {"start": block.start, "end": block.end, "rows": block.rows}
        for name in ("bad_share", "reward", "mean_inverse"):
            shown |= {name: getattr(block, name), f"{name}_z": block.z[name]}
        rows.append({**shown, "smallest_propensity": block.smallest_propensity})
    return pa.Table.from_pylist(rows)
