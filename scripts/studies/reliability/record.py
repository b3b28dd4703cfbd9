"""What a part of the study has found, as a file of JSON that later runs add to.

Whoever changes such a file by hand says so in its list `notes`, which the results show.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drstream.states.files import atomic_path
from scripts.studies.trials import commit

SAME, ERROR, UNTOLD, LOST = OUTCOMES = ("same", "error", "untold", "lost")
WORDS = 300  # most characters that are kept of what went wrong


@dataclass(frozen=True)
class Case:
    """What came of one fault.

    row      The row of the table that it belongs to.
    outcome  "same": the bits of a run without faults, or the right number. "error": a sentence, and nothing is
             half-written. "untold": another number, where no checksum could have told. "lost": anything else, such
             as a crash.
    words    What happened instead, if it was lost.
    """

    row: str
    outcome: str
    words: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the study.

    run     Runs the cases first..last-1 in a folder of their own, and yields what came of each.
    cases   How many there are in the study.
    piece   How many are run before the results are saved.
    quick   How many there are in the quick form.
    needs   Packages that it needs beside those of drstream.
    """

    name: str
    title: str
    run: Callable[[int, int, Path], Iterator[Case]]
    cases: int
    piece: int = 10
    quick: int = 2
    needs: tuple[str, ...] = ()


def path_of(name: str, folder: Path) -> Path:
    return folder / f"{name}.json"


def read(name: str, folder: Path) -> dict[str, Any]:
    """What was found so far; empty if the part did not run yet."""
    path = path_of(name, folder)
    return json.loads(path.read_text()) if path.exists() else {}


def add(found: dict[str, Any], cases: list[Case], packages: tuple[str, ...] = ()) -> None:
    """Add cases to what was found."""
    rows = found.setdefault("rows", {})
    for case in cases:
        row = rows.setdefault(case.row, dict.fromkeys(OUTCOMES, 0))
        row[case.outcome] += 1
        if case.outcome == LOST:
            found.setdefault("lost", []).append(f"{case.row}: {case.words[:WORDS]}")
    found["cases"] = found.get("cases", 0) + len(cases)
    found["commits"] = sorted({*found.get("commits", []), commit()})
    found["versions"] = versions(packages)


def write(found: dict[str, Any], name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(path_of(name, folder)) as unfinished:
        unfinished.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numpy", "pyarrow", "numba", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
