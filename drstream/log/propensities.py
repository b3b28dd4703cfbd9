"""Propensities of all actions, from one column of lists or one column an action, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.log.columns import floats_or_nan, lengths, nulls
from drstream.log.encoding import REMEDY
from drstream.log.ragged import Ragged
from drstream.log.schema import is_list
from drstream.types import Bools, Floats

SUM = 0.01  # tolerance on their sum: they may be rounded
LOGGED = 1e-3  # relative tolerance between the logged action's propensity and its place in the list
NULL, LENGTH = "propensities are null", "propensities have another length"
IMPROPER, DIFFERENT = "propensities do not sum to 1", "propensity differs from the propensities of all actions"
OUTSIDE = "propensities do not sum to 1 over the eligible set"


def read_propensities(batch: pa.RecordBatch, names: Sequence[str], n_actions: int) -> tuple[Floats, dict[str, Bools]]:
    """Return propensities (n, K), and which rows are bad for which reason. Bad rows hold NaN."""
    columns = [batch.column(name) for name in names]
    out = np.full((batch.num_rows, n_actions), np.nan)
    null, short = np.zeros((2, batch.num_rows), bool)
    if is_list(columns[0].type):
        null = nulls(columns[0])
        short[~null] = lengths(columns[0].filter(pa.array(~null))) != n_actions
        usable = ~(null | short)
        found = columns[0].filter(pa.array(usable)).flatten()
        out[usable] = floats_or_nan(found).reshape(-1, n_actions)
        missing = np.zeros(batch.num_rows, bool)
        missing[usable] = nulls(found).reshape(-1, n_actions).any(axis=1)
        null = null | missing
    else:
        if len(columns) != n_actions:
            raise LogError(
                f"{parameter('propensities')} names {len(columns)} columns, and there are {n_actions} actions: name "
                "one column for each action, in the order of the labels, or one column of lists"
            )
        for a, column in enumerate(columns):
            null = null | nulls(column)
            out[:, a] = floats_or_nan(column)
    with np.errstate(invalid="ignore"):
        proper = (out >= 0).all(axis=1) & (np.abs(out.sum(axis=1) - 1) <= SUM)
    return out, {NULL: null, LENGTH: short, IMPROPER: ~(proper | null | short)}


def outside(propensities: Floats, lists: Ragged) -> Bools:
    """Return the rows whose propensities (n, K) do not sum to 1 over the eligible set."""
    n, actions = propensities.shape
    rows = np.repeat(np.arange(n), np.diff(lists.starts))
    known = (lists.flat >= 0) & (lists.flat < actions)
    inside = np.bincount(rows[known], propensities[rows[known], lists.flat[known]], n)
    with np.errstate(invalid="ignore"):
        return np.abs(inside - 1) > SUM


def width(schema: pa.Schema, names: Sequence[str]) -> int:
    """Return the number of actions that the columns are for; 0 if only reading them would tell, or there are none."""
    kinds = [schema.field(name).type for name in names]
    if len(names) == 1:
        return int(kinds[0].list_size) if pa.types.is_fixed_size_list(kinds[0]) else 0
    return len(names)


def differ(propensities: Floats, action: np.ndarray, propensity: Floats) -> Bools:
    """Return the rows whose logged propensity is not the one in the list."""
    places = np.clip(action, 0, propensities.shape[1] - 1)
    return far_apart(propensities[np.arange(len(places)), places], propensity)


def far_apart(listed: Floats, propensity: Floats) -> Bools:
    with np.errstate(invalid="ignore"):
        return np.abs(listed - propensity) > LOGGED * np.abs(propensity)


def refuse(
    bad: dict[str, Bools],
    batch: pa.RecordBatch,
    names: Sequence[str],
    propensity: Floats,
    where: Callable[[int], str],
    wanted: str,
) -> None:
    """Raise an error at the first bad row of the first reason that has one."""
    for reason, rows in bad.items():
        if rows.any():
            i = int(np.argmax(rows))
            value = ", ".join(str(batch.column(name)[i]) for name in names)
            logged = f", where that of the logged action is {propensity[i]:.6g}" if reason == DIFFERENT else ""
            raise LogError(
                f"{reason}: got {value}{logged} at {where(i)}, {'column' if len(names) == 1 else 'columns'} "
                f"{', '.join(map(repr, names))}; {wanted}. {REMEDY}"
            )
