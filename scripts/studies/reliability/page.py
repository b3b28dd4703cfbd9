"""Writes docs/reliability.md from the results of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drstream.storage import atomic_path
from scripts.studies.paper.page import wrapped
from scripts.studies.reliability.parts import PARTS
from scripts.studies.reliability.record import ERROR, LOST, OUTCOMES, SAME, UNTOLD, read

KILLS = "kills"  # results of scripts/kills
HEAD = {SAME: "same bits or right", ERROR: "clear error", UNTOLD: "not to be told", LOST: "lost"}


def write_page(folder: Path, path: Path) -> None:
    with atomic_path(path) as unfinished:
        unfinished.write_text(page(folder))


def page(folder: Path) -> str:
    """The page, from files in a folder. Parts that were not run yet are left out."""
    found = {name: read(name, folder) for name in PARTS}
    kills = read(KILLS, folder)
    totals = [(part.title, _total(found[name])) for name, part in PARTS.items() if found[name]]
    if kills:
        totals.insert(0, ("Kills", _total(of_kills(kills))))
    pieces = [_begin(totals)]
    if kills:
        pieces.append(_kills(kills))
    for name, part in PARTS.items():
        if found[name]:
            pieces.append(f"## {part.title}\n\n{wrapped(part.text)}\n{_table(found[name])}\n{_made(found[name])}")
    return "\n".join(pieces)


def _begin(totals: list[tuple[str, dict[str, int]]]) -> str:
    lost = sum(row[LOST] for _, row in totals)
    cases = sum(sum(row.values()) for _, row in totals)
    text = (
        "drstream promises: kill it anywhere, lose any worker, break any byte of a file, and you get the same "
        f"bits or a clear error. This page counts what came of {cases:,} faults that were injected on purpose. "
        f"**Lost: {lost or 'none'}.** Lost would be a crash of the interpreter, a hang, a raw traceback, a "
        "half-written file, other bits, or another number where a checksum could have told. `scripts/reliability`"
        " makes the faults and this page; its results are in docs/reliability/. What is promised, and what not, "
        "is in [security.md](security.md), [states.md](states.md) and [scale-out.md](scale-out.md)."
    )
    words = (
        f"{HEAD[UNTOLD].capitalize()}: a number in a file without checksums was changed to another valid number. "
        "Nobody can tell. Parquet files and states of drstream have checksums."
    )
    rows = [f"| {title} | {_cells(row)} |" for title, row in totals]
    return f"# Reliability\n\n{wrapped(text)}\n{_header('faults')}\n" + "\n".join(rows) + f"\n\n{wrapped(words)}\n"


def _header(first: str) -> str:
    return f"| {first} | injected | {' | '.join(HEAD.values())} |\n|---|" + "---|" * (1 + len(OUTCOMES))


def _cells(row: dict[str, int]) -> str:
    return " | ".join(f"{count:,}" for count in (sum(row.values()), *(row[outcome] for outcome in OUTCOMES)))


def _table(found: dict[str, Any]) -> str:
    rows = [f"| {name} | {_cells(row)} |" for name, row in found["rows"].items()]
    return _header("what") + "\n" + "\n".join(rows) + "\n"


def _total(found: dict[str, Any]) -> dict[str, int]:
    return {outcome: sum(row[outcome] for row in found["rows"].values()) for outcome in OUTCOMES}


def of_kills(kills: dict[str, Any]) -> dict[str, Any]:
    """The results of scripts/kills in the form of other parts."""
    rows = {}
    for row in kills["rows"]:
        lost = int(row["lost"])
        rows[row["work"]] = {SAME: int(row["points"]) - lost, ERROR: 0, UNTOLD: 0, LOST: lost}
    return {**kills, "rows": rows}


def _kills(kills: dict[str, Any]) -> str:
    text = (
        "A run is killed with SIGKILL at points from its start to its end, and started again with the same "
        "checkpoint. It must end with the bits of a run that was never killed. `scripts/kills` does this."
    )
    return f"## Kills\n\n{wrapped(text)}\n{_table(of_kills(kills))}\n{_made(kills)}"


def _made(found: dict[str, Any]) -> str:
    commits = found.get("commits") or [found.get("commit", "unknown")]
    versions = ", ".join(f"{name} {version}" for name, version in found.get("versions", {}).items())
    notes = "".join(f" {note}" for note in found.get("notes", []))
    return wrapped(f"Made by commit {', '.join(commits)}, with {versions}.{notes}")
