"""Measures the throughput of `evaluate` in turns with a baseline."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import PAIRS, race
from bench.evaluation import cases
from bench.evaluation.baselines import BASELINES, check_parity


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def bench_throughput(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    run_baseline = BASELINES[case.baseline]
    ours, baseline = race(benchmark, lambda: case.task.run(case.log.path), lambda: run_baseline(case.log), pairs=PAIRS)
    ratio = median(b / o for o, b in zip(ours, baseline, strict=True))
    benchmark.extra_info |= {
        "kind": "throughput",
        "name": str(case),
        "task": case.task.name,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": case.baseline,
        "events_per_second": case.log.rows / median(ours),
        "baseline_events_per_second": case.log.rows / median(baseline),
        "ratio": ratio,
        "ratios": [b / o for o, b in zip(ours, baseline, strict=True)],
        "required": case.required,
        "passed": case.required is None or ratio >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert ratio >= case.required, (
            f"{ratio:.2f} of the throughput of {case.baseline}: {case.required:.2f} is required"
        )
