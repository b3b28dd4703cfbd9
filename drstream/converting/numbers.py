"""Columns of a text that should hold numbers, and are text because of a few values."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from drstream.converting.text import TextSource
from drstream.errors import LogError, warn_user
from drstream.log.schema import FIND, USUAL, is_string

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
FEW = 0.01  # a share of text up to which a column is rather one of numbers with mistakes


class Words(NamedTuple):
    """The values of a column that are no numbers."""

    number: int
    rows: int
    first: str
    where: str


def check_numbers(source: TextSource, options: dict[str, Any]) -> None:
    """Raise an error if rewards or propensities are text, with the first place, and warn of integers among text."""
    for role in ("reward", "propensity", "action"):
        name = _column(source.schema, role, options.get(role, FIND))
        if name is None or not is_string(source.schema.field(name).type):
            continue
        found = _words(source, name)
        if found is None:
            continue
        if role != "action":
            raise LogError(
                f"{role} must be a number: got {found.first!r} at {found.where}, column {name!r}, the first of "
                f"{found.number:,} such values in {found.rows:,} rows. Repair these lines, or take another column"
            )
        if found.number <= FEW * found.rows:
            warn_user(
                f"column {name!r} holds integers and {found.number:,} other value{'s' * (found.number != 1)} in "
                f"{found.rows:,} rows, the first {found.first!r} at {found.where}: so all actions are text, '1' for 1"
            )


def _column(schema: pa.Schema, role: str, given: Any) -> str | None:
    if given is not FIND:
        return given if given in schema.names else None
    lower = {name.lower(): name for name in schema.names}
    return next((lower[name] for name in USUAL[role] if name in lower), None)


def _words(source: TextSource, name: str) -> Words | None:
    """Return what is known about the values that are no numbers; None if there is none."""
    count = rows = 0
    first = where = ""
    for part in source.parts([name]):
        row = part.first_row
        for batch in part.batches():
            column = batch.column(0).cast(pa.string())
            wrong = pc.fill_null(pc.invert(pc.match_substring_regex(column, NUMBER)), False)
            found = pc.sum(wrong).as_py() or 0
            if found and not count:
                place = pc.index(wrong, True).as_py()
                first, where = column[place].as_py(), part.place.of_row(row + place)
            count, rows, row = count + found, rows + len(column), row + len(column)
    return Words(count, rows, first, where) if count else None
