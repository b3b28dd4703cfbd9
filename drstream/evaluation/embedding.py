"""Categories of actions or candidates, for the estimators that weigh by category (`embedding=`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import DrstreamError, LogError, parameter, phrase, suggest
from drstream.kernels import ragged
from drstream.log import Events, Log
from drstream.log.columns import has_nulls, lengths, nulls
from drstream.log.kinds.candidates.columns import Catalogue, inner_type, split_path
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

    def codes(self, block: Events) -> Ints:
        """Return a number for the category of each candidate of a block. Those of one event are equal or not."""
        raise NotImplementedError


@dataclass(frozen=True)
class ListedCategories(Categories):
    """Categories in a column of lists, or in a field of its structs."""

    column: str
    field: str | None

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.column,)

    def codes(self, block: Events) -> Ints:
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
class ItemCategories(Categories):
    """A column of the table of items."""

    items: Catalogue
    known: Ints  # the code of each item

    def codes(self, block: Events) -> Ints:
        offered = block.candidates
        places = np.empty(offered.count, np.int64)
        bad = int(ragged.look_up(keys_of(offered.ids), self.items.keys, self.items.places, places))
        if bad >= 0:
            event = int(np.searchsorted(offered.starts, bad, side="right")) - 1
            which = offered.shown(event, bad - int(offered.starts[event]))
            raise LogError(f"the table of items has no category of {which}, at {block.where(event)}: give it one")
        return self.known[places]


def embedding_of(log: Log, given: Any) -> Embedding | Categories:
    """Return the categories of a log's actions, or of its candidates.

    given  A mapping of labels to categories, or a column with the category of the logged action. In a log of
           candidates: a column with lists of the categories of all, or of the table of items.
    """
    if log.has_candidates:
        return _of_candidates(log, given)
    if isinstance(given, Mapping):
        return _embedded(log.labels, given, f"{parameter('embedding')} has")
    if not isinstance(given, str):
        raise DrstreamError(
            f"{parameter('embedding')} must be a mapping of actions to categories, or a column: got "
            f"{type(given).__name__}"
        )
    found = _logged_categories(log, given)
    return _embedded(log.labels, found, f"column {given!r}, {parameter('embedding')}, shows", logged=True)


def _of_candidates(log: Log, given: Any) -> Categories:
    schema, items = log.source.schema, log.roles.candidates.items
    if not isinstance(given, str):
        raise DrstreamError(
            f"{parameter('embedding')} must be a column in a log of candidates, with lists of categories or of the "
            f"table of items: got {type(given).__name__}"
        )
    column, field = split_path(schema, given)
    if items is not None and column not in schema.names and given in items.columns:
        ids, categories = (one.to_pylist() for one in items.column(given))
        found = _embedded(ids, dict(zip(ids, categories, strict=True)), f"the items' column {given!r} has")
        return ItemCategories(items.loaded, found.codes)
    require_column(schema, column, "embedding")
    kind = inner_type(schema, given)
    if not is_label(kind):
        raise LogError(f"column {given!r}, {parameter('embedding')}, holds {kind}: categories are integers or text")
    return ListedCategories(column, field)


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
