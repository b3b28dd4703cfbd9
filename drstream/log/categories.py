"""Which context columns are categories, which are hashed, and which are numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, parameter, suggest

TEXT, INTEGER, BOOLEAN = "text", "integers", "booleans"  # what categories can be


@dataclass(frozen=True)
class Hashed:
    """A column of too many categories, for the list of `Log(context=[...])`.

    column  Name of a column of strings, integers, booleans or a dictionary of them.
    bits    The column has 2**bits features. A hash of the value says which of them is 1. Two values may share one.

    The hash is the same in every process and on every machine.

    >>> Hashed("user_agent", bits=18).width
    262144
    """

    column: str
    bits: int = 18

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise LogError(f"Hashed({self.column!r}): name one column")
        if not isinstance(self.bits, Integral) or isinstance(self.bits, bool) or not 1 <= self.bits <= 28:
            raise LogError(f"Hashed({self.column!r}, bits={self.bits!r}): bits must be a whole number from 1 to 28")

    @property
    def width(self) -> int:
        return 1 << int(self.bits)


def category_kind(kind: pa.DataType) -> str | None:
    """Return what categories a column of this type can have; None if it can have none."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    if pa.types.is_integer(kind):
        return INTEGER
    return BOOLEAN if pa.types.is_boolean(kind) else None


def is_category(kind: pa.DataType) -> bool:
    """Whether a context column of this type is taken as categories without being named in `categorical=`."""
    return category_kind(kind) == TEXT or (pa.types.is_dictionary(kind) and category_kind(kind) is not None)


def separate(context: Any) -> tuple[Any, tuple[Hashed, ...]]:
    """Return the parameter context= with names in place of hashed columns, and the hashed columns."""
    if isinstance(context, Hashed):
        return [context.column], (context,)
    if not isinstance(context, list | tuple) or not any(isinstance(item, Hashed) for item in context):
        return context, ()
    hashed = tuple(item for item in context if isinstance(item, Hashed))
    names = [item.column if isinstance(item, Hashed) else item for item in context]
    twice = next((item.column for item in hashed if names.count(item.column) > 1), None)
    if twice is not None:
        raise LogError(f"{parameter('context')} names {twice!r} twice: a column is hashed or one-hot encoded, not both")
    return names, hashed


def choose_categories(
    schema: pa.Schema, context: Sequence[str], hashed: Iterable[Hashed], wanted: Any
) -> tuple[str, ...]:
    """Return the context columns to one-hot encode: text, dictionaries, and those that categorical= names."""
    apart = {item.column for item in hashed}
    for name in apart:
        if category_kind(schema.field(name).type) is None:
            raise LogError(
                f"Hashed column {name!r} has type {schema.field(name).type}: it must hold strings, integers, booleans "
                "or a dictionary of them"
            )
    named = [wanted] if isinstance(wanted, str) else list(wanted or ())
    for name in named:
        _check_named(schema, context, apart, name)
    return tuple(
        name for name in context if name not in apart and (name in named or is_category(schema.field(name).type))
    )


def _check_named(schema: pa.Schema, context: Sequence[str], hashed: set[str], name: Any) -> None:
    if name not in context:
        raise LogError(
            f"{parameter('categorical')} names {name!r}, which is not part of the context: "
            f"{suggest(str(name), context)} Name it with {parameter('context')}, too"
        )
    if name in hashed:
        raise LogError(f"column {name!r} is hashed: leave it out of {parameter('categorical')}")
    kind = schema.field(name).type
    if category_kind(kind) is None:
        raise LogError(
            f"{parameter('categorical')} names {name!r}, which has type {kind}: categories are strings, integers, "
            "booleans or a dictionary of them"
        )
