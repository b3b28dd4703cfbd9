"""Candidates: what a log says about the items that each event could choose from, and about their features."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import LogError, parameter, suggest
from drstream.kernels.ragged import index_keys
from drstream.log.columns import floats_or_nan, has_nulls, lengths, nulls, number_type, numbers
from drstream.log.rows import keys_of
from drstream.log.schema import FIND, is_label, is_list, is_number, is_string, require_column
from drstream.log.sparse import Sparse, check_sparse
from drstream.sources.open import open_source
from drstream.types import Ints

ID, POSITION = "id", "position"
STORED = b"drstream.candidates"  # metadata of a schema that says which columns are about candidates
SHOWN = 6  # most names of features that a line shows


@dataclass(frozen=True)
class Candidates:
    """The items that each event could choose from, for `Log(candidates=...)`.

    ids         Column with lists of ids: integers or text. `"items.id"` is the field `id` of a column of lists of
                structs. It may be left out if features tell how many candidates there are.
    features    Features of the candidates. One column holds, for each candidate, a list of numbers or a struct of
                numbers. Several columns, or fields such as `"items.price"`, hold one number for each candidate.
                `Items(...)` looks features up by id. `Sparse(...)` names columns in which each candidate has a list of
                indices and values. Without features, policies and models are columns, or uniform.
    action_is   "id" or "position": whether the action is an id, or counts the candidates of its event from 0. By
                default, it is an id if it can be one.

    >>> import drstream as drs
    >>> table = pa.table({
    ...     "items": [["a", "b"], ["b", "c", "d"]], "prices": [[[1.0], [2.0]], [[2.0], [3.0], [0.5]]],
    ...     "action": ["b", "c"], "reward": [1.0, 0.0], "propensity": [0.5, 0.4],
    ... })
    >>> drs.Log(table, candidates=Candidates(ids="items", features="prices"))
    Log of table: 2 rows
      context     none
      candidates  items, with 1 feature each: prices[0]
      action      action: the id of a candidate
      reward      reward
      propensity  propensity
    """

    ids: str | None = None
    features: str | Sequence[str] | Items | Sparse | None = None
    action_is: str | None = None
    guessed: bool = field(default=False, init=False, repr=False, compare=False)  # whether types decided on action_is

    @property
    def pieces(self) -> tuple[str, ...]:
        """The columns of features, or fields of them."""
        if self.features is None or isinstance(self.features, Items | Sparse):
            return ()
        return (self.features,) if isinstance(self.features, str) else tuple(self.features)

    @property
    def items(self) -> Items | None:
        return self.features if isinstance(self.features, Items) else None

    @property
    def sparse(self) -> Sparse | None:
        return self.features if isinstance(self.features, Sparse) else None

    def __hash__(self) -> int:
        return hash((self.ids, self.pieces, self.sparse, self.action_is))


class Items:
    """Features of items, looked up by id, for `Candidates(features=...)`.

    table     The items: a pyarrow Table, a frame of pandas or polars, the path of a Parquet file, or anything else that
              `Log` reads. It must fit into memory.
    id        The column with the ids.
    features  Columns with numbers, or with lists of numbers that all have one length. By default, all columns of
              numbers but the id.

    >>> Items(pa.table({"item": ["a", "b"], "price": [1.5, 2.0]})).names
    ('price',)
    """

    def __init__(self, table: Any, id: str = "item", features: str | Sequence[str] | None = None) -> None:
        wanted = (features,) if isinstance(features, str) else features
        if not isinstance(id, str) or not _are_names(() if wanted is None else wanted):
            raise LogError(f"Items: id={_brief(id)}, features={_brief(features)}: they must be names of columns")
        self.table = table
        self.id = id
        self.features = None if wanted is None else tuple(wanted)

    @cached_property
    def loaded(self) -> Catalogue:
        """The items in memory, checked."""
        if isinstance(self.table, str | os.PathLike):
            path = os.fspath(self.table)
            return _load_file(path, _version(path), self.id, self.features)
        return _load(self.table, self.id, self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.loaded.names

    @property
    def columns(self) -> list[str]:
        """All columns of the table, also those that are no features."""
        return list(open_source(self.table).schema.names)

    def column(self, name: str) -> tuple[pa.Array, pa.Array]:
        """Return the ids and another column of the table, e.g. categories of the items."""
        batches = [batch for part in open_source(self.table).parts((self.id, name)) for batch in part.batches()]
        whole = pa.Table.from_batches(batches)
        return _one_array(whole[self.id]), _one_array(whole[name])

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self.table, str | os.PathLike):  # another process reads the file, once
            return {name: value for name, value in vars(self).items() if name != "loaded"}
        return {**vars(self), "table": None, "loaded": self.loaded}

    def __repr__(self) -> str:
        return f"Items({len(self.loaded.features):,} items by {self.id!r}, features {', '.join(_abridged(self.names))})"


@dataclass(frozen=True)
class Catalogue:
    """Items in memory: features (N, d), and a table from keys of ids to items."""

    kind: pa.DataType  # of the ids
    names: tuple[str, ...]
    features: NDArray[Any]
    keys: NDArray[np.uint64]
    places: Ints


@lru_cache(maxsize=4)
def _load_file(path: str, version: tuple[int, ...], id: str, features: tuple[str, ...] | None) -> Catalogue:
    """Load a file once in a process, and again once it is another version of the file."""
    return _load(path, id, features)


def _version(path: str) -> tuple[int, ...]:
    """What tells versions of a local file apart; empty for others."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _load(table: Any, id: str, features: tuple[str, ...] | None) -> Catalogue:
    source = open_source(table)
    schema, what = source.schema, f"Items of {source.name}"
    for name in (id, *(features or ())):
        if name not in schema.names:
            hint = ". It is the index: pass table.reset_index()" if name in _index_names(table) else ""
            raise LogError(f"{what}: there is no column {name!r}: {suggest(str(name), schema.names)}{hint}")
    if not is_label(schema.field(id).type):
        raise LogError(f"{what}: column {id!r} has type {schema.field(id).type}: ids are integers or text")
    chosen = features or tuple(n for n in schema.names if n != id and is_number(schema.field(n).type))
    if not chosen:
        raise LogError(f"{what}: no column of numbers beside {id!r}: name the features with features=[...]")
    if id in chosen or len(set(chosen)) < len(chosen):
        raise LogError(f"{what}: features={list(chosen)}: name each column once, and not the id")
    batches = [batch for part in source.parts((id, *chosen)) for batch in part.batches()]
    whole = pa.Table.from_batches(batches, batches[0].schema) if batches else schema.empty_table()
    if not whole.num_rows:
        raise LogError(f"{what}: there are no items")
    ids = _one_array(whole[id])
    if has_nulls(ids):
        raise LogError(f"{what}: the id is null at row {int(np.argmax(nulls(ids)))}, column {id!r}")
    found = [_item_feature(_one_array(whole[name]), name, what, ids) for name in chosen]
    names = [n for name, x in zip(chosen, found, strict=True) for n in _names_in(name, x, whole.schema.field(name))]
    matrix = np.ascontiguousarray(np.concatenate(found, axis=1, dtype=np.result_type(*found)))
    matrix.flags.writeable = False
    keys = keys_of(ids)
    size = 1 << (2 * len(keys)).bit_length()
    table_of_keys, places = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
    twice = int(index_keys(keys, table_of_keys, places))
    if twice >= 0:
        first = int(np.argmax(keys == keys[twice]))
        raise LogError(
            f"{what}: the id {ids[twice].as_py()!r} is at row {first} and at row {twice}, column {id!r}: each item "
            "must be there once"
        )
    return Catalogue(ids.type, tuple(names), matrix, table_of_keys, places)


def _index_names(table: Any) -> list[Any]:
    """Names of the index of a pandas frame."""
    return list(getattr(getattr(table, "index", None), "names", None) or ())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _item_feature(column: pa.Array, name: str, what: str, ids: pa.Array) -> NDArray[Any]:
    """Return the features (N, w) in a column of a table of items."""
    values = column
    if is_list(column.type):
        sizes = lengths(column)
        if has_nulls(column) or (sizes != sizes[0]).any():
            i = int(np.argmax(nulls(column) | (sizes != sizes[0])))
            raise LogError(
                f"{what}: item {ids[i].as_py()!r} has {column[i]} in column {name!r}, where the first has {sizes[0]} "
                "numbers"
            )
        values = column.flatten()
    if not is_number(values.type):
        raise LogError(f"{what}: column {name!r} has type {column.type}: features are numbers, or lists of numbers")
    found = floats_or_nan(values)
    if not np.isfinite(found).all():
        i = int(np.argmin(np.isfinite(found))) * len(column) // len(values)
        raise LogError(f"{what}: item {ids[i].as_py()!r} has {column[i]} in column {name!r}: features must be finite")
    return numbers(values).reshape(len(column), -1)


def _names_in(name: str, features: NDArray[Any], field: pa.Field) -> list[str]:
    return [f"{name}[{j}]" for j in range(features.shape[1])] if is_list(field.type) else [name]


# What the columns of a log hold


@dataclass(frozen=True)
class FeatureColumn:
    """A column of features, or a field of one: the features of each candidate that it holds, in their order.

    width  Their number; 0 if only reading tells the length of lists.
    """

    column: str
    field: str | None  # the field of the structs in its lists; None if the lists hold numbers, lists or whole structs
    kind: pa.DataType  # of what the column's lists hold, or of the field
    fields: tuple[str, ...] = ()  # of whole structs, without the id
    width: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        if self.fields:
            return tuple(f"{self.column}.{name}" for name in self.fields)
        whole = self.column if self.field is None else f"{self.column}.{self.field}"
        return tuple(f"{whole}[{j}]" for j in range(self.width)) if is_list(self.kind) else (whole,)

    @property
    def types(self) -> list[pa.DataType]:
        if self.fields:
            return [self.kind.field(name).type for name in self.fields]
        return [self.kind.value_type if is_list(self.kind) else self.kind]


def split_path(schema: pa.Schema, path: str) -> tuple[str, str | None]:
    """Return a column and, for "items.id", the field of its structs. A column may have a dot in its own name."""
    if path in schema.names or "." not in path:
        return path, None
    column, _, field = path.rpartition(".")
    return (column, field) if column in schema.names else (path, None)


def inner_type(schema: pa.Schema, path: str) -> pa.DataType:
    """Return the type of what a column has for each candidate."""
    column, field = split_path(schema, path)
    require_column(schema, column, "candidates")
    kind = schema.field(column).type
    if not is_list(kind):
        raise LogError(f"candidates column {column!r} has type {kind}: it must hold a list, one entry a candidate")
    kind = kind.value_type
    if field is None:
        return kind
    names = [kind.field(i).name for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    if field not in names:
        raise LogError(f"column {column!r} holds {kind}, which has no field {field!r}: {suggest(field, names)}")
    return kind.field(field).type


@dataclass(frozen=True)
class Stored:
    """What the metadata of a schema says about candidates."""

    candidates: Candidates
    propensities: str | None  # of all candidates
    sample_rate: str | None


def stored_candidates(schema: pa.Schema, action: Any) -> Stored | None:
    """Return the candidates that the metadata of a schema names, if their columns are there.

    action  The column of the action, if it was named. The metadata may be about another.
    """
    try:
        found = json.loads((schema.metadata or {})[STORED])
        candidates = Candidates(found["ids"], Sparse(*found["sparse"]), POSITION)
        columns = {found["action"], *candidate_columns(schema, candidates)}
        more = [found.get(role) for role in ("propensities", "sample_rate")]
    except (KeyError, ValueError, TypeError, AttributeError, LogError):
        return None
    if not columns <= set(schema.names) or action not in (FIND, found["action"]):
        return None
    return Stored(candidates, *(name if name in schema.names else None for name in more))


def candidates_metadata(action: str, ids: str, sparse: Sparse, **more: str) -> dict[bytes, bytes]:
    """Return metadata from which a log finds its candidates by itself. Its actions are positions.

    more  Columns for `propensities`, of all candidates, and `sample_rate`, if there are any.
    """
    form = [sparse.indices, sparse.values, int(sparse.dim)]
    return {STORED: json.dumps({"action": action, "ids": ids, "sparse": form, **more}).encode()}


def check_candidates(schema: pa.Schema, given: Any) -> Candidates:
    """Check candidates= of a log, except for the action."""
    if not isinstance(given, Candidates):
        raise LogError(
            f"{parameter('candidates')} must be drs.Candidates(ids=..., features=...): got {type(given).__name__}"
        )
    _check_names(given)
    if given.action_is not in (None, ID, POSITION):
        raise LogError(f'Candidates: action_is={given.action_is!r}: it must be "id" or "position"')
    if given.ids is None and not given.pieces and given.sparse is None:
        lookup = " to look features up with" if given.items else ""
        raise LogError(f"Candidates: name the column with the lists of ids{lookup}, ids=...")
    if given.ids is not None:
        kind = inner_type(schema, given.ids)
        if not is_label(kind):
            raise LogError(f"Candidates: ids {given.ids!r} are {kind}: ids are integers or text")
        if given.items is not None and is_string(_plain(kind)) != is_string(_plain(given.items.loaded.kind)):
            raise LogError(
                f"Candidates: ids {given.ids!r} are {kind}, and those of the items, column {given.items.id!r}, are "
                f"{given.items.loaded.kind}: ids must be of one kind to be looked up"
            )
    if len(set(given.pieces)) < len(given.pieces):
        raise LogError(f"Candidates: features={list(given.pieces)}: name each column once")
    pieces_of(schema, given)
    if given.sparse is not None:
        inner = pa.schema([(name, inner_type(schema, name)) for name in dict.fromkeys(given.sparse.columns)])
        check_sparse(inner, given.sparse, "candidate")
    return given


def _check_names(given: Candidates) -> None:
    if not isinstance(given.ids, str | None):
        raise LogError(f"Candidates: ids={_brief(given.ids)}: it must be the name of a column with lists of ids")
    features = given.features
    if isinstance(features, str | Items | Sparse | None):
        return
    if not _are_names(features):
        raise LogError(
            f"Candidates: features={_brief(features)}: they must be names of columns, Items(table, ...) or Sparse(...)"
        )


def _are_names(given: Any) -> bool:
    return isinstance(given, Sequence) and all(isinstance(name, str) for name in given)


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 and "\n" not in shown else f"a {type(value).__name__}"


def pieces_of(schema: pa.Schema, candidates: Candidates) -> list[FeatureColumn]:
    """Return what the columns of features hold."""
    found = []
    for path in candidates.pieces:
        column, field = split_path(schema, path)
        kind = inner_type(schema, path)
        fields: tuple[str, ...] = ()
        value, width = kind, 1
        if pa.types.is_struct(kind):
            ids = (None, None) if candidates.ids is None else split_path(schema, candidates.ids)
            inside = [kind.field(i) for i in range(kind.num_fields)]
            fields = tuple(f.name for f in inside if (column, f.name) != ids)
            strange = next((f for f in inside if f.name in fields and not is_number(f.type)), None)
            if strange is not None or not fields:
                shown = f"field {strange.name!r} of {path!r} is {strange.type}" if strange else f"{path!r} has none"
                raise LogError(
                    f"Candidates: features are numbers, and {shown}: name the fields to use, features=["
                    f'"{path}.name", ...], and give text as numbers'
                )
            width = len(fields)
        elif is_list(kind):
            value, width = kind.value_type, int(kind.list_size) if pa.types.is_fixed_size_list(kind) else 0
        if not fields and not is_number(value):
            raise LogError(
                f"Candidates: features {path!r} are {kind}: a candidate has a number, a list of numbers, or a struct "
                "of numbers. Give text as numbers, e.g. 0 or 1 for each category"
            )
        found.append(FeatureColumn(column, field, kind, fields, width))
    return found


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def with_action(schema: pa.Schema, candidates: Candidates, action: str | None) -> Candidates:
    """Return the candidates with `action_is` decided."""
    if action is None:
        raise LogError(f"{parameter('candidates')} needs the actions: name their column with {parameter('action')}")
    kind = schema.field(action).type
    kind = _plain(kind)
    ids = None if candidates.ids is None else _plain(inner_type(schema, candidates.ids))
    can_be_id = ids is not None and is_string(ids) == is_string(kind)
    told = candidates.action_is
    if told == ID and not can_be_id:
        why = "there are no ids" if ids is None else f"ids are {ids}, and action column {action!r} holds {kind}"
        raise LogError(f'Candidates: action_is="id": {why}')
    if told is None:
        told = ID if can_be_id else POSITION
    if told == POSITION and not pa.types.is_integer(kind):
        what = (
            f"an id would be {ids}, and a position an integer" if ids is not None else "without ids, it is a position"
        )
        raise LogError(f"action column {action!r} holds {kind}: {what}")
    found = replace(candidates, action_is=told)
    object.__setattr__(found, "guessed", candidates.action_is is None)
    return found


def candidate_columns(schema: pa.Schema, candidates: Candidates) -> tuple[str, ...]:
    """Return the columns that hold candidates."""
    paths = [*([] if candidates.ids is None else [candidates.ids]), *candidates.pieces]
    paths += [] if candidates.sparse is None else candidates.sparse.columns
    return tuple(dict.fromkeys(split_path(schema, path)[0] for path in paths))


def feature_type(schema: pa.Schema, candidates: Candidates) -> np.dtype[Any]:
    """Return the type that features have in memory: float32 if that holds them all, else float64."""
    if candidates.items is not None:
        return candidates.items.loaded.features.dtype
    if candidates.sparse is not None:
        return np.dtype(np.float64)
    return number_type([kind for piece in pieces_of(schema, candidates) for kind in piece.types])


class Numbered(Sequence[str]):
    """Names of sparse features, z[0], z[1], ..., without all of these texts in memory. What counts is their number."""

    def __init__(self, column: str, dim: int) -> None:
        self.column, self.dim = column, dim

    def __len__(self) -> int:
        return self.dim

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[j] for j in range(*place.indices(self.dim))]
        return f"{self.column}[{range(self.dim)[place]}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbered) and self.dim == other.dim

    def __hash__(self) -> int:
        return hash(self.dim)


def no_labels() -> LogError:
    return LogError(
        f"this log has {parameter('candidates')}, a set for each event, so it has no labels of actions, and what needs "
        "one set of actions for all events cannot be used with it. To learn a policy, fit a model of rewards and use "
        "drs.policies.Greedy(model); to simulate one that learns, use drs.replay"
    )


def _abridged(names: Sequence[str]) -> list[str]:
    return list(names) if len(names) <= SHOWN else [*names[:3], "...", names[-1]]


def describe_features(names: Sequence[str]) -> str:
    count = len(names)
    if isinstance(names, Numbered):
        return f"{count:,} sparse features each: {names.column}"
    return f"{count} feature{'s' * (count != 1)} each: {', '.join(_abridged(names))}" if count else "no features"
