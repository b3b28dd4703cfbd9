"""What the first rows of a log, and its labels, give reason to doubt: findings that an evaluation shows, too."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drstream.findings import LOOK, STOP, Finding
from drstream.log.columns import floats_or_nan
from drstream.log.facts import SourceFacts
from drstream.log.outcomes import BY_ACTION, Suspects, can_look, find_outcomes, rows_of
from drstream.log.schema import UNIFORM, Roles, is_number
from drstream.types import Bools, Floats

# Numbers that stand for something else, mostly for a missing value; among rewards, -99 may be a refund
SENTINELS = np.array([-99, -999, -9999, -99999, -999999, -(2.0**31), 9999, 99999, 999999, 2.0**31 - 1])
OF_REWARDS = SENTINELS[1:]
OF_CLICKS = (-9.0, -99.0)  # among rewards that are at most 1
CODE_NAMES = re.compile(
    r"(.*[_\-. ])?(code|zip|zip_?code|postcode|postal_?code|category|type|kind|class|country|region|city|state|"
    r"channel|brand|device|browser|os|gender|sex|language)"
)
FEWEST_CODES, MOST_CODES = 3, 50
APART = 20  # times as far apart as they are many: numbers that are codes,
ROUND = 5  # unless they are as far apart as prices, e.g. 999, 1999, 2999
COPIES = "duplicate_rows"
FEWEST_PAIRS = 20
SURE = 6.0  # standard deviations
IN_A_ROW = 0.05  # share of the rows with the context of the row before that are copies
SHOWN = 6


def doubts(facts: SourceFacts, roles: Roles, labels: Sequence[Any] | None, labels_given: bool) -> list[Finding]:
    """Return what there is to doubt. The labels are None if they are not known yet."""
    found = [of_outcomes(find_outcomes(facts, roles, roles.context), roles), *_of_numbers(facts, roles)]
    found += [_copies(facts, roles)]
    found += [of_labels(labels, roles) if labels is not None and not labels_given else None]
    return [finding for finding in found if finding is not None]


# Outcomes


def of_outcomes(found: Suspects, roles: Roles) -> Finding | None:
    """Outcomes among the contexts, and outcomes that were left out."""
    if found.differing:
        return _say(
            LOOK,
            "outcomes",
            len(found.differing),
            f"{_names(found.differing)} differ by action, although propensities do not depend on contexts.",
            "Propensities are wrong, or one draw of an action served several events, or these are outcomes.",
            "Compare how actions were drawn with the propensities; rows of one draw are a cluster=.",
        )
    inside = {outcome.column: outcome.why for outcome in found.outcomes}
    outside = {outcome.column: outcome.why for outcome in roles.outcomes}
    if not inside and not outside:
        return None
    sentences = []
    if outside:
        sentences.append(f'context="*" has left out what looks like an outcome: {_reasons(outside)}.')
    if inside:
        sentences.append(f"The context holds what looks like an outcome: {_reasons(inside)}.")
    what = "A model that knows what came after the action explains its effect away, and DM and DR are wrong."
    cure = "Leave such columns out of the context." if inside else "Name them if they were known before the action."
    if BY_ACTION in (*inside.values(), *outside.values()):
        cure = (
            "If a column was known before the action, the propensities are wrong: actions depended on it. Keep it in "
            "the context, and log or fit propensities. If it came later, leave it out."
        )
        return _say(STOP, "outcomes", len(inside) + len(outside), *sentences, what, cure)
    return _say(LOOK, "outcomes", len(inside) + len(outside), *sentences, what, cure)


def _reasons(found: dict[str, str]) -> str:
    return "; ".join(f"{column!r} ({why})" for column, why in found.items())


# Numbers


def _of_numbers(facts: SourceFacts, roles: Roles) -> list[Finding | None]:
    """Codes and sentinels among the first numbers of rewards and contexts."""
    rewards = [name for name in roles.rewards if name not in roles.lists]
    context = [n for n in roles.context if n not in roles.coded] if can_look(roles) else []
    return facts.of(("numbers", *rewards, *context), lambda: _look(facts, rewards, context))


def _look(facts: SourceFacts, rewards: Sequence[str], context: Sequence[str]) -> list[Finding | None]:
    schema = facts.source.schema
    names = [name for name in (*rewards, *context) if is_number(schema.field(name).type)]
    batch = facts.more(names, rows_of(len(names))) if names else None
    if batch is None:
        return []
    values = {name: floats_or_nan(batch.column(name)) for name in names}
    return [of_sentinels(_sentinels(values, rewards), rewards), _codes(values, context)]


def _sentinels(values: dict[str, Floats], rewards: Sequence[str]) -> dict[str, tuple[float, int]]:
    found = {}
    least = min(map(abs, SENTINELS))
    for name, x in values.items():
        if not (np.abs(x) >= least).any():
            continue
        counts = [int((x == v).sum()) for v in SENTINELS]
        mirrored = [int((x == -v).sum()) for v in SENTINELS]
        rest = x[np.isfinite(x) & ~np.isin(x, SENTINELS)]
        if len(rest) and (one := sentinel(counts, mirrored, rest.min(), rest.max(), name in rewards)) is not None:
            found[name] = one
    return found


def sentinel(
    counts: Sequence[int], mirrored: Sequence[int], low: float, high: float, is_reward: bool
) -> tuple[float, int] | None:
    """Return a number that stands for something else, and how often, given the range of all other numbers.

    It repeats, and lies alone: below numbers that are never negative, or farther away than these are spread.
    """
    for value, count, other in zip(SENTINELS, counts, mirrored, strict=True):
        if count < 2 or other or (is_reward and value not in OF_REWARDS):
            continue
        far = max(low - value, value - high) >= max(high - low, 1.0)
        if low <= value <= high or not (far or value < 0 <= low):
            continue
        return float(value), int(count)
    return None


def of_sentinels(found: dict[str, tuple[float, int]], rewards: Sequence[str]) -> Finding | None:
    if not found:
        return None
    each = "; ".join(f"{name!r} is {value:.10g} in {count:,} rows" for name, (value, count) in found.items())
    worst = any(name in rewards for name in found)
    return _say(
        STOP if worst else LOOK,
        "sentinels",
        len(found),
        f"A number that may stand for a missing value is used as a number: {each}.",
        "Leave such rows out with a filter." if worst else "Put nulls in their place, and open the log with missing=.",
    )


def of_extremes(reward: str, low: float, high: float) -> Finding | None:
    """A reward that may stand for a missing value, given the smallest and the largest of all events."""
    found = [value for value in (low, high) if value in OF_REWARDS or (value in OF_CLICKS and high <= 1)]
    if not found:
        return None
    what = f"A reward of {found[0]:.10g} may stand for a missing value, and is used as a number in {reward!r}."
    return _say(STOP, "sentinels", 1, what, "Leave such rows out with a filter.")


def _codes(values: dict[str, Floats], context: Sequence[str]) -> Finding | None:
    found = [name for name in context if looks_like_codes(name, values[name])]
    if not found:
        return None
    return _say(
        LOOK,
        "codes",
        len(found),
        f"{_names(found)} look{'s' * (len(found) == 1)} like codes of categories that are used as numbers.",
        "A linear model then takes a larger code for more of something.",
        f"Open the log with categorical={found!r}.",
    )


def looks_like_codes(name: str, x: Floats) -> bool:
    """Whether numbers are a few integers, each frequent, in a column with such a name, or far apart."""
    x = x[np.isfinite(x)]
    if not len(x) or (x != np.floor(x)).any() or np.abs(x).max() > 2**53:
        return False
    different, counts = np.unique(x, return_counts=True)
    if not FEWEST_CODES <= len(different) <= MOST_CODES:
        return False
    if CODE_NAMES.fullmatch(name.lower()):
        return True
    steps = np.diff(different).astype(np.int64)
    frequent = (counts >= 5).mean() >= 0.9 and different[0] >= 10
    return bool(frequent and math.gcd(*steps.tolist()) < ROUND and steps.sum() >= APART * len(different))


# Copies


def _copies(facts: SourceFacts, roles: Roles) -> Finding | None:
    """Rows that follow a row with the same context, among the first ones."""
    if not can_look(roles) or not roles.context or not roles.action or not roles.with_propensities:
        return None
    if roles.eligible or roles.candidates or roles.constant == UNIFORM:
        return None
    return facts.of(
        ("copies", roles.context, roles.action, roles.propensity, roles.constant), lambda: _pairs(facts, roles)
    )


def _pairs(facts: SourceFacts, roles: Roles) -> Finding | None:
    names = [*roles.context, str(roles.action), *([roles.propensity] if roles.propensity else [])]
    batch = facts.more(names, rows_of(len(names)))
    if batch is None:
        return None
    again = np.logical_and.reduce([_as_before(batch.column(name)) for name in roles.context])
    same = again & _as_before(batch.column(str(roles.action)))
    p = np.full(batch.num_rows, roles.constant, np.float64)
    if roles.propensity is not None:
        p = floats_or_nan(batch.column(roles.propensity))
    p = p[:-1][again]
    if not ((p > 0) & (p <= 1)).all():
        return None
    return of_copies(int(again.sum()), int(same.sum()), float(p.sum()), float((p * (1 - p)).sum()))


def _as_before(column: pa.Array) -> Bools:
    """Return, for each row but the first, whether it has the value of the row before."""
    if not isinstance(column, pa.DictionaryArray):
        column = pc.dictionary_encode(column)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes[1:] == codes[:-1]


def of_copies(pairs: int, same: int, expected: float, variance: float) -> Finding | None:
    """Rows with the context of the row before: without copies, they have its action as often as propensities say."""
    more = same - expected
    if pairs < FEWEST_PAIRS or more < SURE * math.sqrt(variance) + SURE or more < IN_A_ROW * pairs:
        return None
    return _say(
        LOOK,
        COPIES,
        more,
        f"{pairs:,} rows have the context of the row before. {same:,} of them have its action, too, and by their "
        f"propensities, only about {expected:,.0f} should.",
        "Events were logged more than once, or one draw of an action served several events.",
        "Remove the copies, or keep such events together with cluster=.",
    )


# Labels


def of_labels(labels: Sequence[Any], roles: Roles) -> Finding | None:
    """Labels that are integers as text, and stand in the order of text."""
    if len(labels) < 2 or not all(isinstance(x, str) and re.fullmatch(r"-?\d{1,15}", x) for x in labels[:1000]):
        return None
    if len(labels) > 1000 or sorted(labels, key=int) == list(labels):
        return None
    shown = ", ".join(repr(label) for label in labels[:SHOWN]) + (", ..." if len(labels) > SHOWN else "")
    return _say(
        LOOK,
        "label_order",
        len(labels),
        f"The labels of column {roles.action!r} are integers as text, and stand in the order of text: {shown}.",
        "A policy function that returns probabilities in the order of the numbers is evaluated wrongly.",
        'Give the order, e.g. actions=["1", "2", ...], or store the labels as integers.',
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in columns[:SHOWN]) + (", ..." if len(columns) > SHOWN else "")


def _say(level: str, check: str, value: float, *sentences: str) -> Finding:
    return Finding(level, check, None, float(value), " ".join(sentences))
