"""Propensities of all actions, from one column of lists or one column an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.log.bad_rows import refuse, refuse_items, whole
from drstream.log.columns import floats, floats_or_nan, has_nulls, lengths, nulls
from drstream.log.ragged import Ragged, flat_lists
from drstream.log.schema import is_list
from drstream.types import Bools, Floats, Ints

SUM = 0.01  # tolerance on their sum: they may be rounded
LOGGED = 1e-3  # relative tolerance between the logged action's propensity and its place in the list
NULL, LENGTH = "propensities are null", "propensities have another length"
IMPROPER, DIFFERENT = "propensities do not sum to 1", "propensity differs from the propensities of all actions"
OUTSIDE = "propensities do not sum to 1 over the eligible set"


@dataclass(frozen=True)
class AllPropensities:
    """The propensities of all actions.

    columns  One column of lists, or a column for each action.
    logged   The column of the logged propensity, if there is one.
    """

    columns: tuple[str, ...]
    n_actions: int
    logged: str | None

    def read(self, batch: pa.RecordBatch, known: Mapping[str, Any]) -> dict[str, Any]:
        names, n = self.columns, batch.num_rows
        listed = is_list(batch.schema.field(names[0]).type)
        values = self._of_lists(batch, names[0]) if listed else self._of_columns(batch)
        with np.errstate(invalid="ignore"):
            proper = (values >= 0).all(axis=1) & (np.abs(values.sum(axis=1) - 1) <= SUM)
        refuse(~proper, IMPROPER, *names)
        propensity = known["propensity"]
        if len(propensity):
            of_logged = values[np.arange(n), known["action"]]
            refuse(far_apart(of_logged, propensity), DIFFERENT, *names, *beside(self.logged))
        if known.get("eligible") is not None:
            refuse(_outside(values, known["eligible"].lists), OUTSIDE, *names)
        return {"propensities": values}

    def _of_lists(self, batch: pa.RecordBatch, name: str) -> Floats:
        column = whole(batch, name, NULL)
        hint = f"There are {self.n_actions} actions. "
        refuse(lengths(column) != self.n_actions, LENGTH, name, hint=hint)
        return numbers_of_lists(column, name)[1].reshape(-1, self.n_actions)

    def _of_columns(self, batch: pa.RecordBatch) -> Floats:
        if len(self.columns) != self.n_actions:
            raise LogError(
                f"{parameter('propensities')} names {len(self.columns)} columns, and there are {self.n_actions} "
                "actions: name one column for each action, in the order of the labels, or one column of lists"
            )
        return np.stack([floats(whole(batch, name, NULL)) for name in self.columns], axis=1)


def numbers_of_lists(column: pa.Array, name: str) -> tuple[Ints, Floats]:
    """Return where lists of propensities begin, and their items. No list is null."""
    starts, flat = flat_lists(column)
    if has_nulls(flat):
        refuse_items(nulls(flat), starts, NULL, name)
    return starts, floats_or_nan(flat)


def _outside(propensities: Floats, lists: Ragged) -> Bools:
    """Return the rows whose propensities (n, K) do not sum to 1 over the eligible set."""
    rows = np.repeat(np.arange(len(propensities)), np.diff(lists.starts))
    inside = np.bincount(rows, propensities[rows, lists.flat], len(propensities))
    return np.abs(inside - 1) > SUM


def far_apart(listed: Floats, propensity: Floats) -> Bools:
    with np.errstate(invalid="ignore"):
        return np.abs(listed - propensity) > LOGGED * np.abs(propensity)


def beside(column: str | None) -> tuple[str, ...]:
    """A column whose value a message shows, too, if there is one."""
    return () if column is None else (column,)


def width(schema: pa.Schema, names: Sequence[str]) -> int:
    """Return the number of actions that the columns are for; 0 if only reading them would tell, or there are none."""
    kinds = [schema.field(name).type for name in names]
    if len(names) == 1:
        return int(kinds[0].list_size) if pa.types.is_fixed_size_list(kinds[0]) else 0
    return len(names)
