"""How columns become features: numbers as they are, categories one-hot, hashed columns one-hot by a hash.

An encoding belongs to a log, and to each model or policy that was fitted on it. It is saved with them, and meets
another log's columns by name.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream.errors import LogError, parameter
from drstream.kernels.checks import first_not_finite
from drstream.kernels.order import gather
from drstream.kernels.scores import one_hot
from drstream.log.bad_rows import BadRowsError, whole
from drstream.log.categories import INTEGER, TEXT, Hashed, category_kind
from drstream.log.columns import has_nulls, known_numbers, nulls
from drstream.log.rows import keys_of
from drstream.log.schema import Roles
from drstream.log.sparse import Csr
from drstream.types import Ints

NULL = "context is null"
ERROR, KEEP = "error", "keep"  # what happens to missing values, beside a number that replaces them
DENSE = 256  # most features of dense one-hot contexts; with more, contexts are sparse
OTHER = -1  # the code of a value that is not among the categories: none of its features is 1
NULL_KEY = np.uint64(0x6E756C6C00000000)  # a null is hashed as a value of its own
SHOWN = 6  # most categories, or names, that a line shows
GAMMA, MIX = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
KEEP_IT = f"Say what missing values mean with {parameter('missing')}. "

Missing = str | float
Pick = Callable[[str], pa.Array]  # returns a column of the events


def check_missing(missing: Any) -> Missing:
    """Check the parameter missing= of a log."""
    if isinstance(missing, str) and missing in (ERROR, KEEP):
        return missing
    if isinstance(missing, int | float) and not isinstance(missing, bool) and np.isfinite(missing):
        return float(missing)
    raise LogError(f'{parameter("missing", missing)}: it must be "error", "keep", or a number to put in their place')


# Columns


@dataclass(frozen=True)
class Number:
    """A column of numbers or booleans: one feature."""

    name: str
    width = 1

    def feature_names(self) -> list[str]:
        return [self.name]

    def fits(self, kind: pa.DataType) -> bool:
        if pa.types.is_dictionary(kind):
            return False
        return category_kind(kind) != TEXT and not pa.types.is_nested(kind)

    def read(self, column: pa.Array, missing: Missing) -> NDArray[Any]:
        return known_numbers(column, None if missing == KEEP else missing)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Category:
    """A column of categories: a feature for each, which is 1 for that category and else 0."""

    name: str
    kind: str  # what the categories are: TEXT, INTEGER or BOOLEAN
    values: tuple[Any, ...]
    null: bool = False  # whether null is a category, too, the last one

    @property
    def width(self) -> int:
        return len(self.values) + self.null

    def feature_names(self) -> list[str]:
        return [*(f"{self.name}={value}" for value in self.values), *([f"{self.name} is missing"] * self.null)]

    def fits(self, kind: pa.DataType) -> bool:
        return category_kind(kind) == self.kind

    @cached_property
    def _known(self) -> pa.Array:
        kind = pa.large_string() if self.kind == TEXT else pa.bool_()
        if self.kind == INTEGER:
            kind = pa.uint64() if self.values and max(self.values) >= 2**63 else pa.int64()
        return pa.array(list(self.values), kind)

    def read(self, column: pa.Array, missing: Missing) -> NDArray[np.int32]:
        """Return the number of each event's category, or OTHER."""
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        words, known = column.dictionary, self._known
        found = pc.index_in(words.cast(known.type, safe=False), value_set=known).fill_null(OTHER)
        codes = np.append(found.to_numpy(zero_copy_only=False), np.int32(len(self.values) if self.null else OTHER))
        if words.null_count:
            codes[:-1][nulls(words)] = codes[-1]
        return _taken(codes, column.indices)

    def __str__(self) -> str:
        shown = abridged([str(value) for value in self.values])
        more = ", and missing" if self.null else ""
        return f"{self.name} ({len(self.values)} categor{'y' if len(self.values) == 1 else 'ies'}: {shown}{more})"


@dataclass(frozen=True)
class Buckets:
    """A column that is hashed: 2**bits features, of which the one that the hash names is 1."""

    name: str
    bits: int
    kind: str

    @property
    def width(self) -> int:
        return 1 << self.bits

    def feature_names(self) -> list[str]:
        return [f"{self.name}#{bucket}" for bucket in range(self.width)]

    def fits(self, kind: pa.DataType) -> bool:
        return category_kind(kind) == self.kind

    def read(self, column: pa.Array, missing: Missing) -> NDArray[np.int32]:
        if isinstance(column, pa.DictionaryArray):
            words = column.dictionary
            return _taken(self._buckets(pa.concat_arrays([words, pa.nulls(1, words.type)])), column.indices)
        return self._buckets(column)

    def _buckets(self, column: pa.Array) -> NDArray[np.int32]:
        keys = keys_of(column)
        if has_nulls(column):
            keys = np.where(nulls(column), NULL_KEY, keys)
        z = keys * GAMMA + GAMMA  # splitmix64's finaliser: keys of integers are the integers themselves
        z = (z ^ (z >> np.uint64(30))) * MIX[0]
        z = (z ^ (z >> np.uint64(27))) * MIX[1]
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(64 - self.bits)).astype(np.int32)

    def __str__(self) -> str:
        return f"{self.name} (hashed, {self.width:,} features)"


Column = Number | Category | Buckets


def _taken(codes: NDArray[np.int32], indices: pa.Array) -> NDArray[np.int32]:
    """Return the codes of dictionary indices. Those of null have the last code."""
    if indices.type != pa.int32():
        indices = indices.cast(pa.int32())
    if indices.null_count:
        indices = indices.fill_null(len(codes) - 1)
    out = np.empty(len(indices), np.int32)
    gather(codes, indices.to_numpy(), out)
    return out


# All columns of a context


@dataclass(frozen=True)
class Encoding:
    """How the columns of a context become features."""

    columns: tuple[Column, ...]
    missing: Missing = ERROR

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers."""
        return all(isinstance(column, Number) for column in self.columns)

    @cached_property
    def n_features(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def sparse(self) -> bool:
        return not self.plain and self.n_features > DENSE

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.feature_names()]

    def same_as(self, other: Encoding) -> bool:
        """Whether both give the same features, and treat missing values alike."""
        return self is other or self == other

    def read(self, batch: pa.RecordBatch) -> Coded | Csr | list[NDArray[Any]]:
        """Return the contexts of some events."""
        found = []
        for column in self.columns:
            missing = self.missing == ERROR
            values = whole(batch, column.name, NULL, KEEP_IT) if missing else batch.column(column.name)
            found.append(column.read(values, self.missing))
            if isinstance(column, Number):
                check_finite(found[-1], column.name, nan=self.missing == KEEP)
        if self.plain:
            return found
        coded = Coded(tuple(found), tuple(None if isinstance(c, Number) else c.width for c in self.columns))
        return coded.sparse() if self.sparse else coded

    def others(self, pick: Pick) -> Counter[str]:
        """Count the events whose value is not among the categories, by column."""
        counts: Counter[str] = Counter()
        for column in self.columns:
            if isinstance(column, Category):
                count = int((column.read(pick(column.name), self.missing) == OTHER).sum())
                counts.update({column.name: count} if count else {})
        return counts

    def roles(self, roles: Roles) -> Roles:
        """Return a log's roles, with the columns of this encoding as the context."""
        categories = tuple(column.name for column in self.columns if isinstance(column, Category))
        hashed = tuple(Hashed(column.name, column.bits) for column in self.columns if isinstance(column, Buckets))
        return replace(roles, context=self.names, categories=categories, hashed=hashed)

    def with_missing(self, missing: Missing) -> Encoding:
        return self if missing == self.missing else replace(self, missing=missing)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        columns = [{"as": type(column).__name__.lower(), **_plain(column)} for column in self.columns]
        return {"columns": columns, "missing": self.missing}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Encoding:
        kinds: dict[str, Any] = {"number": Number, "category": Category, "buckets": Buckets}
        columns = []
        for about in found["columns"]:
            given = {key: tuple(v) if key == "values" else v for key, v in about.items() if key != "as"}
            columns.append(kinds[about["as"]](**given))
        return cls(tuple(columns), check_missing(found["missing"]))

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Encoding:
        return cls(tuple(map(Number, names)))

    def __str__(self) -> str:
        size, shown = self.n_features, [str(column) for column in self.columns]
        if self.plain:
            return f"{size} feature{'s' * (size != 1)}: {abridged(shown, 8)}"
        form = "sparse, " if self.sparse else ""
        return f"{form}{size:,} feature{'s' * (size != 1)} of {len(shown)} columns: {', '.join(shown)}"


def _plain(column: Column) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in vars(column).items() if not key.startswith("_")}


def abridged(names: Sequence[str], most: int = SHOWN) -> str:
    return ", ".join(names if len(names) <= most else [*names[:3], "...", names[-1]])


def check_finite(values: NDArray[Any], name: str, *, nan: bool = False) -> None:
    """Raise an error if a number, or a row of numbers, is infinite or, unless it may be there, NaN."""
    if first_not_finite(values.reshape(-1)) < 0:
        return
    bad = np.isinf(values) if nan else ~np.isfinite(values)
    rows = bad if values.ndim == 1 else bad.any(axis=1)
    if rows.any():
        hint = KEEP_IT if np.isnan(values[np.argmax(rows)]).any() else ""
        raise BadRowsError("context is not finite", (name,), rows, hint=hint)


# Contexts of events


@dataclass(frozen=True)
class Coded:
    """Dense contexts with categories: columns of numbers, and columns of codes. Features are made a block at a time."""

    columns: tuple[NDArray[Any], ...]
    widths: tuple[int | None, ...]  # number of categories of a column of codes; None for a column of numbers

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def n_features(self) -> int:
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        """Number of features of each column."""
        return [1 if width is None else width for width in self.widths]

    @property
    def type(self) -> np.dtype[Any]:
        """The type of the features: that of the numbers."""
        numbers = [c.dtype for c, width in zip(self.columns, self.widths, strict=True) if width is None]
        return np.result_type(np.float32, *numbers)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def take(self, places: Ints) -> Coded:
        found = []
        for column in self.columns:
            found.append(np.empty(len(places), column.dtype))
            gather(np.ascontiguousarray(column), places, found[-1])
        return Coded(tuple(found), self.widths)

    def __getitem__(self, events: slice) -> Coded:
        """Return the contexts of consecutive events, without a copy."""
        return Coded(tuple(column[events] for column in self.columns), self.widths)

    def fill(self, out: NDArray[Any]) -> None:
        """out (d, n) <- the features; contiguous, float32 or float64."""
        first = 0
        for column, width in zip(self.columns, self.widths, strict=True):
            if width is None:
                out[first] = column
            else:
                one_hot(column, out[first : first + width])
            first += 1 if width is None else width

    def matrix(self) -> NDArray[Any]:
        """Return the features (n, d)."""
        out = np.empty((self.n_features, len(self)), self.type)
        self.fill(out)
        return out.T

    def sparse(self) -> Csr:
        """Return the same contexts as sparse rows. Numbers are stored even where they are 0."""
        rows, size = len(self), len(self.columns)
        starts = list(itertools.accumulate(self._sizes, initial=0))
        indices, values = np.empty((rows, size), np.int32), np.ones((rows, size), self.type)
        known = np.ones((rows, size), bool)
        for j, (column, width) in enumerate(zip(self.columns, self.widths, strict=True)):
            if width is None:
                indices[:, j], values[:, j] = starts[j], column
            else:
                np.add(column, starts[j], out=indices[:, j])
                np.not_equal(column, OTHER, out=known[:, j])
        if known.all():
            return Csr(np.arange(rows + 1) * size, indices.reshape(-1), values.reshape(-1), starts[-1])
        indptr = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        return Csr(indptr, indices[known], values[known], starts[-1])


def encoding_of(
    schema: pa.Schema,
    context: Sequence[str],
    found: Mapping[str, Any],
    hashed: Sequence[Hashed],
    missing: Missing,
) -> Encoding:
    """Return the encoding of a log's context, with the categories that were found in it."""
    bits = {item.column: int(item.bits) for item in hashed}
    columns: list[Column] = []
    for name in context:
        kind = category_kind(schema.field(name).type)
        if name in found:
            columns.append(Category(name, str(kind), found[name].values, found[name].null and missing != ERROR))
        else:
            columns.append(Buckets(name, bits[name], str(kind)) if name in bits else Number(name))
    return Encoding(tuple(columns), missing)
