"""Models: fits in turns with scikit-learn's, and cross-fitting beside a model that is fitted."""

from __future__ import annotations

from typing import Any

import pytest

from bench.common.racing import compare, race
from bench.evaluation import cases
from bench.models import cases as model_cases
from bench.models.baselines import check_crossfit, check_parity, fit_sklearn


@pytest.mark.parametrize("case", model_cases.FITS, ids=str)
def bench_fit(benchmark: Any, case: model_cases.Fit) -> None:
    case.log.make()
    difference, passes = check_parity(case)
    ours, theirs = race(
        benchmark,
        lambda: model_cases.fit(case.model, case.log.path),
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
    if case.required is not None and cases.FULL_SIZE:
        assert found["ratio"] >= case.required, (
            f"{found['ratio']:.2f} times the throughput of scikit-learn: {case.required:.2f} is required"
        )


def bench_crossfit(benchmark: Any) -> None:
    log = cases.WIDE
    log.make()
    check_crossfit()
    ours, fitted = race(
        benchmark,
        lambda: model_cases.CROSSFIT.run(log.path),
        lambda: cases.FOUR.run(log.path),
        model_cases.CROSSFIT_PAIRS,
    )
    benchmark.extra_info |= {
        "kind": "crossfit",
        "name": model_cases.CROSSFIT_NAME,
        "task": model_cases.CROSSFIT.name,
        "log": str(log),
        "rows": log.rows,
        "baseline": model_cases.FITTED,
        **compare(ours, fitted, log.rows),
    }
