"""How often intervals cover the truth, measured in simulated logs."""

from __future__ import annotations

import time

from scripts.studies.coverage.simulating import simulate
from scripts.studies.coverage.summary import summary
from scripts.studies.coverage.worlds import GROUPS, WORLDS
from scripts.studies.results import Found
from scripts.studies.trials import Setting, made

PARTS = (*GROUPS, *WORLDS)  # groups of worlds, and worlds


def run(parts: list[str], setting: Setting) -> Found:
    started = time.perf_counter()
    asked = [name for group, worlds in GROUPS.items() for name in worlds if {group, name} & set(parts)]
    simulate(asked, setting)
    found = summary(setting.output)
    found.made["coverage"] = made(setting, started)
    return found
