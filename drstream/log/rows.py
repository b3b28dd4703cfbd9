"""Choices of rows: splits and folds by a hash of the row number or of its cluster, blocks of rows, and origins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream import sampling
from drstream.errors import LogError, phrase
from drstream.kernels.random import hash_texts
from drstream.log.columns import has_nulls, nulls
from drstream.sources.base import SameObject
from drstream.types import Bools, Floats, Ints

Keys = NDArray[np.uint64]
OF_SPLITS = 0xD1342543DE82EF95  # added to the seed of a split, once for each split before it and for itself
FOLD_SEED = 0xA3EC647659359ACD  # gives folds other random numbers than splits and replays with the same seed


@dataclass(frozen=True)
class Split:
    """The rows whose random number lies in [low, high), or outside of it. Rows of a cluster share one random number."""

    seed: int
    low: float
    high: float
    outside: bool = False
    cluster: str | None = None

    def keep(self, u: Floats) -> Bools:
        inside = (u >= self.low) & (u < self.high)
        return ~inside if self.outside else inside

    @property
    def complement(self) -> Split:
        return Split(self.seed, self.low, self.high, not self.outside, self.cluster)

    @property
    def _intervals(self) -> list[tuple[float, float]]:
        return [(0.0, self.low), (self.high, 1.0)] if self.outside else [(self.low, self.high)]

    @property
    def share(self) -> float:
        """Expected share of the rows."""
        return math.fsum(high - low for low, high in self._intervals)

    def excludes(self, other: Split) -> bool:
        """Whether no row can be in both splits."""
        if (self.seed, self.cluster) != (other.seed, other.cluster):
            return False
        return all(min(b, d) <= max(a, c) for a, b in self._intervals for c, d in other._intervals)

    def __str__(self) -> str:
        shown = " and ".join(f"[{low:g}, {high:g})" for low, high in self._intervals if low < high) or "no interval"
        return f"{'rows' if self.cluster is None else f'values of {self.cluster}'} with a random number in {shown}"


@dataclass(frozen=True)
class Folds:
    """A division of a log into `count` folds that are about equally large."""

    count: int
    seed: int = 0
    cluster: str | None = None

    @property
    def _seed(self) -> int:
        return (self.seed + FOLD_SEED) % 2**64

    @property
    def _edges(self) -> Floats:
        return np.arange(self.count) / self.count

    @property
    def key(self) -> Keys:
        """The seed, as kernels take it."""
        found = np.array([self._seed], np.uint64)
        found.flags.writeable = False
        return found

    def of(self, keys: Keys) -> Ints:
        """Return the fold of each row, given row numbers or the keys of clusters."""
        return sampling.folds_at_rows(self._seed, keys, self.count)

    def all_but(self, fold: int) -> Split:
        """Return the split of the rows in all other folds."""
        edges = np.append(self._edges, 1.0)
        return Split(self._seed, float(edges[fold]), float(edges[fold + 1]), True, self.cluster)


@dataclass(frozen=True)
class Blocks:
    """A division of a log into blocks of consecutive rows, to fit models on earlier blocks only.

    The first block has `first` rows. Each later one is half as long as all blocks before it together, so an event is
    scored by a model that was fitted on at least two thirds of the rows before it, and all fits together read about two
    logs. Only the row number decides on the block.

    >>> Blocks(first=1000, rows=3000).starts.tolist()
    [0, 1000, 1500, 2250]
    """

    first: int
    rows: int  # of the log
    cluster = None  # blocks are about time, not about users

    @cached_property
    def starts(self) -> Ints:
        """The first row of each block."""
        found, row = [0], self.first
        while row < self.rows:
            found.append(row)
            row += max(1, row // 2)
        return np.array(found)

    @property
    def count(self) -> int:
        return len(self.starts)

    def of(self, rows: Keys | Ints) -> Ints:
        """Return the block of each row."""
        return np.searchsorted(self.starts, rows.astype(np.int64, copy=False), side="right") - 1


def keys_of(column: pa.Array) -> Keys:
    """Return a key for each cluster value: an integer itself, else a hash of the text; 0 for null."""
    keys = _keys_of_values(column)
    return np.where(nulls(column), np.uint64(0), keys) if has_nulls(column) else keys


def _keys_of_values(column: pa.Array) -> Keys:
    """Return the keys of `keys_of`. The keys of nulls are arbitrary."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):  # UUIDs
        return _keys_of_values(column.storage)
    if pa.types.is_dictionary(kind):
        keys = np.append(_keys_of_values(column.dictionary), np.uint64(0))  # the last key is for nulls
        return keys[column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)]
    if pa.types.is_integer(kind):  # NumPy would convert integers with nulls to floats
        column = column.fill_null(0) if column.null_count else column
        return column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).view(np.uint64)
    if pa.types.is_floating(kind):
        column = pc.add(column.cast(pa.float64()), 0.0)  # turns -0.0 into 0.0
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.large_binary())
    else:
        column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    first = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return hash_texts(first, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8))


def check_cluster(schema: pa.Schema, name: Any) -> None:
    check_key(schema, name, "cluster", "a user's id")


def check_key(schema: pa.Schema, name: Any, role: str, example: str) -> None:
    """Raise an error unless `keys_of` takes the column."""
    kind = schema.field(name).type
    if pa.types.is_nested(kind):
        raise LogError(f"{role} column {name!r} has type {kind}: it must hold one value a row, e.g. {example}")
    if pa.types.is_floating(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise LogError(
            f"{role} column {name!r} has type {kind}: it rounds whole numbers beyond 2^53, so different ones may be "
            "the same. Cast it to integers or text; of CSV and JSON, with "
            + phrase(f"types={{{name!r}: 'uint64'}}", "drs.read_csv in Python, which takes types")
        )
    usable = not pa.types.is_binary_view(kind)  # Arrow cannot filter such a column
    try:
        keys_of(pa.nulls(0, kind))
    except pa.ArrowException:
        usable = False
    if not usable:
        raise LogError(f"{role} column {name!r} has type {kind}: cast it to integers, strings or binary")


def split_seed(seed: int, depth: int) -> int:
    """Return the seed for the random numbers of a split. `depth` is the number of splits that came before.

    A split of a split needs new numbers, else it would put all rows on one side. A split never uses `seed` itself. Its
    numbers are the u_k of a replay, and all u_k of a split's first part would be small.
    """
    return (seed + (depth + 1) * OF_SPLITS) % 2**64


def seed_of_split(key: int, depth: int) -> int:
    """Return the seed that `split_seed` made this one of."""
    return (key - (depth + 1) * OF_SPLITS) % 2**64


@dataclass(frozen=True)
class Origin:
    """Where rows came from. A fitted model keeps it, to compare it with the rows that the model is used on."""

    name: str
    keys: tuple[Any, ...]  # paths of files, or objects
    splits: tuple[Split, ...] = ()
    filter: str | None = None
    stop: int | None = None  # only rows before this one

    def shares_rows_with(self, other: Origin) -> bool:
        """Whether a row may be in both. Filters are ignored."""
        if self.keys != other.keys:  # the same row may have two numbers, so only clusters can tell rows apart
            apart = any(a.cluster and a.excludes(b) for a in self.splits for b in other.splits)
            return bool(set(self.keys) & set(other.keys)) and not apart
        return not any(a.excludes(b) for a in self.splits for b in other.splits)

    def __str__(self) -> str:
        before = [] if self.stop is None else [f"rows before {self.stop:,}"]
        return ", ".join([self.name, *(["filtered"] if self.filter else []), *before, *map(str, self.splits)])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON. Keys that are objects are dropped."""
        return {
            "name": self.name,
            "files": [key for key in self.keys if isinstance(key, str)],
            "splits": [vars(split) for split in self.splits],
            "filter": self.filter,
            "stop": self.stop,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Origin:
        keys: Sequence[Any] = found["files"] or [SameObject(None)]
        splits = tuple(Split(**s) for s in found["splits"])
        return cls(found["name"], tuple(keys), splits, found["filter"], found.get("stop"))
