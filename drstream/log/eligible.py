"""Eligible sets: the actions that each event could choose from, as lists of labels in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import LogError, parameter
from drstream.kernels import sets
from drstream.log import labels as action_labels
from drstream.log.columns import has_nulls, nulls
from drstream.log.ragged import Ragged, flat_lists
from drstream.log.schema import is_label, is_list, is_string
from drstream.types import Bools, Floats, Ints

WORD = 64  # actions whose bits fit into one word
NULL_SET = "eligible set is null"
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

    def rows(self, start: int, stop: int) -> Sets:
        """Return the sets of the events start..stop-1, without a copy."""
        return Sets(self.lists.rows(start, stop), self.labels, self.words[start:stop])

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
        return _shown([self.labels[a] for a in self.lists.rows(i, i + 1).flat])

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


def check_eligible(schema: pa.Schema, name: str, action: str | None) -> None:
    """Raise an error unless the column can hold sets of the labels of the action column."""
    if action is None:
        raise LogError(
            f"{parameter('eligible', name)}: eligible sets are sets of actions, and the log was opened with "
            f"{parameter('action', None)}. Name the column of actions with {parameter('action')}"
        )
    kind, logged = schema.field(name).type, schema.field(action).type
    if not is_list(kind):
        raise LogError(
            f"eligible column {name!r} has type {kind}: it must hold lists of the actions that an event could choose "
            f"from. Name another column with {parameter('eligible')}"
        )
    item = kind.value_type
    if pa.types.is_boolean(item) and not pa.types.is_boolean(logged):
        raise LogError(
            f"eligible column {name!r} has type {kind}, a mask: it must hold lists of the actions that an event could "
            f"choose from, with the labels of {action!r}, e.g. [2, 5] for the mask of the actions 2 and 5"
        )
    if not is_label(item) or is_string(plain(item)) != is_string(plain(logged)):
        raise LogError(
            f"eligible column {name!r} has type {kind}, and the action column {action!r} has type {logged}: both must "
            "hold the same labels"
        )


def plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def read_sets(column: pa.Array, labels: Any) -> Ragged:
    """Return the sets of a column without nulls. Items that are null, or no label, are outside of 0..K-1."""
    starts, items = flat_lists(column)
    if not has_nulls(items):
        return Ragged(starts, action_labels.encode(items, labels))
    missing = nulls(items)
    codes = np.full(len(items), sets.NULL_ACTION, np.int32)
    codes[~missing] = action_labels.encode(items.filter(pa.array(~missing)), labels)
    return Ragged(starts, codes)


def judged(lists: Ragged, labels: Any, action: NDArray[np.int32]) -> tuple[Sets, NDArray[np.uint8] | None]:
    """Return the sets, and what is wrong with each, as a key of REASONS or 0; None if all are good."""
    wrong = np.empty(len(lists), np.uint8)
    seen = np.full(len(labels), -1)
    words = np.empty(len(lists) if len(labels) <= WORD else 0, np.uint64)
    bad = sets.judge(lists.starts, lists.values, len(labels), action, seen, wrong, words)
    return Sets(lists, labels, words), wrong if bad else None


def bad_sets(column: pa.Array, labels: Any, action: NDArray[np.int32]) -> tuple[Ragged, list[tuple[str, Bools]]]:
    """Return the sets, and each reason to leave events out, with those events. A set that is null is empty."""
    null = nulls(column)
    usable = ~null
    found = read_sets(column.filter(pa.array(usable)), labels)
    sizes = np.zeros(len(column), np.int64)
    sizes[usable] = np.diff(found.starts)
    lists = Ragged(np.concatenate([[0], np.cumsum(sizes)]), found.values)
    wrong = judged(lists, labels, action)[1]
    wrong = np.zeros(len(column), np.uint8) if wrong is None else np.where(null, 0, wrong)
    return lists, [(NULL_SET, null), *((reason, wrong == code) for code, reason in REASONS.items())]


def problem(column: pa.Array, wrong: NDArray[np.uint8]) -> tuple[int, str, str]:
    """Return the first event with a bad set, the reason, and the set as words."""
    i = int(np.argmax(wrong != 0))
    return i, REASONS[int(wrong[i])], _shown(column[i].as_py())


def _shown(items: Sequence[Any]) -> str:
    shown = [repr(item) for item in items[:6]] + (["..."] if len(items) > 6 else [])
    return f"[{', '.join(shown)}]"
