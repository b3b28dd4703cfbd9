"""What needs a process of its own: peak memory, and the time that a fresh process takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench import cases

BYTES_A_ROW = 120  # of a log on disk, rounded up


@dataclass
class Once:
    """What `bench.once` reported."""

    wall: float
    times: dict[str, float]
    compiled: int  # kernels that were not in the cache
    peak_mb: float


def run_once(log: Path, kernel_cache: Path) -> Once:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernel_cache)}
    spawned = time.monotonic()
    command = [sys.executable, "-m", "bench.once", str(log), str(spawned)]
    done = subprocess.run(command, cwd=cases.ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wall = time.monotonic() - spawned
    once = Once(wall, **json.loads(done.stdout))
    once.times["exit"] = wall - sum(once.times.values())
    return once


@dataclass
class Warm:
    """A folder of compiled kernels, and the process that filled it."""

    folder: Path
    cold: Once


@pytest.fixture(scope="session")
def warm(tmp_path_factory: Any) -> Warm:
    folder = tmp_path_factory.mktemp("kernels")
    return Warm(folder, run_once(cases.SMALL.make(), folder))


def bench_start(benchmark: Any, warm: Warm) -> None:
    runs: list[Once] = []
    benchmark.pedantic(lambda: runs.append(run_once(cases.SMALL.path, warm.folder)), rounds=5)
    wall = median(run.wall for run in runs)
    benchmark.extra_info |= {
        "kind": "start",
        "name": cases.START_NAME,
        "rows": cases.SMALL.rows,
        "seconds": wall,
        "required": cases.START,
        "passed": wall < cases.START,
        "times": {step: median(run.times[step] for run in runs) for step in runs[0].times},
        "cold_seconds": warm.cold.wall,
        "cold_times": warm.cold.times,
        "kernels": warm.cold.compiled,
    }
    assert warm.cold.compiled > 0
    assert not any(run.compiled for run in runs)
    if cases.FULL_SIZE:
        assert wall < cases.START


@pytest.mark.parametrize("log", cases.MEMORY_LOGS, ids=str)
def bench_memory(benchmark: Any, log: cases.LogFile, warm: Warm) -> None:
    long = replace(log, rows=4 * log.rows)
    log.make()
    if not long.path.exists() and shutil.disk_usage(cases.LOGS).free < 2 * BYTES_A_ROW * long.rows:
        pytest.skip(f"no room for {long.rows:,} rows in {cases.LOGS}")
    long.make()
    peaks: list[float] = []
    long_peaks: list[float] = []
    benchmark.pedantic(
        lambda: long_peaks.append(run_once(long.path, warm.folder).peak_mb),
        setup=lambda: peaks.append(run_once(log.path, warm.folder).peak_mb),
        rounds=3,
    )
    growth = median(long_peaks) / median(peaks)
    passed = growth <= cases.MEMORY_GROWTH and max(long_peaks) < cases.PEAK_MEMORY
    benchmark.extra_info |= {
        "kind": "memory",
        "name": cases.memory_name(log),
        "log": str(log),
        "rows": [log.rows, long.rows],
        "peak_mb": [median(peaks), median(long_peaks)],
        "largest_mb": max(long_peaks),
        "growth": growth,
        "required_mb": cases.PEAK_MEMORY,
        "required_growth": cases.MEMORY_GROWTH,
        "passed": passed,
    }
    if cases.FULL_SIZE:
        assert growth <= cases.MEMORY_GROWTH
        assert max(long_peaks) < cases.PEAK_MEMORY
