"""Logs of rankings: each event has a list of shown items. Propensities and rewards are by position, or of the list.

The columns of lists are read into flat arrays that share their starts. Position 1 is the top of a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import LogError, parameter, phrase
from drstream.kernels import rankings as kernels
from drstream.log.columns import floats, floats_or_nan, has_nulls, lengths, nulls
from drstream.log.ragged import flat_lists
from drstream.log.schema import CONDITIONAL, INDEPENDENT, MARGINAL, Roles, is_list
from drstream.sources.base import Source
from drstream.types import Bools, Floats, Ints

NONE = np.empty(0)
NEEDS_ONE = "Replays, audits, plans, models and learners need one action for each event, and so do other policies"
PEEK_ROWS = 1024  # rows whose lengths are shown
TABLE = 1 << 20  # integers within such a range are their own numbers
SHOWN = 8  # items of a list that a message shows
LENGTHS, REPEATED = "lists have different lengths", "action has an item twice"


@dataclass(frozen=True)
class Lists:
    """The lists of some events: those of event i are starts[i] to starts[i + 1] - 1 in the flat arrays."""

    starts: Ints  # one more than there are events
    propensity: Floats  # of each item; empty if a list has one number
    joint: Floats  # of each list; empty if the log has no propensities
    reward: Floats  # of each item; empty if a list has one number
    more_rewards: dict[str, Floats] = field(default_factory=dict)  # by column, for a log with several
    shown: Ints | None = None  # the position of each item among the candidates of its event, if these are read

    def for_reward(self, name: str) -> Lists:
        return replace(self, reward=self.more_rewards[name])

    def events(self, start: int, stop: int) -> Lists:
        """Return the lists of events start..stop-1, with starts from 0."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        return Lists(
            self.starts[start : stop + 1] - first,
            self.propensity[first:last],
            self.joint[start:stop],
            self.reward[first:last],
            shown=None if self.shown is None else self.shown[first:last],
        )


@dataclass(frozen=True)
class Listed:
    """What is read of a batch of rankings: the lists, and one number for each event."""

    lists: Lists
    rewards: dict[str, Floats]  # sums over each list, by column
    least: Floats  # the smallest propensity of each list; empty if the log has none


def read_rankings(batch: pa.RecordBatch, roles: Roles, constant: float | None) -> Listed | None:
    """Return the rankings of a batch; None if some event cannot be used (see `problem`).

    constant  The propensity of every list, if no column holds them.
    """
    starts: Ints | None = None
    flat: dict[str, pa.Array] = {}
    for name in roles.lists:
        column = batch.column(name)
        if has_nulls(column):
            return None
        begin, flat[name] = flat_lists(column)
        if has_nulls(flat[name]) or (starts is not None and not np.array_equal(starts, begin)):
            return None
        starts = begin
    assert starts is not None
    if (np.diff(starts) < 1).any() or _repeats(roles, starts, flat):
        return None
    single = _single_numbers(batch, roles)
    if single is None:
        return None
    n, spare = batch.num_rows, np.empty(0)
    p = NONE
    joint = least = np.full(n, constant) if constant is not None else single.get(roles.propensity or "", NONE)
    if roles.propensity in flat:
        p = floats(flat[roles.propensity])
        joint, least = np.empty((2, n))
        if kernels.summarise(starts, p, NONE, joint, least, spare) >= 0:
            return None
    by_position, totals = dict.fromkeys(roles.rewards, NONE), single
    for name in roles.rewards:
        if name in flat:
            by_position[name] = r = -floats(flat[name]) if roles.negated else floats(flat[name])
            totals[name] = np.empty(n)
            if kernels.summarise(starts, NONE, r, spare, spare, totals[name]) >= 0:
                return None
    lists = Lists(starts, p, joint, by_position[roles.reward], by_position)
    return Listed(lists, totals, least)


def _single_numbers(batch: pa.RecordBatch, roles: Roles) -> dict[str, Floats] | None:
    """Return rewards and propensities of whole lists, by column; None if one of them is bad."""
    found = {}
    for name in dict.fromkeys([*roles.rewards, *([roles.propensity] if roles.propensity else [])]):
        if name in roles.lists:
            continue
        column = batch.column(name)
        if has_nulls(column):
            return None
        values = floats(column)
        good = np.isfinite(values) if name in roles.rewards else (values > 0) & (values <= 1)
        if not good.all():
            return None
        found[name] = -values if roles.negated and name in roles.rewards else values
    return found


def _repeats(roles: Roles, starts: Ints, flat: dict[str, pa.Array]) -> bool:
    """Whether a list has an item twice, where it must not."""
    if roles.action is None or roles.positions == INDEPENDENT:
        return False
    return bool(repeated(starts, flat[roles.action]).any())


def repeated(starts: Ints, items: pa.Array) -> Bools:
    """Return which lists have an item twice. No item is null."""
    codes, distinct = _codes(items)
    bad = np.zeros(len(starts) - 1, np.uint8)
    kernels.note_repeats(starts, codes, np.full(distinct, -1), bad)
    return bad.astype(bool)


def _codes(items: pa.Array) -> tuple[NDArray[np.int32], int]:
    """Return a number from 0 on for each item, the same for items that are the same, and a bound on these numbers."""
    if pa.types.is_integer(items.type) and items.type != pa.uint64() and len(items):
        values = items.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        low, high = int(values.min()), int(values.max())
        if high - low < TABLE:
            return (values - low).astype(np.int32), high - low + 1
    coded = items if isinstance(items, pa.DictionaryArray) else items.dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    if isinstance(items, pa.DictionaryArray):  # its dictionary may have a value twice
        same = items.dictionary.dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False)
        codes = same[codes].astype(np.int32, copy=False)
    return codes, len(coded.dictionary)


# Bad rows


def bad_rows(batch: pa.RecordBatch, roles: Roles) -> Iterator[tuple[str, str, Bools]]:
    """Yield each reason to leave rankings out, with its column and those rows."""
    first: tuple[str, Ints] | None = None
    for role, name in _roles(roles):
        column = batch.column(name)
        yield f"{role} is null", name, nulls(column)
        if name not in roles.lists:
            values = floats_or_nan(column)
            yield _bad(role), name, ~(np.isfinite(values) if role == "reward" else _is_probability(values))
            continue
        sizes = np.where(nulls(column), -1, lengths(column))
        yield f"{role} is empty", name, sizes == 0
        first = first or (name, sizes)
        yield LENGTHS, name, (sizes != first[1]) & (sizes >= 0) & (first[1] >= 0)
        usable = sizes > 0
        starts, flat = flat_lists(column.filter(pa.array(usable)))

        def rows(bad: Bools, usable: Bools = usable) -> Bools:
            found = np.zeros(batch.num_rows, bool)
            found[usable] = bad
            return found

        missing = _any(starts, nulls(flat))
        yield f"{role} holds a null", name, rows(missing)
        if role == "action":
            if roles.positions != INDEPENDENT:
                known = flat_lists(column.filter(pa.array(rows(~missing))))
                again = np.zeros(len(missing), bool)
                again[~missing] = repeated(*known)
                yield REPEATED, name, rows(again)
        else:
            values = floats_or_nan(flat)
            bad = ~_is_probability(values)
            if role == "reward":
                with np.errstate(invalid="ignore", over="ignore"):
                    bad = ~np.isfinite(np.add.reduceat(values, starts[:-1])) if len(values) else np.zeros(0, bool)
            yield _bad(role), name, rows(bad if role == "reward" else _any(starts, bad))


def _roles(roles: Roles) -> list[tuple[str, str]]:
    """The columns of rankings, each with its role."""
    named = [("action", roles.action), ("propensity", roles.propensity), *(("reward", name) for name in roles.rewards)]
    return [(role, name) for role, name in named if name is not None]


def _bad(role: str) -> str:
    return "reward is not finite" if role == "reward" else "propensity is not in (0, 1]"


def _is_probability(values: Floats) -> Bools:
    return (values > 0) & (values <= 1)


def _any(starts: Ints, flags: Bools) -> Bools:
    """Whether any item of each list is flagged."""
    count = np.concatenate([[0], np.cumsum(flags)])
    return count[starts[1:]] > count[starts[:-1]]


def problem(batch: pa.RecordBatch, roles: Roles) -> tuple[int, str]:
    """Return the first event that cannot be used, and what is wrong with it. One exists."""
    found = [(int(np.argmax(bad)), reason, name) for reason, name, bad in bad_rows(batch, roles) if bad.any()]
    row, reason, name = min(found, key=lambda event: event[0])
    value = batch.column(name)[row].as_py()
    said = f"{reason}: column {name!r} holds {_shown(value)}"
    if reason == LENGTHS:
        other = next(column for _, column in _roles(roles) if column in roles.lists)
        said += f", and column {other!r} {_shown(batch.column(other)[row].as_py())}"
    elif reason == REPEATED:
        again = next(item for i, item in enumerate(value) if item in value[:i])
        said += (
            f", with {again!r} more than once (where positions are filled independently, this may be: "
            f"{parameter('positions', INDEPENDENT)})"
        )
    return row, said


def _shown(value: Any) -> str:
    if not isinstance(value, list) or len(value) <= SHOWN:
        return str(value)
    return f"[{', '.join(map(repr, value[:SHOWN]))}, ...], {len(value)} items"


# What is known without a pass


def totals(column: pa.Array) -> Floats:
    """Return the sum of each list, or the numbers themselves; NaN for what is null."""
    if not is_list(column.type):
        return floats_or_nan(column)
    out = np.full(len(column), np.nan)
    some = ~nulls(column)
    starts, flat = flat_lists(column.filter(pa.array(some)))
    events = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    out[some] = np.bincount(events, floats_or_nan(flat), len(starts) - 1)
    return out


def shown_lengths(source: Source, roles: Roles) -> str:
    """Return words about the lengths of the lists: those of all, if they are fixed or few, else of the first ones."""
    first = source.peek(PEEK_ROWS).parts([roles.lists[0]])
    column = next((batch.column(0) for part in first for batch in part.batches(PEEK_ROWS)), None)
    if column is None:
        return "no lists"
    sizes = lengths(column)
    least, most = int(sizes.min()), int(sizes.max())
    words = f"lists of {least} items" if least == most else f"lists of {least} to {most} items"
    whole = pa.types.is_fixed_size_list(column.type) or source.rows == len(column)
    return words if whole else f"{words} in the first {len(column):,} rows"


def shown_propensities(roles: Roles) -> str:
    """Return words about the propensities of rankings."""
    if not roles.with_propensities:
        return ""
    if roles.propensity not in roles.lists:
        return ", of the whole list"
    about = {
        None: "by position",
        MARGINAL: "of an item at its position",
        CONDITIONAL: "by position, given the items above",
        INDEPENDENT: "by position; positions were filled independently",
    }
    return f", {about[roles.positions]}"


def refusal(roles: Roles, what: str) -> LogError:
    """Return the error of a log of rankings where only events with one action are taken."""
    return LogError(
        f"column {roles.lists[0]!r} holds lists, so this is a log of rankings. Only "
        f"{phrase('drs.evaluate and describe take', 'drstream evaluate, describe and convert take')} such logs. {what}"
    )
