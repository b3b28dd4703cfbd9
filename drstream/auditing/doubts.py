"""Checks of contexts and rewards: outcomes, numbers for missing values, rewards of other rows, what a user expects."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from drstream.auditing.columns import sentinels, suspects
from drstream.auditing.shift import shifted
from drstream.auditing.view import View, percent, rows_of, say
from drstream.findings import LOOK, OK, STOP, Finding
from drstream.log.doubts import COPIES, of_outcomes, of_sentinels
from drstream.log.outcomes import ONE

SAME = 0.001  # share by which a count may differ from the one that is expected
NEAR = 0.01
ROUNDED = 0.01  # share by which a mean may differ, as people round what they expect,
FAR = 0.05  # and by which it may not


def outcomes(view: View) -> Finding | None:
    """Over all rows, also of columns that the first ones say nothing about."""
    if not view.n:
        return None
    found = suspects(view.columns, view.tally.columns, view.columns.by_action and _same_for_all(view))
    return of_outcomes(found, view.roles) or say(OK, "outcomes", 0, "No context looks like an outcome.")


def _same_for_all(view: View) -> bool:
    """Whether each action had the same propensity in all rows."""
    sums = view.tally.inverses
    seen = sums.counts > 0
    same = (sums.largest[seen] <= sums.least[seen] * (1 + 1e-6)).all()
    return bool(same and abs((1 / sums.largest[seen]).sum() - 1) <= ONE)


def special_numbers(view: View) -> Finding | None:
    if not view.n:
        return None
    reward = view.roles.reward
    found = sentinels(view.columns, view.tally.columns, reward)
    fine = "No number seems to stand for a missing value."
    return of_sentinels(found, [reward]) or say(OK, "sentinels", 0, fine)


def shifted_rewards(view: View) -> Finding | None:
    found = None if view.tally.lags is None else shifted(view.tally.lags, learns=not view.columns.by_action)
    if found is None:
        return None
    if not found.shifted:
        message = "No sign that rewards belong to the row before, or to the next one."
        return say(OK, "shifted_rewards", found.z, message)
    other = "before" if found.lag < 0 else "after"
    also = ", or contexts or the logging policy know what the event before earned" if found.lag < 0 else ""
    return say(
        LOOK if also else STOP,
        "shifted_rewards",
        found.z,
        f"Contexts and actions tell more about the reward of the row {other} (z = {found.z:.3g}) than about their own "
        f"(z = {found.own:.3g}).",
        f"Rewards are shifted by a row{also}.",
        "Join rewards to events by an id, and not by their place.",
    )


def expected_rows(view: View) -> Finding | None:
    if view.known.expected_rows is None:
        return None
    rows, wanted = view.tally.rows, view.known.expected_rows
    share = abs(rows - wanted) / max(wanted, 1)
    if share <= SAME:
        return say(OK, "expected_rows", share, f"The log has the {rows_of(wanted)} that it should have, up to 0.1 %.")
    return say(
        LOOK if share <= NEAR else STOP,
        "expected_rows",
        share,
        f"The log has {rows_of(rows)}, and it should have {wanted:,}: {percent(share)} "
        f"{'too many' if rows > wanted else 'are missing'}.",
        "If events without a reward are those that are missing, all estimates are too high."
        if rows < wanted
        else "If events were written more than once, intervals are too narrow.",
        "Compare what writes the log with what counted the events.",
    )


def expected_reward(view: View) -> Finding | None:
    if view.known.expected_reward is None or not view.n:
        return None
    wanted, sign = view.known.expected_reward, -1 if view.roles.negated else 1
    mean = sign * (view.typical_reward + view.tally.rewards.total / view.n)
    share = abs(mean - wanted) / abs(wanted) if wanted else (0.0 if mean == wanted else math.inf)
    told = f"The mean of {view.roles.reward!r} is {mean:.6g}"
    if share <= ROUNDED:
        return say(OK, "expected_reward", share, f"{told}, and it should be {wanted:.6g}: the same up to 1 %.")
    return say(
        LOOK if share <= FAR else STOP,
        "expected_reward",
        share,
        f"{told}, and it should be {wanted:.6g}: {percent(share)} {'more' if mean > wanted else 'less'}.",
        "Events are missing, or rewards were joined wrongly: estimates are wrong by as much."
        if np.isfinite(share)
        else "Rewards were joined wrongly.",
        "Compare how rewards were joined with what counted them.",
    )


CHECKS: tuple[Callable[[View], Finding | None], ...] = (
    outcomes,
    special_numbers,
    shifted_rewards,
    expected_rows,
    expected_reward,
)
TOLD = {"outcomes", "sentinels", COPIES}  # these tell of all rows what `log.doubts` says of the first ones
