"""Measures `evaluate` at each point of the scaling curves, in turns with a bare scan of Parquet."""

from __future__ import annotations

import shutil
from statistics import median
from typing import Any

import pytest

from bench.common import logs
from bench.common.racing import take_turns
from bench.common.selecting import params
from bench.evaluation.baselines import scan_row_groups
from bench.scaling import cases
from bench.scaling.baselines import check_parity, run

BYTES_A_VALUE = 6  # on disk, rounded up


@pytest.mark.parametrize("point", params(cases.POINTS))
def bench_scaling(benchmark: Any, point: cases.Point) -> None:
    log = point.log
    logs.LOGS.mkdir(parents=True, exist_ok=True)
    room = 2 * BYTES_A_VALUE * log.rows * (log.features + 6)
    if not log.path.exists() and shutil.disk_usage(logs.LOGS).free < room:
        pytest.skip(f"no room for {log.rows:,} rows in {logs.LOGS}")
    log.make()
    check_parity(point)
    scan = lambda: scan_row_groups(log, point.threads)  # noqa: E731
    ours, others = take_turns(benchmark, lambda: run(point, log.path), [scan], cases.ROUNDS)
    benchmark.extra_info |= {
        "kind": "scaling",
        "name": str(point),
        "axis": point.axis,
        "label": point.label,
        "x": point.x,
        "rows": log.rows,
        "events_per_second": log.rows / median(ours),
        "all_events_per_second": [log.rows / seconds for seconds in ours],
        "scan_events_per_second": log.rows / median(others[0]),
    }
