"""Makes the tables of the study from what its parts have counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.studies.reliability.record import ERROR, LOST, OUTCOMES, SAME, UNTOLD, Part, read
from scripts.studies.results import Found

HEAD = {SAME: "same bits or right", ERROR: "clear error", UNTOLD: "not to be told", LOST: "lost"}


def summary(parts: Iterable[Part], folder: Path) -> Found:
    """A table for each part that has run, whose last row is about all of it."""
    found = Found()
    for part in parts:
        counted = read(part.name, folder)
        if counted:
            rows = [*counted["rows"].items(), (part.title, _total(counted))]
            found.table(part.title, ["what", "injected", *HEAD.values()], [[name, *_cells(row)] for name, row in rows])
            found.made[part.title] = _made(counted)
    return found


def _cells(row: dict[str, int]) -> list[str]:
    return [f"{count:,}" for count in (sum(row.values()), *(row[outcome] for outcome in OUTCOMES))]


def _total(counted: dict[str, Any]) -> dict[str, int]:
    return {outcome: sum(row[outcome] for row in counted["rows"].values()) for outcome in OUTCOMES}


def _made(counted: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in counted.get("versions", {}).items())
    notes = "".join(f". {note}" for note in counted.get("notes", []))
    return f"commit {', '.join(counted['commits'])}, with {versions}{notes}"
