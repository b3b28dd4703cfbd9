"""How far replay is from true online runs of the same learner, on simulated logs."""

from __future__ import annotations

import time

from scripts.studies.replay.simulating import simulate
from scripts.studies.replay.summary import summary
from scripts.studies.results import Found
from scripts.studies.trials import Setting, made

PARTS = ()


def run(parts: list[str], setting: Setting) -> Found:
    started = time.perf_counter()
    simulate(setting)
    found = summary(setting.output)
    found.made["replay"] = made(setting, started)
    return found
