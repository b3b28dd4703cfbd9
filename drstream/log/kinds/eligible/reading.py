"""Eligible sets: the actions that each event could choose from, as lists of labels in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.kernels import sets
from drstream.log.bad_rows import refuse, whole
from drstream.log.columns import has_nulls, nulls
from drstream.log.fields import NO_ACTIONS, Field, rewards
from drstream.log.kinds.single import reading as single
from drstream.log.labels import encode
from drstream.log.propensities import beside
from drstream.log.ragged import Ragged, flat_lists
from drstream.log.spec import Needs, Spec
from drstream.types import Bools, Floats, Ints

WORD = 64  # actions whose bits fit into one word
REASONS = {
    sets.EMPTY: "eligible set is empty",
    sets.NULL: "eligible set holds a null",
    sets.UNKNOWN: "eligible set holds an action that is not among the labels",
    sets.TWICE: "eligible set holds an action twice",
    sets.WITHOUT: "action is not in its eligible set",
}


@dataclass(frozen=True)
class Sets:
    """The eligible set of each of some events."""

    lists: Ragged  # of actions 0..K-1 in int32, in the order of the log
    labels: Sequence[Any]  # of all K actions
    words: NDArray[np.uint64]  # the sets as bits, one word each; empty if there are more than 64 actions

    def __len__(self) -> int:
        return len(self.lists)

    def __getitem__(self, events: slice) -> Sets:
        """Return the sets of consecutive events, without a copy."""
        return Sets(self.lists[events], self.labels, self.words[events])

    def take(self, events: Ints) -> Sets:
        """Return a copy of the sets of these events."""
        lists = self.lists
        starts = np.concatenate([[0], np.cumsum(self.sizes[events])])
        out = np.empty(starts[-1], np.int32)
        sets.take_rows(lists.starts, lists.values, events, starts, out)
        return Sets(Ragged(starts, out), self.labels, self.words[events] if len(self.words) else self.words)

    @property
    def n_actions(self) -> int:
        """K, the number of all actions."""
        return len(self.labels)

    @property
    def sizes(self) -> Ints:
        """The number of actions in each set."""
        return np.diff(self.lists.starts)

    def has(self, actions: NDArray[np.int32]) -> Bools:
        """Return whether the set of each event has this action."""
        out = np.empty(len(self), np.uint8)
        sets.has(self.lists.starts, self.lists.values, actions, out)
        return out.view(bool)

    def shown(self, i: int) -> str:
        """The set of event i as words, for messages."""
        return _shown([self.labels[a] for a in self.lists[i : i + 1].flat])

    def add_even(self, out: Floats) -> None:
        """out (K) gains the probabilities of the policy that takes each action of a set equally often."""
        sets.add_even(self.lists.starts, self.lists.values, out)

    def bits(self) -> NDArray[np.uint32]:
        """Return words (W, n): action a is bit a % 32 of an event's word a // 32."""
        out = np.empty((-(-self.n_actions // 32), len(self)), np.uint32)
        sets.fill_bits(self.lists.starts, self.lists.values, self.words, out)
        return out

    def mask(self) -> Bools:
        """Return a read-only matrix (n, K), for the user's code: whether the event could choose the action."""
        out = np.zeros((len(self), self.n_actions), bool)
        out[np.repeat(np.arange(len(self)), self.sizes), self.lists.flat] = True
        out.flags.writeable = False  # several policies see it
        return out


def bits_of(mask: Bools) -> NDArray[np.uint32]:
    """Return a mask (n, K) as words (W, n): see `Sets.bits`."""
    words = -(-mask.shape[1] // 32)
    packed = np.zeros((len(mask), 4 * words), np.uint8)
    found = np.packbits(mask, axis=1, bitorder="little")
    packed[:, : found.shape[1]] = found
    return np.ascontiguousarray(packed.view("<u4").T.astype(np.uint32))


@dataclass(frozen=True)
class EligibleSet:
    """The eligible set of an event, as a column of lists.

    uniform  Whether the propensity of an event is 1 / the size of its set.
    """

    column: str
    labels: Sequence[Any]
    action: str | None  # the column of the logged actions, if they are read
    uniform: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        lists = self._lists(whole(batch, self.column, "eligible set is null"))
        wrong = np.empty(len(lists), np.uint8)
        words = np.empty(len(lists) if len(self.labels) <= WORD else 0, np.uint64)
        seen = np.full(len(self.labels), -1)
        logged = known.get("action", NO_ACTIONS)
        if sets.judge(lists.starts, lists.values, len(self.labels), logged, seen, wrong, words):
            for code, reason in REASONS.items():
                refuse(wrong == code, reason, self.column, *beside(self.action))
        found = {"eligible": Sets(lists, self.labels, words)}
        return found | ({"propensity": 1 / np.diff(lists.starts)} if self.uniform else {})

    def _lists(self, column: pa.Array) -> Ragged:
        """Return the sets. Items that are null, or no label, are outside of 0..K-1."""
        starts, items = flat_lists(column)
        if not has_nulls(items):
            return Ragged(starts, encode(items, self.labels))
        missing = nulls(items)
        codes = np.full(len(items), sets.NULL_ACTION, np.int32)
        codes[~missing] = encode(items.filter(pa.array(~missing)), self.labels)
        return Ragged(starts, codes)


def fields(spec: Spec, needs: Needs) -> list[Field]:
    """How to read the events of a log whose events have eligible sets."""
    roles, found = spec.roles, list[Field]()
    assert roles.eligible is not None
    if needs.action or roles.uniform_over_sets:
        action = roles.action if needs.action else None
        found = [EligibleSet(roles.eligible, spec.labels, action, roles.uniform_over_sets)]
    return [*rewards(spec), *single.action(spec, needs), *found, *single.of_all_actions(spec, needs)]


def _shown(items: Sequence[Any]) -> str:
    shown = [repr(item) for item in items[:6]] + (["..."] if len(items) > 6 else [])
    return f"[{', '.join(shown)}]"
