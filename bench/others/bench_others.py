"""Measures `evaluate` on files of other writers, in turns with a bare scan, with engines by hand, and with itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import drstream as drs
from bench.common import logs
from bench.common.baselines import PARITY, PARITY_FLOAT32, PARITY_ROWS, agree, estimates, exactly
from bench.common.racing import PAIRS, THREADS, compare, race
from bench.common.selecting import params
from bench.evaluation.baselines import plain_numpy
from bench.evaluation.cases import FOUR, ROW_GROUPS
from bench.others import cases, files

NORMAL = {"interval": "normal"}


@pytest.fixture(scope="session")
def measured() -> dict[str, dict[str, Any]]:
    """What was found on each file."""
    return {}


@pytest.mark.main
@pytest.mark.parametrize("case", cases.SCANS, ids=str)
def bench_file(benchmark: Any, case: cases.Case, measured: dict[str, dict[str, Any]]) -> None:
    measure(benchmark, case)
    measured[str(case.file)] = dict(benchmark.extra_info)


@pytest.mark.main
@pytest.mark.parametrize("name", cases.SUMMARIES)
def bench_files(benchmark: Any, name: str, measured: dict[str, dict[str, Any]]) -> None:
    """One of the files stands for all."""
    if len(measured) < len(cases.SCANS):
        pytest.skip("some files were not measured")
    place, required = cases.SUMMARIES[name]
    info = sorted(measured.values(), key=lambda info: info["ratio"])[place]
    benchmark.pedantic(lambda: None, rounds=1)
    note(benchmark, {**info, "kind": "others in short", "name": name, "required": required})


@pytest.mark.parametrize("case", params(cases.CASES))
def bench_asked(benchmark: Any, case: cases.Case) -> None:
    measure(benchmark, case)


def measure(benchmark: Any, case: cases.Case) -> None:
    case.file.make()
    baseline = lambda: cases.BASELINES[case.baseline](case.file)  # noqa: E731
    check_parity(case, baseline())
    ours, others = race(benchmark, case.run, baseline, PAIRS)
    found = compare(ours, others, files.ROWS)
    about = {"kind": "others", "name": str(case), "log": str(case.file), "rows": files.ROWS}
    note(benchmark, {**about, "baseline": case.baseline, **found, "required": case.required})


def note(benchmark: Any, info: dict[str, Any]) -> None:
    info["passed"] = info["required"] is None or info["ratio"] >= info["required"]
    benchmark.extra_info |= info
    if logs.FULL_SIZE:
        assert info["passed"], f"{info['ratio']:.2f} of {info['baseline']}: {info['required']:.2f} is required"


# Parity


def check_parity(case: cases.Case, other: Any) -> None:
    assert pl.thread_pool_size() == THREADS, "polars was imported before POLARS_MAX_THREADS was set"
    result = case.run()
    assert result.n == files.ROWS
    if case.baseline == ROW_GROUPS:
        assert other == files.ROWS
        first = cases.head(case.file, PARITY_ROWS)
        textbook = plain_numpy(FOUR, first)
        agree(estimates(cases.evaluate(first, **NORMAL)), textbook, PARITY_FLOAT32)
        agree(estimates(cases.evaluate(first, **NORMAL, **exactly())), textbook)
    elif isinstance(other, drs.Evaluation):
        check_itself(case, result, other)
    else:
        agree(estimates(cases.evaluate(case.file.path, **NORMAL)), other, PARITY_FLOAT32)


def check_itself(case: cases.Case, result: drs.Evaluation, plain: drs.Evaluation) -> None:
    """Whatever else is asked for, the values are the same, and those of segments add up to them."""
    for name in FOUR.estimators:
        ours, other = result["softmax", name].value, plain["softmax", name].value
        np.testing.assert_allclose(ours, other, rtol=PARITY)
    if "by" in case.options:
        segments = [result.segment(country=f"country {i}") for i in range(files.SEGMENTS)]
        assert sum(segment.n for segment in segments) == result.n
        whole = sum(segment.n * segment["softmax", "dr"].value for segment in segments) / result.n
        np.testing.assert_allclose(whole, result["softmax", "dr"].value, rtol=PARITY)
    path = "python" if case.baseline == cases.COMPILED else "compiled"
    assert result.provenance["path"] == path
