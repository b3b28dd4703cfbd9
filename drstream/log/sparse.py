"""Sparse contexts: lists of indices and values in the log become the rows of a compressed sparse matrix (CSR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.errors import LogError, suggest
from drstream.kernels import checks
from drstream.log.bad_rows import refuse, refuse_items, whole
from drstream.log.columns import has_nulls, lengths, nulls, numbers
from drstream.log.ragged import flat_lists, places_of
from drstream.types import Ints

if TYPE_CHECKING:
    import scipy.sparse

INDEX_NAMES = ("index", "indices", "idx", "key", "id", "feature", "i")
VALUE_NAMES = ("value", "values", "val", "weight", "v")
CONTEXT = ("context is", "context holds", "context has")  # how reasons to refuse rows begin
STORED = b"drstream.sparse"  # metadata of a schema that says which columns are the sparse context


@dataclass(frozen=True)
class Sparse:
    """`dim` features, most of which are 0: contexts, `Log(context=...)`, or candidates, `Candidates(features=...)`.

    indices   Column with lists of integers 0..dim-1. Lists of structs, or maps, hold the values, too. For candidates,
              it holds a list of such lists, one for each candidate.
    values    Column with lists of numbers, as long as the lists of indices. Without it, every value is 1.
    dim       Number of features.

    If a list holds an index twice, its values are added, as in SciPy's matrices.
    """

    indices: str
    values: str | None = None
    dim: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.dim, Integral) or not 1 <= self.dim < 2**31:
            raise LogError(f"Sparse: dim={self.dim!r}: say how many features there are, from 1 to {2**31 - 1:,}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.indices,) if self.values is None else (self.indices, self.values)


def stored_sparse(schema: pa.Schema) -> Sparse | None:
    """Return the sparse context that the metadata of a schema names, if its columns are there."""
    words = (schema.metadata or {}).get(STORED, b"").decode(errors="replace").split("\n")
    if len(words) != 3 or not set(words[:2]) <= set(schema.names) or not words[2].isdigit():
        return None
    return Sparse(words[0], words[1], int(words[2]))


def sparse_metadata(sparse: Sparse) -> dict[bytes, bytes]:
    """Return metadata from which a log finds its sparse context by itself."""
    return {STORED: "\n".join([*sparse.columns, str(sparse.dim)]).encode()}


@dataclass(frozen=True)
class Csr:
    """Sparse rows: row i has values[indptr[i]:indptr[i + 1]] at indices[indptr[i]:indptr[i + 1]]."""

    indptr: Ints
    indices: NDArray[np.int32]
    values: NDArray[Any]  # float32 or float64
    dim: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> Csr:
        """Return consecutive rows, without a copy."""
        start, stop, _ = rows.indices(len(self))
        return Csr(self.indptr[start : stop + 1], self.indices, self.values, self.dim)

    def take(self, rows: Ints) -> Csr:
        """Return a copy of these rows."""
        indptr, places = places_of(self.indptr, rows)
        return Csr(indptr, self.indices[places], self.values[places], self.dim)

    @property
    def nbytes(self) -> int:
        """Memory of the entries of these rows."""
        entries = int(self.indptr[-1] - self.indptr[0])
        return self.indptr.nbytes + entries * (self.indices.itemsize + self.values.itemsize)

    def row(self, place: int) -> scipy.sparse.csr_array:
        """Return one row (1, dim), for the user's code."""
        return self[place : place + 1].array()

    @classmethod
    def of(cls, matrix: NDArray[Any]) -> Csr:
        """Return the rows of a dense matrix (n, d)."""
        n, d = matrix.shape
        indices = np.tile(np.arange(d, dtype=np.int32), n)
        return cls(np.arange(n + 1, dtype=np.int64) * d, indices, np.ascontiguousarray(matrix).reshape(-1), d)

    def beside(self, other: Csr) -> Csr:
        """Return rows that have these entries, and then those of another's rows, whose indices come after all here."""
        sizes = np.diff(self.indptr), np.diff(other.indptr)
        indptr = np.concatenate([[0], np.cumsum(sizes[0] + sizes[1])])
        indices = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], np.result_type(self.values, other.values))
        begin = indptr[:-1]
        for part, size, shift in ((self, sizes[0], 0), (other, sizes[1], self.dim)):
            first, last = int(part.indptr[0]), int(part.indptr[-1])
            places = np.repeat(begin - part.indptr[:-1], size) + np.arange(first, last)
            indices[places] = part.indices[first:last] + shift
            values[places] = part.values[first:last]
            begin = begin + size
        return Csr(indptr, indices, values, self.dim + other.dim)

    def array(self) -> scipy.sparse.csr_array:
        """Return a read-only SciPy matrix, for the user's code.

        Indices and values are views, unless a row has unsorted or repeated indices.
        """
        from scipy.sparse import csr_array

        first, last = int(self.indptr[0]), int(self.indptr[-1])
        indptr = (self.indptr - first).astype(np.int32 if last - first < 2**31 else np.int64)
        parts = self.values[first:last], self.indices[first:last], indptr
        matrix = csr_array(parts, shape=(len(self), self.dim), copy=False)
        if not matrix.has_canonical_format:  # X.max() and others would sort it in place, in Arrow's memory
            matrix = matrix.copy()
            matrix.sum_duplicates()
        for part in (matrix.data, matrix.indices, matrix.indptr):
            part.flags.writeable = False  # other policies see it too
        return matrix


def check_sparse(schema: pa.Schema, sparse: Sparse, what: str = "context") -> None:
    """Raise an error unless the columns' types can hold sparse contexts, or what else they are."""
    kind = schema.field(sparse.indices).type
    if is_pairs(kind):
        if sparse.values is not None:
            raise LogError(
                f"{what} column {sparse.indices!r} holds indices and values: leave out values={sparse.values!r}"
            )
        _fields(kind, sparse.indices)
    elif not (_is_list(kind) and pa.types.is_integer(kind.value_type)):
        raise LogError(
            f"{what} column {sparse.indices!r} has type {kind}: the indices of sparse {what}s are lists of integers, "
            "or lists of structs of an index and a value"
        )
    if sparse.values is not None:
        kind = schema.field(sparse.values).type
        if not (_is_list(kind) and (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))):
            raise LogError(
                f"{what} column {sparse.values!r} has type {kind}: the values of sparse {what}s are lists of numbers"
            )


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_pairs(kind: pa.DataType) -> bool:
    """Whether a type is a list of structs, or a map."""
    return pa.types.is_map(kind) or (_is_list(kind) and pa.types.is_struct(kind.value_type))


def _fields(kind: pa.DataType, column: str) -> tuple[int, int]:
    """Return the positions of the index and the value among the fields of a struct or map."""
    fields = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else list(kind.value_type)
    whole = [i for i, f in enumerate(fields) if pa.types.is_integer(f.type)]
    index = 0 if pa.types.is_map(kind) and 0 in whole else _usual(fields, whole, INDEX_NAMES)
    others = [i for i, f in enumerate(fields) if i != index and (pa.types.is_floating(f.type) or i in whole)]
    value = _usual(fields, others, VALUE_NAMES)
    if index is None or value is None:
        raise LogError(
            f"context column {column!r} holds {kind}: which fields are the index (an integer) and the value (a number) "
            f"is not plain. Call them index and value; {suggest('index', [f.name for f in fields])}"
        )
    return index, value


def _usual(fields: list[pa.Field], among: list[int], names: Sequence[str]) -> int | None:
    """Return the field with the most usual name, or the only field; None if neither exists."""
    ranks = [(names.index(fields[i].name.lower()), i) for i in among if fields[i].name.lower() in names]
    return min(ranks)[1] if ranks else among[0] if len(among) == 1 else None


def _columns(batch: pa.RecordBatch, sparse: Sparse) -> tuple[Ints, pa.Array, pa.Array | None]:
    """Return where rows start, and flat arrays of indices and values. No list is null."""
    column = batch.column(sparse.indices)
    starts, inside = flat_lists(column)
    if is_pairs(column.type):
        index, value = _fields(column.type, sparse.indices)
        fields = inside.flatten()  # unlike .field(), it respects structs that are null
        return starts, fields[index], fields[value]
    if sparse.values is None:
        return starts, inside, None
    return starts, inside, flat_lists(batch.column(sparse.values))[1]


def read_sparse(batch: pa.RecordBatch, sparse: Sparse, words: tuple[str, str, str] = CONTEXT) -> Csr:
    """Return sparse rows: contexts or, with other words in errors, candidates.

    Indices of int32 and values of float32 or float64 are views of Arrow's memory.
    """
    names = sparse.columns
    for name in names:
        whole(batch, name, f"{words[0]} null")
    if sparse.values is not None:
        sizes = [lengths(batch.column(name)) for name in names]
        refuse(sizes[0] != sizes[1], f"{words[2]} other numbers of indices and values", *names)
    starts, indices, values = _columns(batch, sparse)
    if has_nulls(indices) or (values is not None and has_nulls(values)):
        missing = nulls(indices) if values is None else nulls(indices) | nulls(values)
        refuse_items(missing, starts, f"{words[1]} a null", *names)
    found = indices.to_numpy(zero_copy_only=False)
    if found.dtype != np.int32:
        found = np.clip(found, -1 if found.dtype.kind == "i" else 0, sparse.dim).astype(np.int32)
    if checks.first_outside(found, sparse.dim) >= 0:
        outside = (found < 0) | (found >= sparse.dim)
        refuse_items(outside, starts, f"{words[2]} an index that is not in 0..{sparse.dim - 1}", *names)
    numbers_found = np.ones(len(found), np.float32) if values is None else numbers(values)
    if checks.first_not_finite(numbers_found) >= 0:
        refuse_items(~np.isfinite(numbers_found), starts, f"{words[0]} not finite", *names)
    return Csr(starts, found, numbers_found, int(sparse.dim))
