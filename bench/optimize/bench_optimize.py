"""Measures epochs of direct loss minimisation, completed losses, and `evaluate` with learned policies."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from bench.common.racing import compare, race, take_turns
from bench.optimize import cases
from bench.optimize.baselines import check_parity, prepare, prepare_epochs


@pytest.mark.parametrize("case", cases.EPOCHS, ids=str)
def bench_epochs(benchmark: Any, case: cases.Epochs) -> None:
    case.log.make()
    baseline, epochs = prepare_epochs(case)
    longer, (shorter, others) = take_turns(
        benchmark, lambda: case.fit(1 + case.more), [lambda: case.fit(1), baseline], case.pairs, case.warm
    )
    others = [seconds / epochs for seconds in others]
    each = [(long - short) / case.more for long, short in zip(longer, shorter, strict=True)]
    benchmark.extra_info |= {
        "kind": "dlm",
        "name": str(case),
        "task": case.task,
        "runs": case.runs,
        "epochs": case.more,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": case.baseline,
        "baseline_seconds": median(others),
        "first_seconds": median(shorter) - median(each),
        "epoch_seconds": median(each),
        "ratios": [other / seconds for other, seconds in zip(others, each, strict=True)],
    }


@pytest.mark.parametrize("case", cases.CASES, ids=str)
def bench_throughput(benchmark: Any, case: cases.Case) -> None:
    case.log.make()
    baseline = prepare(case)
    check_parity(case, baseline)
    run = cases.TASKS[case.task]
    ours, theirs = race(benchmark, lambda: run(case.log.path), baseline, case.pairs)
    benchmark.extra_info |= {
        "kind": "optimize",
        "name": str(case),
        "task": case.task,
        "log": str(case.log),
        "rows": case.log.rows,
        "baseline": case.baseline,
        **compare(ours, theirs, case.log.rows, case.baseline_rows),
    }
