"""The logging policy's probabilities of all candidates: lists in a column, as long as the candidates of each event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.log.columns import floats_or_nan, lengths, nulls
from drstream.log.offered import Offered, Offers
from drstream.log.propensities import DIFFERENT, IMPROPER, LENGTH, NULL, SUM, far_apart
from drstream.log.ragged import flat_lists
from drstream.types import Bools, Floats, Ints


def flat_propensities(
    batch: pa.RecordBatch, name: str, offered: Offered, position: NDArray[np.int32], propensity: Floats
) -> tuple[Floats, dict[str, Bools]]:
    """Return the propensities of all candidates, and which rows are bad for which reason.

    position    Of the logged candidates.
    propensity  Of the logged candidates; empty if the log has none.
    """
    found, bad = _read(batch.column(name), np.diff(offered.starts))
    if len(propensity):
        bad[DIFFERENT] = far_apart(found[offered.starts[:-1] + position], propensity)
    return found, bad


def bad_lists(
    batch: pa.RecordBatch,
    name: str,
    offers: Offers,
    action: str,
    propensity: str | float | None,
    usable: Bools,
    *,
    uniform: bool,
) -> Iterator[tuple[str, str, Bools]]:
    """Yield each reason to leave rows out that is about these lists, with its column and those rows.

    propensity  The column of the logged propensities, or that of every row, if there are any.
    usable      The rows whose candidates and actions are proper.
    uniform     Whether propensities are 1 / the number of candidates.
    """
    good = batch.filter(pa.array(usable))
    found = replace(offers, with_features=False).read(good, good.column(action))
    assert found is not None
    offered, position = found
    logged = 1 / np.diff(offered.starts) if uniform else np.empty(0)
    if propensity is not None and not uniform:
        by_column = isinstance(propensity, str)
        logged = floats_or_nan(good.column(propensity)) if by_column else np.full(len(offered), propensity)
    for reason, rows in flat_propensities(good, name, offered, position, logged)[1].items():
        every = np.zeros(batch.num_rows, bool)
        every[np.flatnonzero(usable)] = rows
        yield reason, name, every


def _read(column: pa.Array, sizes: Ints) -> tuple[Floats, dict[str, Bools]]:
    """Return the numbers of lists that have these sizes, none of which is 0. Bad rows have NaN."""
    rows = len(column)
    null, improper = nulls(column), np.zeros(rows, bool)
    short = (lengths(column) != sizes) & ~null
    usable = ~(null | short)
    out = np.full(int(sizes.sum()), np.nan)
    if usable.any():
        starts, values = flat_lists(column if usable.all() else column.filter(pa.array(usable)))
        found, first = floats_or_nan(values), starts[:-1]
        missing = np.logical_or.reduceat(nulls(values), first)
        with np.errstate(invalid="ignore"):
            proper = np.minimum.reduceat(found, first) >= 0
            proper &= np.abs(np.add.reduceat(found, first) - 1) <= SUM
        null = null.copy()
        null[usable] |= missing
        improper[usable] = ~(proper | missing)
        out[np.repeat(usable, sizes)] = found
    return out, {NULL: null, LENGTH: short, IMPROPER: improper}
