"""Eligible sets: which column may hold the actions that an event could choose from."""

from __future__ import annotations

import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.log.schema import is_label, is_list, is_string


def check_eligible(schema: pa.Schema, name: str, action: str | None) -> None:
    """Raise an error unless the column can hold sets of the labels of the action column."""
    if action is None:
        raise LogError(
            f"{parameter('eligible', name)}: eligible sets are sets of actions, and the log was opened with "
            f"{parameter('action', None)}. Name the column of actions with {parameter('action')}"
        )
    kind, logged = schema.field(name).type, schema.field(action).type
    if not is_list(kind):
        raise LogError(
            f"eligible column {name!r} has type {kind}: it must hold lists of the actions that an event could choose "
            f"from. Name another column with {parameter('eligible')}"
        )
    item = kind.value_type
    if pa.types.is_boolean(item) and not pa.types.is_boolean(logged):
        raise LogError(
            f"eligible column {name!r} has type {kind}, a mask: it must hold lists of the actions that an event could "
            f"choose from, with the labels of {action!r}, e.g. [2, 5] for the mask of the actions 2 and 5"
        )
    if not is_label(item) or is_string(_plain(item)) != is_string(_plain(logged)):
        raise LogError(
            f"eligible column {name!r} has type {kind}, and the action column {action!r} has type {logged}: both must "
            "hold the same labels"
        )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
