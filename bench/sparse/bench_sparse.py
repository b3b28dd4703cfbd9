"""Measures the throughput of `evaluate` and `replay` on sparse contexts, in turns with a baseline."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common.racing import compare, race
from bench.sparse import cases
from bench.sparse.baselines import check_parity, prepare


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def bench_sparse(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    baseline = prepare(case)
    check_parity(case, baseline)
    run = cases.TASKS[case.task]
    ours, theirs = race(benchmark, lambda: run(case.log.path), baseline, case.pairs)
    found = compare(ours, theirs, case.log.rows, case.baseline_rows)
    benchmark.extra_info |= {
        "kind": "sparse",
        "name": str(case),
        "task": case.task,
        "log": str(case.log),
        "rows": case.log.rows,
        "nonzeros": case.log.nonzeros,
        "nonzeros_per_second": case.log.nonzeros / case.log.rows * found["events_per_second"],
        "baseline": case.baseline,
        **found,
    }
