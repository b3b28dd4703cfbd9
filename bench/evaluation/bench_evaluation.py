"""Measures the throughput of `evaluate` in turns with a baseline."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import PAIRS, compare, race
from bench.common.selecting import params
from bench.evaluation import cases
from bench.evaluation.baselines import check_parity, prepare


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_throughput(benchmark: Any, case: cases.Case, tmp_path: Path) -> None:
    case.log.make()
    with ExitStack() as stack:
        baseline = prepare(case, tmp_path, stack)
        check_parity(case, baseline)
        ours, others = race(benchmark, lambda: case.task.run(case.log.path), baseline, pairs=PAIRS)
    found = compare(ours, others, case.log.rows, case.baseline_rows)
    benchmark.extra_info |= {
        "kind": "throughput",
        "name": str(case),
        "task": case.task.name,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": case.baseline,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} of the throughput of {case.baseline}: {case.required:.2f} is required"
        )
