"""What is read of each event. A field names its columns, and reads them, or raises an error about rows that are bad.

How an event's action is read is a matter of the kind of the log: see `kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from drstream.log.bad_rows import finite_numbers, probabilities, refuse, refuse_items, whole
from drstream.log.columns import has_nulls, known_numbers, lengths, nulls, numbers
from drstream.log.encoding import ERROR, KEEP, KEEP_IT, NULL, Encoding, Missing, check_finite
from drstream.log.ragged import flat_lists
from drstream.log.sparse import Sparse, read_sparse
from drstream.log.spec import Needs, Spec
from drstream.types import Floats

NO_ACTIONS = np.empty(0, np.int32)
NO_NUMBERS = np.empty(0)
NO_CLUSTER = "cluster is null"


class Field(Protocol):
    """Something that is read of each event. It can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to decode."""

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes of `Events`, given those that fields before have read, or raise `BadRowsError`.

        A check may rely on all checks before it: what is bad for these is not in the batch any more.
        """


@dataclass(frozen=True)
class RewardFields:
    """The reward, and others of a log with several."""

    columns: tuple[str, ...]
    negated: bool

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        first, *others = (self._of(batch, name) for name in self.columns)
        return {"reward": first, "more_rewards": dict(zip(self.columns[1:], others, strict=True))}

    def _of(self, batch: pa.RecordBatch, name: str) -> Floats:
        reward = finite_numbers(batch, name, "reward")
        return -reward if self.negated else reward


@dataclass(frozen=True)
class LoggedPropensity:
    """The propensity of the logged action."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"propensity": probabilities(batch, self.column, "propensity")}


@dataclass(frozen=True)
class SamePropensity:
    """The propensity of every logged action; None if the log has none, or another field knows it."""

    value: float | None
    columns = ()

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"propensity": NO_NUMBERS if self.value is None else np.full(batch.num_rows, self.value)}


@dataclass(frozen=True)
class SampleRate:
    """The number of rows that each row of a down-sampled log stands for."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"row_weight": 1 / probabilities(batch, self.column, "sample rate")}


@dataclass(frozen=True)
class Clusters:
    """The columns whose values decide on splits, folds and buckets. The reader makes keys of them."""

    columns: tuple[str, ...]

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        for name in self.columns:
            whole(batch, name, NO_CLUSTER)
        return {}


def rewards(spec: Spec) -> list[Field]:
    """How to read rewards and propensities, one of each for an event."""
    roles = spec.roles
    propensity = SamePropensity(spec.constant) if roles.propensity is None else LoggedPropensity(roles.propensity)
    return [RewardFields(roles.rewards, roles.negated), propensity]


# Contexts


@dataclass(frozen=True)
class Numbers:
    """A context of columns of numbers, which are read as they are.

    finite  Whether to look for numbers that are not finite.
    """

    columns: tuple[str, ...]
    finite: bool = True

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        found = []
        for name in self.columns:
            found.append(numbers(whole(batch, name, NULL, KEEP_IT)))
            if self.finite:
                check_finite(found[-1], name)
        return {"context": found}


@dataclass(frozen=True)
class ListContext:
    """A context that is one column of lists of numbers."""

    column: str
    width: int
    missing: Missing
    finite: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        name, d = self.column, self.width
        column = whole(batch, name, NULL)
        fixed = pa.types.is_fixed_size_list(column.type) and column.type.list_size == d
        if not fixed:
            hint = f"Other contexts have {d} numbers. "
            refuse(lengths(column) != d, "context has another length", name, hint=hint)
        starts, flat = flat_lists(column)
        if self.missing == ERROR and has_nulls(flat):
            refuse_items(nulls(flat), starts, "context holds a null", name, hint=KEEP_IT)
        instead = None if self.missing == KEEP else self.missing
        values = numbers(flat) if self.missing == ERROR else known_numbers(flat, instead)
        matrix = values.reshape(len(column), d)
        if self.finite:
            check_finite(matrix, name, nan=self.missing == KEEP)
        return {"context": matrix}


@dataclass(frozen=True)
class SparseRows:
    """A context that is sparse."""

    sparse: Sparse

    @property
    def columns(self) -> tuple[str, ...]:
        return self.sparse.columns

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"context": read_sparse(batch, self.sparse)}


@dataclass(frozen=True)
class Encoded:
    """A context with categories, or with missing values."""

    encoding: Encoding

    @property
    def columns(self) -> tuple[str, ...]:
        return self.encoding.names

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"context": self.encoding.read(batch)}


def context(spec: Spec, needs: Needs) -> list[Field]:
    """How to read contexts, if anybody needs them."""
    roles, finite = spec.roles, needs.finite or spec.skip_bad_rows
    if not needs.context:
        return []
    if roles.sparse is not None:
        return [SparseRows(roles.sparse)]
    if spec.encoding is not None:
        return [Encoded(spec.encoding)]
    if roles.listed:
        return [ListContext(roles.context[0], spec.width, spec.missing, finite)]
    return [Numbers(roles.context, finite)]
