"""Which groups events belong to: segments, loggers, stretches of time, buckets of clusters or rows, and pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drstream import sampling
from drstream.evaluation.form import BUCKETS, SumsForm
from drstream.evaluation.sums import Sums
from drstream.log import Events
from drstream.types import Ints

SEED = 0x5851F42D4C957F2D  # gives buckets other random numbers than splits and folds
SHORT, OCTAVE = 8, 4  # a stretch has 2^8 rows at first; from row 2^12 on, each octave has 2^4 stretches
MOST_COUNTED = 1 << 20  # combinations of values, each of which is counted
Key = tuple[Any, ...]  # the values of a segment


@dataclass(frozen=True)
class Grouped:
    """The group of each event of a batch, as an index of keys."""

    index: Ints
    keys: Sequence[Hashable]


def groups_of(form: SumsForm, batch: Events, logger: str | None) -> dict[str, Grouped]:
    """Return the groups of a batch's events, by grouping. Keys of buckets are their numbers."""
    wanted = {part for grouping in form.groupings for part in grouping.parts}
    found: dict[str, Grouped] = {}
    if "segment" in wanted:
        found["segment"] = segments_of(batch.columns, form.by)
    if "logger" in wanted:
        assert logger is not None
        found["logger"] = segments_of(batch.columns, [logger])
    if "stretch" in wanted:
        found["stretch"] = _stretches(batch.numbers)
    if "segment stretch" in (grouping.name for grouping in form.groupings):
        found["segment stretch"] = _pairs(found["segment"], found["stretch"])
    if "bucket" in wanted:
        found["bucket"] = Grouped(buckets_of(batch.keys if len(batch.keys) else batch.in_file), range(BUCKETS))
    return found


def index_of(form: SumsForm, groups: dict[str, Grouped], sums: Sums) -> NDArray[np.int32]:
    """Return the records (groupings, n) of a batch's events in the tables, which get records for new keys."""
    out = np.empty((len(form.groupings), len(next(iter(groups.values())).index) if groups else 0), np.int32)
    for row, grouping in zip(out, form.groupings, strict=True):
        table, parts = sums.tables[grouping.name], grouping.parts
        if not grouping.sums:
            found = groups[grouping.name]
            np.take(table.places_of(found.keys).astype(np.int32), found.index, out=row)
        elif len(parts) == 1:
            np.add(groups["bucket"].index, table.places_of([()])[0] * table.per, out=row, casting="unsafe")
        else:
            found = groups[parts[0]]
            bucket = groups["bucket"].index // (BUCKETS // table.per)
            row[:] = table.places_of(found.keys)[found.index] * table.per + bucket
    return out


def segments_of(columns: pa.RecordBatch, names: Sequence[str]) -> Grouped:
    """The segment of each event of a batch: its values in some columns."""
    code = np.zeros(columns.num_rows, np.int64)
    values: list[list[Any]] = []
    for name in names:
        column = columns.column(name)
        if not isinstance(column, pa.DictionaryArray):
            column = pc.dictionary_encode(column, null_encoding="encode")
        found = column.dictionary.to_pylist()
        index = column.indices.fill_null(len(found)).to_numpy(zero_copy_only=False).astype(np.int64)
        values.append([*found, None])
        code = code * len(values[-1]) + index
    most = 1
    for known in values:
        most *= len(known)
    index, used = _used(code, most)
    return Grouped(index, [_key(number, values) for number in used])


def _used(code: Ints, most: int) -> tuple[Ints, list[int]]:
    """Number the codes that occur, and return the number of each event, and those codes."""
    if most > MOST_COUNTED:  # too many to count each
        found, index = np.unique(code, return_inverse=True)
        return index.reshape(-1), found.tolist()
    present = np.bincount(code, minlength=most) > 0
    return (np.cumsum(present) - 1)[code], np.flatnonzero(present).tolist()


def _key(code: int, values: list[list[Any]]) -> Key:
    key = []
    for found in reversed(values):
        code, place = divmod(code, len(found))
        key.append(found[place])
    return tuple(reversed(key))


def _pairs(one: Grouped, other: Grouped) -> Grouped:
    size = len(other.keys)
    index, used = _used(one.index * size + other.index, size * len(one.keys))
    return Grouped(index, [(one.keys[code // size], other.keys[code % size]) for code in used])


def buckets_of(keys: NDArray[np.uint64]) -> Ints:
    """Return the bucket of each event, given the key of its cluster, or its row in its file."""
    return (sampling.at_rows(SEED, keys) * BUCKETS).astype(np.int64)


def _stretches(rows: Ints) -> Grouped:
    """The stretches of events, given their row numbers."""
    index, keys = np.empty(len(rows), np.int64), dict[int, int]()
    for stretch, first, last in stretches_of(rows):
        index[first:last] = keys.setdefault(stretch, len(keys))
    return Grouped(index, list(keys))


def stretch_of(row: int) -> int:
    """Return the stretch of a row.

    >>> [stretch_of(row) for row in (0, 255, 256, 4_095, 4_096, 8_192, 8_704)]
    [0, 0, 1, 15, 16, 32, 33]
    """
    octave = row.bit_length() - 1
    later = octave - (SHORT + OCTAVE) + 1  # octaves of 2^OCTAVE stretches before and after it
    if later <= 0:
        return row >> SHORT
    return (later << OCTAVE) + ((row - (1 << octave)) >> (octave - OCTAVE))


def stretch_end(index: int) -> int:
    """Return the first row after a stretch.

    >>> all(stretch_of(stretch_end(i) - 1) == i and stretch_of(stretch_end(i)) == i + 1 for i in range(300))
    True
    """
    later, place = divmod(index, 1 << OCTAVE)
    if later == 0:
        return (index + 1) << SHORT
    octave = later + SHORT + OCTAVE - 1
    return (1 << octave) + ((place + 1) << (octave - OCTAVE))


def stretches_of(rows: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the stretches that rows belong to, each with the places of its first row and after its last.

    Rows ascend. If they were put in the order of their folds, they ascend in runs, and a stretch comes in several
    pieces.
    """
    falls = np.flatnonzero(rows[1:] < rows[:-1]) + 1
    first = 0
    for stop in [*falls.tolist(), len(rows)]:
        while first < stop:
            index = stretch_of(int(rows[first]))
            end = stretch_end(index)
            last = stop if rows[stop - 1] < end else first + int(np.searchsorted(rows[first:stop], end))
            yield index, first, last
            first = last
