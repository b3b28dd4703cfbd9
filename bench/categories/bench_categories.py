"""Measures how fast categories become features, in turns with a bare scan of the same columns."""

from __future__ import annotations

from typing import Any

import pytest

from bench.categories import cases
from bench.categories.baselines import BASELINES, check_parity
from bench.common import logs
from bench.common.racing import compare, race
from bench.common.selecting import params


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_categories(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    run = cases.TASKS[case.task]
    ours, others = race(benchmark, lambda: run(case.log), lambda: BASELINES[case.baseline](case.log), case.pairs)
    found = compare(ours, others, case.log.rows)
    benchmark.extra_info |= {
        "kind": "categories",
        "name": str(case),
        "task": case.task,
        "log": str(case.log),
        "rows": case.log.rows,
        "features": cases.opened(case.log).n_features,
        "baseline": case.baseline,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, f"{found['ratio']:.2f} of a bare scan: {case.required:.2f} is required"
