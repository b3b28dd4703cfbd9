"""Measures the throughput of `evaluate` on rankings, in turns with a bare scan of the same columns."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common.baselines import scan
from bench.common.racing import compare, race
from bench.rankings import cases
from bench.rankings.baselines import check_parity


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def bench_rankings(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    ours, theirs = race(benchmark, lambda: cases.evaluate(case.log.path), lambda: scan(case.log), case.pairs)
    found = compare(ours, theirs, case.log.rows)
    benchmark.extra_info |= {
        "kind": "rankings",
        "name": str(case),
        "log": str(case.log),
        "rows": case.log.rows,
        "items_per_second": cases.LENGTH * found["events_per_second"],
        "baseline": case.baseline,
        **found,
    }
