"""Which rows of a log are meant: splits and folds by hash of the row, or of its cluster, and where rows came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream import sampling
from drstream.errors import LogError
from drstream.kernels.random import hash_texts
from drstream.log.columns import has_nulls, nulls
from drstream.log.source import Same
from drstream.types import Bools, Floats, Ints

Keys = NDArray[np.uint64]
FOLD_SEED = 0xA3EC647659359ACD  # folds draw other numbers than splits and replays of the same seed


@dataclass(frozen=True)
class Split:
    """The rows whose random number lies in [low, high), or outside of it; the number of the row or of its cluster."""

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

    def excludes(self, other: Split) -> bool:
        """Whether no row can be in both."""
        if (self.seed, self.cluster) != (other.seed, other.cluster):
            return False
        return all(min(b, d) <= max(a, c) for a, b in self._intervals for c, d in other._intervals)

    def __str__(self) -> str:
        shown = " and ".join(f"[{low:g}, {high:g})" for low, high in self._intervals if low < high) or "no interval"
        return f"{'rows' if self.cluster is None else f'values of {self.cluster}'} with a random number in {shown}"


@dataclass(frozen=True)
class Folds:
    """So many parts of a log, about equally large."""

    count: int
    seed: int = 0
    cluster: str | None = None

    @property
    def _seed(self) -> int:
        return (self.seed + FOLD_SEED) % 2**64

    @property
    def _edges(self) -> Floats:
        return np.arange(self.count) / self.count

    def of(self, keys: Keys) -> Ints:
        """The fold of each row, from the keys of `keys_of`."""
        return np.searchsorted(self._edges, sampling.at_rows(self._seed, keys), side="right") - 1

    def all_but(self, fold: int) -> Split:
        """The rows of the other folds."""
        edges = np.append(self._edges, 1.0)
        return Split(self._seed, float(edges[fold]), float(edges[fold + 1]), True, self.cluster)


def keys_of(column: pa.Array) -> Keys:
    """What stands for a cluster's value in the hash: integers themselves, else a hash of the text; 0 for null."""
    keys = _keys_of_values(column)
    return np.where(nulls(column), np.uint64(0), keys) if has_nulls(column) else keys


def _keys_of_values(column: pa.Array) -> Keys:
    """The same, with anything for nulls."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):  # UUIDs
        return _keys_of_values(column.storage)
    if pa.types.is_dictionary(kind):
        keys = np.append(_keys_of_values(column.dictionary), np.uint64(0))  # the last for nulls
        return keys[column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)]
    if pa.types.is_integer(kind):  # with nulls, NumPy would see floats
        return column.fill_null(0).cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).view(np.uint64)
    if pa.types.is_floating(kind):
        column = pc.add(column.cast(pa.float64()), 0.0)  # -0.0 is 0.0, too
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.large_binary())
    else:
        column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    first = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return hash_texts(first, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8))


def check_cluster(schema: pa.Schema, name: Any) -> None:
    kind = schema.field(name).type
    if pa.types.is_nested(kind):
        raise LogError(f"cluster column {name!r} has type {kind}: it must hold one value a row, e.g. a user's id")
    usable = not pa.types.is_binary_view(kind)  # Arrow filters no such column
    try:
        keys_of(pa.nulls(0, kind))
    except pa.ArrowException:
        usable = False
    if not usable:
        raise LogError(f"cluster column {name!r} has type {kind}: cast it to integers, strings or binary")


def split_seed(seed: int, depth: int) -> int:
    """The seed of a split's random numbers: another for a split of a split, which else would put all rows on one side;
    and never `seed` itself, whose numbers are the u_k of a replay: of a split's first part all would be small.
    """
    return (seed + (depth + 1) * 0xD1342543DE82EF95) % 2**64


@dataclass(frozen=True)
class Origin:
    """Where rows came from: to be kept with a fitted model, and compared with the rows that it is used on."""

    name: str
    keys: tuple[Any, ...]  # paths of files, or objects
    splits: tuple[Split, ...] = ()
    filter: str | None = None

    def shares_rows_with(self, other: Origin) -> bool:
        """Whether a row may be in both; filters are not looked into."""
        if self.keys != other.keys:  # rows are numbered otherwise, unless clusters tell them apart
            apart = any(a.cluster and a.excludes(b) for a in self.splits for b in other.splits)
            return bool(set(self.keys) & set(other.keys)) and not apart
        return not any(a.excludes(b) for a in self.splits for b in other.splits)

    def __str__(self) -> str:
        return ", ".join([self.name, *(["filtered"] if self.filter else []), *map(str, self.splits)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON; objects cannot be kept."""
        return {
            "name": self.name,
            "files": [key for key in self.keys if isinstance(key, str)],
            "splits": [vars(split) for split in self.splits],
            "filter": self.filter,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Origin:
        keys: Sequence[Any] = found["files"] or [Same(None)]
        return cls(found["name"], tuple(keys), tuple(Split(**s) for s in found["splits"]), found["filter"])
