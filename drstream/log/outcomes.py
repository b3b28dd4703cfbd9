"""Columns that look like outcomes: known only after the action, so that a model of the reward must not see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.log.columns import floats_or_nan
from drstream.log.facts import LOOKED_AT, SourceFacts
from drstream.log.ids import find_ids, id_columns
from drstream.log.schema import UNIFORM, Roles, is_number
from drstream.log.starred import Suspect
from drstream.types import Bools, Floats, Ints

VALUES = 1 << 22  # of all columns together: of many columns, fewer rows
BINS = 16  # of the values of a column. The first holds its usual value: 0, or no value, or the most frequent text
GROUPS = 64  # of actions
CHANCE = 1e-6  # that a column without any relation to the reward looks nested, for all columns together
LESS = 20.0  # a context that makes rewards so much rarer is still a context,
FEW = 5.0  # and then so many events contradict
FALSE_ALARM = 0.0005  # chance that a context seems to differ by action, for all columns together
MOST = 2 / 3  # share of the columns that are outcomes; if more differ by action, something else is wrong
ONE = 0.02  # probabilities of all actions may so much differ from 1

REWARD_NEEDS_IT = "the reward is 0 wherever it is {}"
NEEDS_REWARD = "it is {} wherever the reward is 0"
BY_ACTION = "it differs by action, although propensities do not depend on contexts"


@dataclass(frozen=True)
class Bins:
    """How the values of a column are counted. It can be pickled."""

    usual: str  # the value of the first bin, in words
    edges: Floats  # of a column of numbers: bins of values other than 0
    codes: Ints | None = None  # of a column of codes: the bin of each

    def of(self, values: NDArray[Any]) -> Ints:
        """Return the bin of each number, or of each code."""
        if self.codes is not None:
            return self.codes[values]
        found = 1 + np.searchsorted(self.edges, values)
        found[(values == 0) | np.isnan(values)] = 0
        return found


def number_bins(values: Floats, *, fine: bool = True) -> Bins:
    """Return bins of about equally many of these numbers, but for those that are 0; unless they are fine, one bin."""
    rare = values[(values != 0) & np.isfinite(values)][:: max(1, len(values) // 2048)] if fine else values[:0]
    edges = np.unique(np.quantile(rare, np.arange(1, BINS - 1) / (BINS - 1), method="lower")) if len(rare) else rare
    return Bins("0 or missing" if np.isnan(values).any() else "0", edges)


def code_bins(codes: Ints, size: int, usual: Sequence[str] | None = None) -> Bins:
    """Return a bin for each of the most frequent codes, and one for all others."""
    order = np.argsort(-np.bincount(codes, minlength=size), kind="stable")
    bins = np.full(size, BINS - 1)
    bins[order[: BINS - 1]] = np.arange(min(size, BINS - 1))
    return Bins(repr(usual[order[0]]) if usual and size else "the same", np.empty(0), bins)


def is_nested(usual: int, usual_hits: int, others: int, other_hits: int, columns: int) -> bool:
    """Whether hits need another value than the usual one, in so many rows with the usual value, and with others.

    It must not be chance, and not a context that makes hits only a little rarer.
    """
    if usual_hits or not other_hits or not usual:
        return False
    chance = other_hits * math.log(others / (usual + others))
    expected = usual * other_hits / others / LESS
    return chance < math.log(CHANCE / columns) and expected >= FEW


def nested(cells: Any, columns: int) -> str | None:
    """Return why a column looks like an outcome: cells count rows by usual value or other, and by reward 0 or not."""
    (usual, usual_hits), (others, other_hits) = ((int(a) + int(b), int(b)) for a, b in cells)
    if is_nested(usual, usual_hits, others, other_hits, columns):
        return REWARD_NEEDS_IT
    without, rewarded = (int(a) + int(b) for a, b in zip(*cells, strict=True))
    if is_nested(without, others - other_hits, rewarded, other_hits, columns):
        return NEEDS_REWARD
    return None


def differs(table: NDArray[Any], columns: int) -> bool:
    """Whether actions differ by bin: table (bins, actions) counts rows of a policy that does not look at the column.

    Given the rows of each bin and of each action, an entry has a hypergeometric distribution. Its tails are at most
    those that Chernoff's bound gives for a binomial one (Hoeffding 1963).
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0].astype(np.float64)
    rows = table.sum(axis=1, keepdims=True)
    expected = table.sum(axis=0) / table.sum() if table.size else table
    if min(table.shape) < 2:
        return False
    with np.errstate(all="ignore"):
        seen = table / rows
        more = np.where(seen > 0, seen * np.log(seen / expected), 0)
        less = np.where(seen < 1, (1 - seen) * np.log((1 - seen) / (1 - expected)), 0)
    return bool((rows * (more + less)).max() >= math.log(2 * table.size * columns / FALSE_ALARM))


def same_for_all(action: Ints, propensity: Floats) -> bool:
    """Whether propensities depend on the action alone, and are those of all actions together."""
    actions = int(action.max(initial=-1)) + 1
    low, high = np.full(actions, np.inf), np.zeros(actions)
    np.minimum.at(low, action, propensity)
    np.maximum.at(high, action, propensity)
    seen = high > 0
    return bool(
        seen.sum() > 1
        and len(action) >= 100 + 2 * seen.sum()
        and (high[seen] <= low[seen] * (1 + 1e-6)).all()
        and abs(high.sum() - 1) <= ONE
    )


@dataclass(frozen=True)
class Suspects:
    """What the first rows say about contexts."""

    outcomes: tuple[Suspect, ...] = ()
    differing: tuple[str, ...] = ()  # so many differ by action that propensities, or how actions were drawn, are wrong


def find_outcomes(facts: SourceFacts, roles: Roles, names: Sequence[str]) -> Suspects:
    """Look at the first rows for columns, among these, that look like outcomes."""
    key = "outcomes", tuple(names), roles.rewards, roles.action, roles.propensity, roles.constant
    return facts.of(key, lambda: _look(facts, roles, names))


def rows_of(columns: int) -> int:
    """Return how many of the first rows of so many columns are looked at."""
    return max(1024, min(LOOKED_AT, VALUES // columns))


def can_look(roles: Roles) -> bool:
    """Whether contexts are columns, and events have one reward each."""
    return not (roles.listed or roles.ranking or roles.sparse is not None)


def _look(facts: SourceFacts, roles: Roles, names: Sequence[str]) -> Suspects:
    if not names or not can_look(roles):
        return Suspects()
    drawn = bool(roles.action) and not (roles.eligible or roles.candidates or roles.sample_rate or roles.logger)
    needed = [*names, *roles.rewards]
    needed += [name for name in (roles.action if drawn else None, roles.propensity) if name is not None]
    batch = facts.more(list(dict.fromkeys(needed)), rows_of(len(needed)))
    if batch is None:
        return Suspects()
    reward = np.sum([np.abs(floats_or_nan(batch.column(name))) for name in roles.rewards], axis=0)
    good: Bools = np.isfinite(reward)
    action = _actions(batch, roles) if drawn else None
    why: dict[str, str] = {}
    differing: list[str] = []
    for name in names:
        bins, found = binned(batch.column(name), fine=action is not None)
        rewarded = reward[good] != 0
        cells = np.bincount(2 * (found[good] > 0) + rewarded, minlength=4).reshape(2, 2)
        if (because := nested(cells, len(names))) is not None:
            why[name] = because.format(bins.usual)
        elif action is not None:
            table = np.bincount(found * GROUPS + action, minlength=BINS * GROUPS).reshape(BINS, GROUPS)
            if differs(table, len(names)):
                differing.append(name)
    if differing and _has_users(facts, roles):  # one draw may serve all rows of a user: they do not count one by one
        differing = []
    return verdict(names, why, differing)


def _has_users(facts: SourceFacts, roles: Roles) -> bool:
    """Whether a column without a role has ids that repeat."""
    used = {*roles.context, *roles.others}
    return bool(find_ids(facts, id_columns(facts, [name for name in facts.source.schema.names if name not in used])))


def verdict(names: Sequence[str], why: dict[str, str], differing: Sequence[str]) -> Suspects:
    """Return the outcomes among columns, in their order: those with a reason, and those that differ by action."""
    few = len(differing) <= max(2, MOST * len(names))
    because = {**why, **(dict.fromkeys(differing, BY_ACTION) if few else {})}
    outcomes = tuple(Suspect(name, because[name]) for name in names if name in because)
    return Suspects(outcomes, () if few else tuple(differing))


def binned(column: pa.Array, *, fine: bool = True) -> tuple[Bins, Ints]:
    """Return bins of a column, and those of its values. Unless they are fine, all numbers but 0 have one."""
    if is_number(column.type):
        values = floats_or_nan(column)
        bins = number_bins(values, fine=fine)
        return bins, bins.of(values)
    if not isinstance(column, pa.DictionaryArray):
        column = pc.dictionary_encode(column)
    size = len(column.dictionary)
    codes = column.indices.fill_null(size).to_numpy(zero_copy_only=False).astype(np.int64)
    bins = code_bins(codes, size + 1, [*map(str, column.dictionary.to_pylist()), "missing"])
    return bins, bins.of(codes)


def _actions(batch: pa.RecordBatch, roles: Roles) -> Ints | None:
    """Return the group of each row's action, if propensities do not depend on contexts."""
    column = batch.column(roles.action)
    if not isinstance(column, pa.DictionaryArray):
        column = pc.dictionary_encode(column)
    if column.null_count:
        return None
    action = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if roles.propensity is not None:
        propensity = floats_or_nan(batch.column(roles.propensity))
        if not np.isfinite(propensity).all() or not same_for_all(action, propensity):
            return None
        return action % GROUPS
    actions = len(np.unique(action))
    constant = 1 / actions if roles.constant == UNIFORM else float(roles.constant or 0.0)
    return action % GROUPS if abs(actions * constant - 1) <= ONE else None


def without_outcomes(facts: SourceFacts, roles: Roles) -> Roles:
    """Return the roles without the columns that context="*" chose, and that look like outcomes."""
    found = find_outcomes(facts, roles, roles.starred).outcomes
    names = {outcome.column for outcome in found}
    context = tuple(name for name in roles.context if name not in names)
    categories = tuple(name for name in roles.categories if name not in names)
    left_out = (*roles.left_out, *(outcome.column for outcome in found))
    return replace(roles, context=context, categories=categories, outcomes=found, left_out=left_out)
