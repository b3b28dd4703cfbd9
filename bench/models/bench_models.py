"""Measures fits in turns with scikit-learn's, and cross-fitting in turns with one model."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import compare, race
from bench.common.selecting import params
from bench.evaluation import cases as evaluation
from bench.models import cases
from bench.models.baselines import check_crossfit, check_parity, fit_sklearn


@pytest.mark.parametrize("case", cases.FITS, ids=str)
def bench_fit(benchmark: Any, case: cases.Fit) -> None:
    case.log.make()
    difference, passes = check_parity(case)
    ours, theirs = race(
        benchmark,
        lambda: cases.fit(case.model, case.log.path),
        lambda: fit_sklearn(case),
        case.pairs,
        warm=False,
    )
    found = compare(ours, theirs, case.log.rows)
    benchmark.extra_info |= {
        "kind": "fit",
        "name": str(case),
        "model": case.model,
        "log": str(case.log),
        "rows": case.log.rows,
        "passes": passes,
        "baseline": case.baseline,
        "difference": difference,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} times the throughput of scikit-learn: {case.required:.2f} is required"
        )


@pytest.mark.parametrize("case", params(cases.CROSSFITS))
def bench_crossfit(benchmark: Any, case: cases.Crossfit) -> None:
    log = logs.WIDE
    log.make()
    check_crossfit()
    baseline = {cases.IN_SEQUENCE: cases.in_sequence, cases.FITTED: evaluation.FOUR.run}[case.baseline]
    ours, others = race(
        benchmark, lambda: cases.CROSSFIT.run(log.path), lambda: baseline(log.path), cases.CROSSFIT_PAIRS
    )
    found = compare(ours, others, log.rows)
    benchmark.extra_info |= {
        "kind": "crossfit",
        "name": str(case),
        "task": cases.CROSSFIT.name,
        "log": str(log),
        "rows": log.rows,
        "baseline": case.baseline,
        **found,
        "required": case.required,
        "passed": case.required is None or found["ratio"] >= case.required,
    }
    if case.required is not None and logs.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} of the throughput of {case.baseline}: {case.required:.2f} is required"
        )
