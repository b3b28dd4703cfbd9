"""A state for each of 30 days: every window of 7 days has the bits of one pass over its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import drstream as drs
from scripts.studies.reliability.record import LOST, SAME, Case
from tests.helpers.days import KINDS, contents, day, write

DAYS, WINDOW = 30, 7
KIND = KINDS["segments and clusters"]


def run(first: int, last: int, folder: Path) -> Iterator[Case]:
    files = folder / "days"
    if not files.exists():
        files.mkdir()
        for path in write(files, [day(seed) for seed in range(DAYS)]):
            KIND.evaluate([path], state=path.with_suffix(".state"))
    paths = sorted(files.glob("*.parquet"))
    for number in range(first, last):
        window = paths[number : number + WINDOW]
        merged = contents(drs.merge([path.with_suffix(".state") for path in window]))
        one_pass = contents(KIND.evaluate(window))
        row = f"windows of {WINDOW} days of {DAYS}, with segments, clusters and differences"
        yield Case(row, SAME) if merged == one_pass else Case(row, LOST, f"window {number}")
