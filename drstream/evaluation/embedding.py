"""Categories of actions or candidates, for the estimators that weigh by category (`embedding=`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import DrstreamError, LogError, parameter, phrase, suggest
from drstream.kernels import ragged
from drstream.log import Block, Log
from drstream.log.columns import has_nulls, lengths, nulls
from drstream.log.kinds.candidates.columns import inner_type, split_path
from drstream.log.kinds.candidates.reading import inside_lists
from drstream.log.rows import keys_of
from drstream.log.schema import is_label, is_list, require_column
from drstream.types import Ints

SCAN_ROWS = 1 << 16


@dataclass(frozen=True)
class Embedding:
    """The category of each action of a log. It can be pickled.

    codes       (K,) the index of each action's category.
    categories  The categories, in the order in which actions have them.
    """

    codes: Ints
    categories: tuple[Any, ...]


class Categories:
    """The categories of candidates. It can be pickled."""

    columns: tuple[str, ...] = ()  # of the log that it reads

    def codes(self, block: Block) -> Ints:
        """Return a number for the category of each candidate of a block. Those of one event are equal or not."""
        raise NotImplementedError


@dataclass(frozen=True)
class Listed(Categories):
    """Categories in a column of lists, or in a field of its structs."""

    column: str
    field: str | None

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def codes(self, block: Block) -> Ints:
        column, starts = block.column(self.column), block.candidates.starts
        whole = self.column if self.field is None else f"{self.column}.{self.field}"
        who = f"column {whole!r}, {parameter('embedding')},"
        if has_nulls(column):
            raise LogError(
                f"{who} is null at {block.where(int(np.argmax(nulls(column))))}: each candidate has a category"
            )
        found, sizes = lengths(column), np.diff(starts)
        if (found != sizes).any():
            i = int(np.argmax(found != sizes))
            raise LogError(
                f"{who} holds {found[i]} categories at {block.where(i)}, where there are {sizes[i]} candidates"
            )
        values = inside_lists(column, self.field)
        if has_nulls(values):
            i = int(np.searchsorted(starts, np.argmax(nulls(values)), side="right")) - 1
            raise LogError(f"{who} holds a null at {block.where(i)}: each candidate has a category")
        return keys_of(values).view(np.int64)


@dataclass(frozen=True)
class LookedUp(Categories):
    """Categories by the id of a candidate."""

    keys: NDArray[np.uint64]
    places: Ints
    known: Ints  # the code of each item
    name: str

    def codes(self, block: Block) -> Ints:
        offered = block.candidates
        places = np.empty(offered.count, np.int64)
        bad = int(ragged.look_up(keys_of(offered.ids), self.keys, self.places, places))
        if bad >= 0:
            event = int(np.searchsorted(offered.starts, bad, side="right")) - 1
            which = offered.shown(event, bad - int(offered.starts[event]))
            raise LogError(f"{self.name} has no category of {which}, at {block.where(event)}: give it one")
        return self.known[places]


def embedding_of(log: Log, given: Any) -> Embedding | Categories:
    """Return the categories of a log's actions, or of its candidates.

    given  A mapping of labels or ids to categories; or a column: with the category of the logged action or, in a log of
           candidates, with lists of the categories of all, or of the table of items.
    """
    if log.has_candidates:
        return _of_candidates(log, given)
    if isinstance(given, Mapping):
        return _embedded(log.labels, given, f"{parameter('embedding')} has")
    if not isinstance(given, str):
        raise _neither(given)
    found = _logged_categories(log, given)
    return _embedded(log.labels, found, f"column {given!r}, {parameter('embedding')}, shows", logged=True)


def _of_candidates(log: Log, given: Any) -> Categories:
    schema, candidates = log.source.schema, log.roles.candidates
    if isinstance(given, Mapping):
        return _by_id(log, list(given), list(given.values()), parameter("embedding"))
    if not isinstance(given, str):
        raise _neither(given)
    column, field = split_path(schema, given)
    items = candidates.items
    if items is not None and column not in schema.names and given in items.columns:
        ids, categories = (column.to_pylist() for column in items.column(given))
        return _by_id(log, ids, categories, f"the items' column {given!r}")
    require_column(schema, column, "embedding")
    kind = inner_type(schema, given)
    if not is_label(kind):
        raise LogError(f"column {given!r}, {parameter('embedding')}, holds {kind}: categories are integers or text")
    return Listed(column, field)


def _by_id(log: Log, ids: list[Any], categories: list[Any], name: str) -> LookedUp:
    kind = log.candidate_ids_type
    if kind is None:
        raise LogError(
            f"{parameter('embedding')} gives categories by id, and the candidates of this log have no ids: name their "
            "column, or pass the column with lists of categories"
        )
    try:
        keys = keys_of(pa.array(ids, kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise LogError(f"{name} has ids that are not {kind}, as those of candidates are: {ids[:3]}") from None
    size = 1 << (2 * max(1, len(keys))).bit_length()
    table, places = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
    ragged.index_keys(keys, table, places)
    found = _embedded(ids, dict(zip(ids, categories, strict=True)), f"{name} has")
    return LookedUp(table, places, found.codes, name)


def _neither(given: Any) -> DrstreamError:
    return DrstreamError(
        f"{parameter('embedding')} must be a mapping of actions to categories, or a column: got {type(given).__name__}"
    )


def _embedded(labels: Sequence[Any], categories: Mapping[Any, Any], who: str, *, logged: bool = False) -> Embedding:
    index: dict[Any, int] = {}
    codes = np.empty(len(labels), np.int64)
    for k, label in enumerate(labels):
        if label not in categories:
            todo = f": {suggest(str(label), map(str, categories))}. Give it one"
            if logged:
                mapping = phrase("pass a mapping of actions to categories", "leave it out with --actions")
                todo = f", because it was never logged: {mapping}"
            raise DrstreamError(f"{who} no category of action {label!r}{todo}")
        category = categories[label]
        if category is None or category != category:
            raise DrstreamError(f"{who} {category} as the category of action {label!r}: give each action a category")
        try:
            codes[k] = index.setdefault(category, len(index))
        except TypeError:
            raise DrstreamError(
                f"{who} {category!r} as the category of action {label!r}: a category is a text, a number or a tuple"
            ) from None
    return Embedding(codes, tuple(index))


def _logged_categories(log: Log, column: str) -> dict[Any, Any]:
    """Return the category that logged actions have, from a pass over both columns of the whole log."""
    schema, action = log.source.schema, log.roles.action
    require_column(schema, column, "embedding")
    kind = schema.field(column).type
    if is_list(kind):
        raise LogError(
            f"column {column!r}, {parameter('embedding')}, has type {kind}: lists are for logs with "
            f"{parameter('candidates')}. Here, pass a mapping of actions to categories, or the column with the "
            "category of the logged action"
        )
    if not is_label(kind):
        raise LogError(f"column {column!r}, {parameter('embedding')}, has type {kind}: categories are integers or text")
    assert action is not None
    found: dict[Any, Any] = {}
    for part in log.source.peek().parts([action, column], text=[action]):
        for batch in part.batches(SCAN_ROWS):
            table = pa.table([_plain(batch.column(0)), _plain(batch.column(1))], names=["action", "category"])
            for pair in table.group_by(["action", "category"]).aggregate([]).to_pylist():
                label, category = pair["action"], pair["category"]
                if label is None or category is None:
                    continue
                if found.setdefault(label, category) != category:
                    raise LogError(
                        f"column {column!r}, {parameter('embedding')}, has two categories of action {label!r}: "
                        f"{found[label]!r} and {category!r}. An action has one category"
                    )
    return found


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
