"""How often intervals cover the truth, measured in simulated logs."""

from __future__ import annotations

import time

from scripts.studies.coverage.simulating import simulate, simulate_thresholds
from scripts.studies.coverage.summary import summary
from scripts.studies.results import Found
from scripts.studies.trials import Setting, made

PARTS = ()


def run(parts: list[str], setting: Setting) -> Found:
    started = time.perf_counter()
    simulate_thresholds(setting)
    simulate(setting)
    found = summary(setting.output)
    found.made["coverage"] = made(setting, started)
    return found
