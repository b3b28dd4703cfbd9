"""Segments: which columns make them, how many there may be, and one that pools the rare ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from drstream.errors import DrstreamError, LogError, parameter
from drstream.evaluation.groupings import Key
from drstream.log.schema import is_string, require_column
from drstream.running.execution import check_memory

MOST_VALUES = 10_000  # different segments in one pass
MOST_WITH_GROUPS = 1_000  # if each has sums by stretch
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


class Counted(Protocol):
    """Sums over events, which can be merged."""

    @property
    def count(self) -> int: ...

    def merged(self, other: Self) -> Self: ...


Some = TypeVar("Some", bound=Counted)


def pooled(found: Mapping[Key, Some], names: Sequence[str]) -> dict[Key, Some]:
    """Return the largest segments, by key, and one that pools all others."""
    by_size = sorted(found, key=lambda key: -found[key].count)  # stable: first seen, first kept
    kept = {key: found[key] for key in sorted(by_size[:MOST_SHOWN], key=_order)}
    rest = [found[key] for key in found if key not in kept]
    if rest:
        name = OTHER
        while (name,) * len(names) in kept:  # a value of the log itself
            name = f"({name})"
        kept[(name,) * len(names)] = reduce(lambda one, other: one.merged(other), rest)
    return kept


def _order(key: Key) -> list[tuple[bool, str, Any]]:
    """Sort by value, with nulls last."""
    return [(value is None, type(value).__name__, value if value is not None else 0) for value in key]
