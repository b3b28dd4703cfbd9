"""Measures `evaluate` on a log with eligible sets, in turns with the same log without them, or with a scan."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import PAIRS, compare, race
from bench.common.selecting import params
from bench.eligible import cases
from bench.eligible.baselines import check_parity, prepare


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_eligible(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    check_parity(case)
    ours, others = race(benchmark, case.run, prepare(case), PAIRS)
    found = compare(ours, others, case.log.rows)
    benchmark.extra_info |= {
        "kind": "eligible",
        "name": str(case),
        "actions": case.log.actions,
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
