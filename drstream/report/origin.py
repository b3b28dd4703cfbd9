"""How a result was made: what its provenance says, for people, and how to make it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABELS = {
    "version": "drstream",
    "log": "Log",
    "rows": "Rows",
    "filter": "Filter",
    "events": "Events used",
    "splits": "Split",
    "before_row": "Rows before",
    "columns": "Columns",
    "actions": "Actions",
    "policies": "Policies",
    "models": "Fitted models",
    "parameters": "Parameters",
    "seed": "Seed",
    "missing": "Missing values",
    "on_bad_row": "Bad rows",
    "held_out": "Held out",
    "fit": "Fit",
    "states": "States",
}
NOT_SHOWN = frozenset({"run", "call"})


def made_of(provenance: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a provenance that say something, each with a label."""
    ordered = [*(key for key in LABELS if key in provenance), *(key for key in provenance if key not in LABELS)]
    found = []
    for key in ordered:
        value = without_nothing(provenance[key])
        if key not in NOT_SHOWN and value not in (None, [], {}):
            found.append((LABELS.get(key, key.replace("_", " ").capitalize()), value))
    return found


def without_nothing(value: Any) -> Any:
    """Leave out what a dictionary says nothing about."""
    if isinstance(value, Mapping):
        return {key: inner for key, one in value.items() if (inner := without_nothing(one)) not in (None, [], {})}
    return value
