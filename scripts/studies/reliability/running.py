"""Runs a part of the study. A run that was stopped goes on where it stopped; one that was complete begins again."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path

from scripts.studies.reliability import record


def run(part: record.Part, wanted: int, output: Path) -> None:
    """Run the cases of a part that were not run yet, and save what was found after each piece."""
    lacking = [name for name in part.needs if importlib.util.find_spec(name) is None]
    if lacking:
        sys.stderr.write(f"{part.name}: left out, because {', '.join(lacking)} is not installed\n")
        return
    found = record.read(part.name, output)
    if found.get("cases", 0) >= wanted:
        found = {}
    with tempfile.TemporaryDirectory(prefix="drstream-") as folder:
        while (first := found.get("cases", 0)) < wanted:
            last = min(first + part.piece, wanted)
            record.add(found, list(part.run(first, last, Path(folder))), part.needs)
            record.write(found, part.name, output)
            sys.stderr.write(f"{part.name}: {last} of {wanted}, lost {len(found.get('lost', []))}\n")
