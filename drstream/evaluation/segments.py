"""Which segment each event belongs to: the values of some columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drstream.errors import DrstreamError, LogError, parameter
from drstream.evaluation.totals import Key, Totals
from drstream.execution import check_memory
from drstream.log.schema import is_string, require_column
from drstream.types import Ints

MOST_VALUES = 10_000  # different segments in one pass
MOST_WITH_GROUPS = 1_000  # if each has sums by bucket or stretch: 50 kB a segment, for one policy
MOST_SHOWN = 100  # segments in a result; the rarer ones are pooled
TAKEN = frozenset(
    [
        "policy",
        "estimator",
        "value",
        "low",
        "high",
        "difference",
        "difference_stderr",
        "difference_low",
        "difference_high",
        "n",
        "ess",
        "method",
        "p_value",
        "q_value",
        "level",
    ]
)  # columns of the table of segments
OTHER = "(other)"  # each column of the pooled segment


def check_columns(schema: pa.Schema, names: Sequence[str]) -> None:
    """Raise an error unless segments can be made from these columns."""
    for name in names:
        if not isinstance(name, str):
            raise LogError(f"{parameter('by', names)}: name a column, or several")
        require_column(schema, name, "segments")
        if name in TAKEN:
            raise LogError(f"{parameter('by')} names column {name!r}, and the table of segments has one: rename it")
        kind = schema.field(name).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_floating(value) or pa.types.is_decimal(value):
            raise LogError(
                f"{parameter('by')} names column {name!r}, which has type {kind}: segments are made from columns with "
                "few different values. Round it, or cut it into ranges, and name that column"
            )
        simple = is_string(value) or pa.types.is_integer(value) or pa.types.is_boolean(value)
        if not (simple or pa.types.is_date(value)):
            raise LogError(
                f"{parameter('by')} names column {name!r}, which has type {kind}: it must hold text, whole numbers, "
                "booleans or dates"
            )
    if len(set(names)) < len(names):
        raise DrstreamError(f"{parameter('by', list(names))} names a column twice")


def segments_of(columns: pa.RecordBatch, names: Sequence[str]) -> tuple[Ints, list[Key]]:
    """Return the segment of each event of a batch, as an index, and the keys of these segments."""
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
    most = math.prod(map(len, values))
    if most > 1 << 20:  # too many combinations to count each
        used, segment = np.unique(code, return_inverse=True)
        return segment.reshape(-1), [_key(int(number), values) for number in used]
    present = np.bincount(code, minlength=most) > 0
    place = np.cumsum(present) - 1
    return place[code], [_key(int(number), values) for number in np.flatnonzero(present)]


def _key(code: int, values: list[list[Any]]) -> Key:
    key = []
    for found in reversed(values):
        code, place = divmod(code, len(found))
        key.append(found[place])
    return tuple(reversed(key))


def check_number(found: int, names: Sequence[str], size: int, *, groups: bool) -> None:
    """Raise an error if there are too many segments to hold, of so many bytes each.

    With `groups`, each has sums by bucket or stretch.
    """
    most = min(MOST_WITH_GROUPS, MOST_VALUES) if groups else MOST_VALUES
    if found > most:
        why = ", each with sums for clusters, bootstrap or anytime intervals" if groups else ""
        raise LogError(
            f"{parameter('by', list(names))} makes more than {most:,} segments{why}: name columns with fewer different "
            "values"
        )
    check_memory(
        found * size,
        f"sums of {found:,} segments",
        f"name columns with fewer different values than {parameter('by', list(names))} has, or take fewer policies",
    )


def pooled(totals: dict[Key, Totals], names: Sequence[str]) -> dict[Key, Totals]:
    """Return the largest segments, by key, and one that pools all others."""
    by_size = sorted(totals, key=lambda key: -totals[key].count)  # stable: first seen, first kept
    kept = sorted(by_size[:MOST_SHOWN], key=_order)
    found = {key: totals[key] for key in kept}
    rest = [key for key in totals if key not in found]
    if rest:
        other = totals[rest[0]].shape.create()
        for key in rest:
            other.merge(totals[key])
        name = OTHER
        while (name,) * len(names) in found:  # a value of the log itself
            name = f"({name})"
        found[(name,) * len(names)] = other
    return found


def _order(key: Key) -> list[tuple[bool, str, Any]]:
    """Sort by value, with nulls last."""
    return [(value is None, type(value).__name__, value if value is not None else 0) for value in key]
