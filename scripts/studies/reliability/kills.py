"""Runs that are killed at points from their start to their end, and started again with the same checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.studies.reliability.record import LOST, SAME, Case
from tests.helpers.kills import WORK
from tests.helpers.places import ROOT

POINTS = 50  # of each kind of work


def run(first: int, last: int, folder: Path) -> Iterator[Case]:
    """Cases of one kind of work, in a process that has read no log yet, as it forks."""
    name, out = list(WORK)[first // POINTS], folder / f"{first}.json"
    logs = folder / f"kills-{first}"
    logs.mkdir()
    command = [sys.executable, "-m", "tests.helpers.kills", str(logs), str(last - first)]
    options = ["--work", name, "--seed", str(first), "--json", str(out)]
    subprocess.run([*command, *options], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    (row,) = json.loads(out.read_text())
    yield from (Case(name, SAME) for _ in range(row["same"]))
    yield from (Case(name, LOST, f"a point of {first} to {last - 1}") for _ in range(row["lost"]))
