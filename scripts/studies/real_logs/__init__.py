"""Evaluates policies on real logs whose truth is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scripts.studies.real_logs import arms, open_bandit, tables
from scripts.studies.results import Found
from scripts.studies.trials import Setting, made


class RealLog(NamedTuple):
    run: Callable[[Setting], dict[str, Any]]
    add: Callable[[dict[str, Any], Found], None]  # figures and tables of these rows


PARTS = {
    "open_bandit": RealLog(open_bandit.run, tables.open_bandit),
    "hillstrom": RealLog(arms.hillstrom, tables.hillstrom),
    "gotv": RealLog(arms.gotv, tables.gotv),
}


def run(parts: list[str], setting: Setting) -> Found:
    found = Found(figures={"level of intervals, %": "95"})
    for name in parts:
        started = time.perf_counter()
        PARTS[name].add(PARTS[name].run(setting), found)
        found.made[name] = made(setting, started)
    return found
