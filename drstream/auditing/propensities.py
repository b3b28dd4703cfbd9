"""Checks of propensities: whether they can be right, whether they were rounded, and how small they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from drstream.auditing.tally import DISTINCT
from drstream.auditing.view import ALPHA, View, evidence, percent, say
from drstream.findings import LOOK, OK, STOP, Finding

ROUND_VALUES = {2: 15, 3: 100}  # so many different propensities, all of so few digits, are no design but rounded
ROUND_SHARE = 0.99
SURE_SHARE = 0.5  # share of rows with p = 1 that is a "look"
ONE_EVENT = 0.25  # share of one event in the sum of all 1/p that is a "look"
LEFT_OVER = 0.02  # of the probability, beside as many actions of the constant p as fit: more is not rounding


def exploration(view: View) -> Finding | None:
    if not view.propensities:
        return None
    share = view.tally.propensities.counts[0] / view.n
    if share == 1 and view.with_choice:
        return say(
            STOP,
            "exploration",
            share,
            "All propensities are 1.",
            "Either the logging policy explored nothing, or its probabilities were not recorded.",
            "Log the probability with which each action was drawn.",
        )
    if share >= SURE_SHARE and view.with_choice:
        return say(
            LOOK,
            "exploration",
            share,
            f"The propensity is 1 in {percent(share)} of the rows.",
            "These rows tell nothing about other actions.",
            "Check that their actions really were chosen without chance.",
        )
    return say(OK, "exploration", share, f"The propensity is 1 in {percent(share)} of the rows.")


def inverse_propensity(view: View) -> Finding | None:
    """For each action, E[1{a}/p] is the share of the events in which it was possible: at most 1."""
    if not view.propensities or view.candidates:
        return None
    sums, found, n = view.tally.inverses, view.actions, view.n
    mean, z = found["mean_inverse"], found["z"]
    limit = math.log(len(mean) / ALPHA)
    sure = evidence(*_beyond_one(sums.counts, sums.sums, sums.squares), n - sums.counts)
    high = np.flatnonzero(sure >= limit)
    if len(high):
        worst = int(high[np.argmax(sure[high])])
        return say(
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
        return say(
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
    return say(
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
        return say(
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
    return say(OK, "guessed_action", mean, message)


def inverse_over_all(view: View) -> Finding | None:
    """The mean of 1/p is the mean number of possible actions."""
    if not view.propensities or view.candidates:
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
        return say(
            level,
            "inverse_over_all",
            mean,
            f"The mean of 1/p is {mean:.4g}, above the number of actions, {actions}.",
            f"So {cause}.",
            "Give all possible actions when you open the log, and check the propensities.",
        )
    if logged - mean > noise:
        return say(
            LOOK,
            "inverse_over_all",
            mean,
            f"The mean of 1/p is {mean:.4g}; it is {logged}, the number of logged actions, if each is always possible.",
            "Either fewer actions were possible in some events, or propensities are too large.",
            "If all actions were always possible, do not trust the propensities.",
        )
    return say(
        OK, "inverse_over_all", mean, f"The mean of 1/p is {mean:.4g}, which agrees with the {logged} logged actions."
    )


def inverse_over_candidates(view: View) -> Finding | None:
    """With m candidates, the mean of (1/m) / p is the share of them that were possible: at most 1."""
    if not view.propensities or not view.candidates:
        return None
    sums, n = view.tally.offers, view.n
    with np.errstate(all="ignore"):
        mean = sums.inverse / n
        y, y2 = sums.inverse - n, max(sums.squares - 2 * sums.inverse + n, 0)
        limit = math.log(1 / ALPHA)
        noise = float(_chance(max(sums.squares / n - mean * mean, 0), sums.largest, limit, n))
    if evidence(y, y2) >= limit:
        return say(
            STOP,
            "inverse_over_candidates",
            mean,
            f"The mean of 1 / (p m) is {mean:.4g}, with m the number of candidates, but it cannot be above 1.",
            "So propensities are too small, or lists lack candidates that were possible.",
            "Check how propensities were computed, and that lists have all candidates.",
        )
    if 1 - mean > noise:
        return say(
            LOOK,
            "inverse_over_candidates",
            mean,
            f"The mean of 1 / (p m) is {mean:.4g}, with m the number of candidates; it is 1 if each was possible.",
            "Either some candidates were not possible, or next to impossible, or propensities are too large.",
            "If all candidates were always possible, do not trust the propensities.",
        )
    text = f"The mean of 1 / (p m) is {mean:.4g}, with m the number of candidates, which agrees with 1."
    return say(OK, "inverse_over_candidates", mean, text)


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
        return say(
            STOP,
            "large_propensities",
            mean,
            "There are too many propensities above 1/2 for the number of those below.",
            "If an action has probability 0.7, others must be taken in 30 % of such events; so propensities are too "
            "large, or rows with rarer actions are missing.",
            "Check how propensities were computed and which rows were left out.",
        )
    return say(OK, "large_propensities", mean, "Propensities above 1/2 are as frequent as those below allow.")


def distinct_propensities(view: View) -> Finding | None:
    if not view.propensities:
        return None
    distinct = view.tally.propensities.distinct
    if distinct is None:
        return say(OK, "distinct_propensities", math.nan, f"There are more than {DISTINCT:,} different propensities.")
    values = distinct.view(np.float64)
    if len(values) == 1:
        p = float(values[0])
        fits = math.floor(1 / p * (1 + 1e-6)) if p > 1e-9 else 1
        left = 1 - p * fits
        if left > LEFT_OVER and -view.n * math.log1p(-left) > math.log(1 / ALPHA):
            return say(
                STOP,
                "distinct_propensities",
                1,
                f"Every propensity is {p:.6g}.",
                f"If {fits} action{'s have' if fits > 1 else ' has'} this probability, others have the rest, so other "
                "propensities must occur.",
                "Log the probability with which each action was drawn.",
            )
        return say(OK, "distinct_propensities", 1, f"Every propensity is {p:.6g}, as if actions were drawn evenly.")
    return say(OK, "distinct_propensities", len(values), f"There are {len(values):,} different propensities.")


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
            return say(
                LOOK,
                "rounded_propensities",
                share,
                f"{percent(share)} of the propensities have at most {digits} digits, with {distinct:,.0f} different "
                "values.",
                f"They were rounded, which changes a weight by up to {percent(error)}.",
                "Log propensities with all their digits.",
            )
    return say(
        OK,
        "rounded_propensities",
        shares[2],
        f"{percent(shares[2])} of the propensities have at most 2 digits, which is no sign of rounding here.",
    )


def smallest_propensity(view: View) -> Finding | None:
    spot = view.tally.propensities.smallest
    if not view.propensities or spot is None:
        return None
    with np.errstate(all="ignore"):
        share = float(1 / spot.value / view.tally.inverses.sums.sum()) if spot.value else math.nan
    seen = f"The smallest propensity is {spot.value:.6g}, at {spot}."
    if not share <= ONE_EVENT and view.n >= 2 / ONE_EVENT:
        return say(
            LOOK,
            "smallest_propensity",
            spot.value,
            seen,
            f"Its inverse is {percent(share)} of the sum over all events, so this event can decide an estimate.",
            "Check that event, and cap weights in estimates.",
        )
    return say(OK, "smallest_propensity", spot.value, seen)
