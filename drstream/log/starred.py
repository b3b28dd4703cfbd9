"""What `context="*"` leaves out: columns that look like ids, times or another role; and `exclude=`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from drstream.errors import LogError, parameter, suggest

STAR = "*"
IDS = re.compile(
    r"(.*[_\-. ])?(id|ids|uid|uuid|guid)"
    r"|(user|session|event|request|visitor|visit|cookie|device|member|customer|client|order|impression|row)_?ids?"
)
CAMEL_IDS = re.compile(r".*[a-z0-9](Id|ID|Uid|UID|Uuid|UUID|Guid|GUID)")
TIMES = re.compile(r"(.*[_\-. ])?(timestamp|datetime|ts|epoch)|time|date|.*_at")


@dataclass(frozen=True)
class Suspect:
    """A column that looks like an outcome, and why."""

    column: str
    why: str


def is_glob(pattern: str) -> bool:
    return bool(set("*?[") & set(pattern))


def looks_like(field: pa.Field, roles: Sequence[str]) -> str | None:
    """Return what a column seems to be if it is hardly a feature: an id, a time or, by its name, another role.

    >>> looks_like(pa.field("user_id", pa.int64()), []), looks_like(pa.field("paid", pa.int64()), [])
    ('id', None)
    """
    name, kind = field.name, field.type
    if IDS.fullmatch(name.lower()) or CAMEL_IDS.fullmatch(name) or isinstance(kind, pa.UuidType):
        return "id"
    if pa.types.is_temporal(kind) or TIMES.fullmatch(name.lower()):
        return "time"
    return "another role" if name.lower() in roles else None


def excluded(schema: pa.Schema, exclude: str | Sequence[str] | None) -> set[str]:
    """Return the columns that `exclude=` names, by name or glob."""
    found: set[str] = set()
    for pattern in [exclude] if isinstance(exclude, str) else exclude or ():
        matches = {n for n in schema.names if n == pattern or fnmatch.fnmatchcase(n, str(pattern))}
        if not matches:
            raise LogError(
                f"{parameter('exclude')} names {pattern!r}, which is no column of the log: "
                f"{suggest(str(pattern), schema.names)}"
            )
        found |= matches
    return found
