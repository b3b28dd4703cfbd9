"""When a conversion pays: logs, timings in turns, and after how many runs the time is saved."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from scripts.studies.conversions.measure import measure
from scripts.studies.conversions.tables import add
from scripts.studies.results import Found
from scripts.studies.trials import Setting, made

PARTS = ()
ROWS, QUICK_ROWS = 2_500_000, 100_000
ROUNDS, QUICK_ROUNDS = 9, 3  # timings of each kind


def run(parts: list[str], setting: Setting) -> Found:
    started, found = time.perf_counter(), Found()
    with tempfile.TemporaryDirectory(dir=setting.output) as folder:  # 6 GB
        rows, rounds = setting.repetitions(ROWS, QUICK_ROWS), setting.repetitions(ROUNDS, QUICK_ROUNDS)
        add(measure(Path(folder), rows, rounds), found)
    found.made["conversions"] = made(setting, started)
    return found
