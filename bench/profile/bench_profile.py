"""Measures where the time of a pass goes."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from bench.common.selecting import params
from bench.profile import cases
from bench.profile.steps import steps


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_profile(benchmark: Any, case: cases.Case) -> None:
    path = case.log.make()
    if case.is_replay:
        work = lambda: case.task.run(case.log)  # noqa: E731
    else:
        alone = replace(case.task, threads=1)
        work = lambda: alone.run(path)  # noqa: E731
    work()
    found: list[tuple[float, dict[str, float]]] = []
    benchmark.pedantic(lambda: found.append(steps(work)), rounds=cases.ROUNDS)
    ns = 1e9 / case.log.rows
    benchmark.extra_info |= {
        "kind": "profile",
        "name": str(case),
        "task": case.task.name,
        "log": str(case.log),
        "rows": case.log.rows,
        "whole": ns * median(whole for whole, _ in found),
        "steps": {step: ns * median(parts.get(step, 0.0) for _, parts in found) for step in found[0][1]},
    }
