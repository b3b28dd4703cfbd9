"""Measures `evaluate` on candidates, in turns with a bare scan of the same columns; and its peak memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bench.candidates import cases
from bench.candidates.baselines import check_parity
from bench.candidates.log import CandidateFile
from bench.common import logs
from bench.common.racing import compare, race
from bench.common.selecting import params
from bench.evaluation.baselines import scan_row_groups


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_candidates(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    ours, others = race(
        benchmark, lambda: cases.run(case.log, case.interactions), lambda: scan_row_groups(case.log), case.pairs
    )
    found = compare(ours, others, case.log.rows)
    benchmark.extra_info |= {
        "kind": "candidates",
        "name": str(case),
        "task": case.task,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": cases.ROW_GROUPS,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, f"{found['ratio']:.2f} of a bare scan: {case.required:.2f} is required"


@pytest.mark.parametrize("name", cases.MEMORY)
def bench_memory_of_candidates(benchmark: Any, name: str) -> None:
    small, large = cases.MEMORY[name]
    small.make()
    large.make()
    peak(small)  # compiles, or fills the cache of files
    peaks: list[float] = []
    benchmark.pedantic(lambda: peaks.append(peak(large)), rounds=1)
    first, of_items = peak(small), cases.ITEM_BYTES * (large.catalogue - small.catalogue) / 1e6
    growth = (peaks[0] - of_items) / first
    benchmark.extra_info |= {
        "kind": "candidate memory",
        "name": name,
        "small": f"{small.rows:,} rows, {small.catalogue:,} items",
        "large": f"{large.rows:,} rows, {large.catalogue:,} items",
        "peak_mb": [first, peaks[0]],
        "of_items": of_items,
        "growth": growth,
        "required": cases.GROWTH,
        "passed": growth <= cases.GROWTH,
    }
    if logs.FULL_SIZE:
        assert growth <= cases.GROWTH


def peak(log: CandidateFile) -> float:
    command = [sys.executable, "-m", "bench.candidates.once", log.layout, str(log.rows), str(log.catalogue)]
    done = subprocess.run(command, cwd=logs.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)
