"""Faults are injected, and what comes of them is counted: the same bits, a clear error, or something lost."""

from __future__ import annotations

import sys

from scripts.studies.reliability.parts import PARTS
from scripts.studies.reliability.record import read
from scripts.studies.reliability.running import run as run_part
from scripts.studies.reliability.summary import summary
from scripts.studies.results import Found
from scripts.studies.trials import Setting


def run(parts: list[str], setting: Setting) -> Found:
    some = [PARTS[name] for name in parts]
    for part in some:
        run_part(part, part.quick if setting.quick else part.cases, setting.output)
    for part in some:
        sys.stderr.write("".join(f"LOST: {text}\n" for text in read(part.name, setting.output).get("lost", [])))
    return summary(some, setting.output)
