"""Measures how long states of many days take to become a result."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import pytest

import drstream as drs
from bench.common import logs
from bench.common.selecting import params
from bench.states import cases


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_states(benchmark: Any, case: cases.Case) -> None:
    states = case.states()
    assert drs.merge(states).n == cases.DAYS * cases.ROWS
    found: list[float] = []

    def merge() -> None:
        begun = perf_counter()
        drs.merge(states).rows()
        found.append(perf_counter() - begun)

    benchmark.pedantic(merge, rounds=cases.ROUNDS)
    benchmark.extra_info |= {
        "kind": "states",
        "name": str(case),
        "what": case.what,
        "bytes": max(map(len, states)),
        "seconds": median(found),
        "all_seconds": found,
        "required": case.required,
        "passed": case.required is None or median(found) <= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert median(found) <= case.required, f"{median(found):.2f} s: {case.required:g} s at most"
