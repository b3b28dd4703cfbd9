"""The contexts of a log: how many features there are, what they are called, and how columns become features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import DrstreamError, LogError, parameter
from drstream.log.columns import floats_or_nan, number_type
from drstream.log.encoding import ERROR, KEEP, Category, Encoding, Number, encoding_of
from drstream.log.facts import SourceFacts
from drstream.log.finding import find_categories
from drstream.log.schema import Roles, is_list
from drstream.log.spec import Spec
from drstream.types import Floats

FAR_FEATURE = 16.0  # in standard deviations: products in float32 then lose more than one digit of seven


class Contexts:
    """What is known of the contexts of a log."""

    def __init__(self, facts: SourceFacts, spec: Spec) -> None:
        self.facts, self.spec = facts, spec

    @property
    def roles(self) -> Roles:
        """Which column plays which role."""
        return self.spec.roles

    @property
    def schema(self) -> pa.Schema:
        return self.facts.source.schema

    @cached_property
    def encoding(self) -> Encoding | None:
        """How columns become features; None for a column of lists, or `Sparse`. Categories take one pass over them."""
        roles = self.roles
        if roles.listed or roles.sparse is not None:
            return None
        return self.spec.encoding or self.facts.of(self._key, self._find_encoding)

    @property
    def _key(self) -> Any:
        roles = self.roles
        return "encoding", roles.context, roles.categories, roles.hashed, self.spec.missing

    def _find_encoding(self) -> Encoding:
        roles = self.roles
        found = find_categories(self.facts.source, roles.categories) if roles.categories else {}
        return encoding_of(self.schema, roles.context, found, roles.hashed, self.spec.missing)

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of each column that is one-hot encoded."""
        found = self.encoding.columns if self.encoding is not None else ()
        return {column.name: list(column.values) for column in found if isinstance(column, Category)}

    @property
    def sparse(self) -> bool:
        """Whether contexts are sparse: in `Sparse` columns, or one-hot with very many features."""
        return self.roles.sparse is not None or (self.encoding is not None and self.encoding.sparse)

    @property
    def has_nan(self) -> bool:
        """Whether contexts may hold NaN: missing="keep", and some of them are numbers."""
        return self.spec.missing == KEEP and (
            self.encoding is None or any(isinstance(c, Number) for c in self.encoding.columns)
        )

    def refuse_nan(self, who: str, error: type[DrstreamError]) -> None:
        """Raise an error if contexts may hold NaN, for who multiplies them with weights."""
        if self.has_nan:
            raise error(
                f"{who} multiplies features with weights, so it takes no NaN, and the log keeps missing values: "
                f"{parameter('missing', KEEP)}. Open the log with a number to put in their place, e.g. "
                f"{parameter('missing', 0)}, or take a model that knows missing values, e.g. a tree"
            )

    @property
    def names(self) -> list[str]:
        """Names of the features, in their order: age, country=DE, x[0]."""
        if self.encoding is not None:
            return self.encoding.feature_names
        return [f"{self.roles.context[0]}[{j}]" for j in range(self.width)]

    @cached_property
    def width(self) -> int:
        """Number of features of a context, d."""
        if self.roles.sparse is not None:
            return int(self.roles.sparse.dim)
        if self.encoding is not None:
            return self.encoding.n_features
        kind = self.schema.field(self.roles.context[0]).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        return _first_length(self.facts.first([self.roles.context[0]]))

    @cached_property
    def type(self) -> np.dtype[Any]:
        """The type that scores of contexts have: float32 if all contexts are stored so, or smaller; else float64.

        Sparse contexts have float64. So have contexts with a feature that is far from 0, compared with its spread over
        the first rows: products in float32 would lose the digits that matter.
        """
        types = self._number_types or {np.dtype(np.float32)} if self.roles.coded else self._number_types
        single = types == {np.dtype(np.float32)} and self._features_are_near_zero and not self.sparse  # may be a pass
        return np.dtype(np.float32 if single else np.float64)

    @property
    def _number_types(self) -> frozenset[np.dtype[Any]]:
        kinds = [self.schema.field(name).type for name in self._number_columns]
        return frozenset(number_type([kind.value_type if is_list(kind) else kind]) for kind in kinds)

    @property
    def _number_columns(self) -> list[str]:
        """The columns of the context that are not one-hot encoded."""
        return [name for name in self.roles.context if name not in self.roles.coded]

    @property
    def _features_are_near_zero(self) -> bool:
        names = self._number_columns
        if not names:
            return True
        first = self.facts.first(names)
        if first is None:
            return True
        columns = [first.column(name) for name in names]
        flat = [floats_or_nan(column.flatten() if is_list(column.type) else column) for column in columns]
        if not self.roles.listed:
            return _near_zero(np.array(flat).T)
        width = self.width
        return all(_near_zero(x.reshape(-1, width)) for x in flat if width and len(x) % width == 0)

    @property
    def reads_numbers(self) -> bool:
        """Whether contexts are numbers that are used as they are."""
        return self.spec.missing == ERROR and not self.roles.coded

    def __str__(self) -> str:
        roles = self.roles
        if roles.sparse is not None:
            return f"sparse, {roles.sparse.dim:,} features: {', '.join(roles.context)}"
        if roles.listed:
            return f"{roles.context[0]}: {self.schema.field(roles.context[0]).type}"
        if roles.starred and not roles.coded and roles.context:
            return f"{len(roles.context)} feature{'s' * (len(roles.context) > 1)}: {', '.join(roles.context)}"
        if not roles.context:
            return "none"
        known = self.spec.encoding is not None or self.facts.known(self._key)
        if roles.categories and not known and self.facts.source.rows is None:
            return f"{', '.join(roles.context)}: categories not known before reading"
        return str(self.encoding)


def _near_zero(x: Floats) -> bool:
    """Whether the mean of each column is at most FAR_FEATURE standard deviations from 0; a constant may be so large."""
    with np.errstate(all="ignore"):
        known = np.where(np.isfinite(x), x, np.nan)
        mean, spread = abs(np.nansum(known, axis=0)) / len(known), np.sqrt(np.nansum(known**2, axis=0) / len(known))
        spread = np.sqrt(np.maximum(spread**2 - mean**2, 0))
    constant = spread <= 1e-6 * mean
    return bool((mean <= np.where(constant, FAR_FEATURE, FAR_FEATURE * spread)).all())


def _first_length(first: pa.RecordBatch | None) -> int:
    """Return the length of the first context, for lists whose type does not fix the length."""
    lengths = [] if first is None else first.column(0).value_lengths().drop_null()
    if not len(lengths):
        raise LogError("the log is empty")
    return int(lengths[0].as_py())
