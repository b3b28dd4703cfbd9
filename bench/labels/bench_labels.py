"""Measures how fast a log finds its integer labels, in turns with a bare scan of the column."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import PAIRS, compare, race
from bench.common.selecting import params
from bench.labels import cases
from bench.labels.baselines import check_parity, find, scan


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_labels(benchmark: Any, case: cases.Case) -> None:
    case.make()
    check_parity(case)
    ours, others = race(benchmark, lambda: find(case), lambda: scan(case), PAIRS)
    found = compare(ours, others, cases.ROWS)
    benchmark.extra_info |= {
        "kind": "labels",
        "name": str(case),
        "ids": case.ids,
        "rows": cases.ROWS,
        "baseline": cases.SCAN,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} of the throughput of a scan: {case.required:.2f} is required"
        )
