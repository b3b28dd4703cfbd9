"""Logs of rankings: each event has a list of shown items. Propensities and rewards are by position, or of the list.

The columns of lists are read into flat arrays that share their starts. Position 1 is the top of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import parameter
from drstream.kernels import rankings as kernels
from drstream.log.bad_rows import finite_numbers, probabilities, refuse, refuse_improper, refuse_items, whole
from drstream.log.columns import floats, floats_or_nan, has_nulls, nulls
from drstream.log.fields import Field
from drstream.log.ragged import flat_lists, repeats
from drstream.log.schema import INDEPENDENT, Roles, is_list
from drstream.log.spec import Needs, Spec
from drstream.types import Bools, Floats, Ints

NONE = np.empty(0)
MAY_REPEAT = f"Where positions are filled independently, that may be: {parameter('positions', INDEPENDENT)}. "
TABLE = 1 << 20  # integers within such a range are their own numbers


@dataclass(frozen=True)
class Lists:
    """The lists of some events: those of event i are starts[i] to starts[i + 1] - 1 in the flat arrays."""

    starts: Ints  # one more than there are events
    propensity: Floats  # of each item; empty if a list has one number
    joint: Floats  # of each list; empty if the log has no propensities
    reward: Floats  # of each item; empty if a list has one number
    more_rewards: dict[str, Floats] = field(default_factory=dict)  # by column, for a log with several

    def for_reward(self, name: str) -> Lists:
        return replace(self, reward=self.more_rewards[name])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, events: slice) -> Lists:
        """Return the lists of consecutive events, with starts from 0."""
        start, stop, _ = events.indices(len(self))
        first, last = int(self.starts[start]), int(self.starts[stop])
        return Lists(
            self.starts[start : stop + 1] - first,
            self.propensity[first:last],
            self.joint[start:stop],
            self.reward[first:last],
        )


NO_LISTS = Lists(np.zeros(1, np.int64), NONE, NONE, NONE)


@dataclass(frozen=True)
class Ranking:
    """The shown items of an event, with propensities and rewards: of the whole list, or by position.

    constant    The propensity of every list, if no column holds them.
    repeatable  Whether a list may have an item twice.
    """

    roles: Roles
    constant: float | None
    repeatable: bool

    @property
    def columns(self) -> tuple[str, ...]:
        roles = self.roles
        return tuple(name for name in (*roles.rewards, roles.propensity, roles.action) if name is not None)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        roles, n = self.roles, batch.num_rows
        starts, flat = self._lists(batch)
        p, joint, least = NONE, NONE, NONE
        if self.constant is not None:
            joint = least = np.full(n, self.constant)
        elif roles.propensity in flat:
            p = floats(flat[roles.propensity])
            refuse_improper(p, "propensity", roles.propensity, starts=starts)
            joint, least = np.empty((2, n))
            kernels.summarise(starts, p, NONE, joint, least, NONE)
        elif roles.propensity is not None:
            joint = least = probabilities(batch, roles.propensity, "propensity")
        by_position, totals = dict.fromkeys(roles.rewards, NONE), {}
        for name in roles.rewards:
            sign = -1.0 if roles.negated else 1.0
            if name not in flat:
                totals[name] = sign * finite_numbers(batch, name, "reward")
                continue
            by_position[name], totals[name] = sign * floats(flat[name]), np.empty(n)
            if kernels.summarise(starts, NONE, by_position[name], NONE, NONE, totals[name]) >= 0:
                refuse(~np.isfinite(totals[name]), "reward is not finite", name)
        lists = Lists(starts, p, joint, by_position[roles.reward], by_position)
        more = {name: totals[name] for name in roles.more_rewards}
        return {"reward": totals[roles.reward], "propensity": least, "more_rewards": more, "lists": lists}

    def _lists(self, batch: pa.RecordBatch) -> tuple[Ints, dict[str, pa.Array]]:
        """Return where each list begins, and the items of all lists, by column."""
        first, found, flat = "", np.empty(0, np.int64), {}
        for role, name in _roles(self.roles):
            if name not in self.roles.lists:
                continue
            starts, flat[name] = flat_lists(whole(batch, name, f"{role} is null"))
            refuse(np.diff(starts) == 0, f"{role} is empty", name)
            first, found = (first, found) if first else (name, starts)
            if not np.array_equal(starts, found):
                refuse(np.diff(starts) != np.diff(found), "lists have different lengths", name, first)
            if has_nulls(flat[name]):
                refuse_items(nulls(flat[name]), starts, f"{role} holds a null", name)
            if role == "action" and not self.repeatable and repeated(starts, flat[name]).any():
                twice = repeats(starts, _codes(flat[name])[0])
                refuse_items(twice, starts, "action has an item twice", name, hint=MAY_REPEAT)
        return found, flat


def fields(spec: Spec, needs: Needs) -> list[Field]:
    """How to read the events of a log of rankings."""
    roles = spec.roles
    repeatable = roles.action is None or roles.positions == INDEPENDENT
    return [Ranking(roles, spec.constant, repeatable)]


def _roles(roles: Roles) -> list[tuple[str, str]]:
    """The columns of rankings, each with its role."""
    named = [("action", roles.action), ("propensity", roles.propensity), *(("reward", name) for name in roles.rewards)]
    return [(role, name) for role, name in named if name is not None]


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
