"""Measures what needs a process of its own: peak memory and start-up."""

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

from bench.common import logs
from bench.models.cases import MODELS
from bench.process import cases, compiling

BYTES_A_ROW = 120  # on disk, rounded up


@dataclass
class Once:
    """The report of `bench.process.once`."""

    wall: float
    times: dict[str, float]
    compiled: int  # number of kernels that were not in the cache
    peak_mb: float
    values: int | None  # maximum size of Algorithm 1's set Q; None: not measured


def run_once(task: str, log: Path, kernel_cache: Path) -> Once:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernel_cache)}
    spawned = time.monotonic()
    command = [sys.executable, "-m", "bench.process.once", task, str(log), str(spawned)]
    done = subprocess.run(command, cwd=logs.ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
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
    return Warm(folder, run_once("evaluate", logs.SMALL.make(), folder))


@pytest.fixture(scope="session")
def warm_for_replay(tmp_path_factory: Any) -> Warm:
    folder = tmp_path_factory.mktemp("kernels")
    return Warm(folder, run_once("replay", logs.SMALL.make(), folder))


def bench_start(benchmark: Any, warm: Warm) -> None:
    wall = time_start(benchmark, "evaluate", warm, cases.START_NAME, cases.START)
    if logs.FULL_SIZE:
        assert wall < cases.START


def bench_start_of_replay(benchmark: Any, warm_for_replay: Warm) -> None:
    time_start(benchmark, "replay", warm_for_replay, cases.REPLAY_START_NAME, None)


def time_start(benchmark: Any, task: str, warm: Warm, name: str, required: float | None) -> float:
    runs: list[Once] = []
    benchmark.pedantic(lambda: runs.append(run_once(task, logs.SMALL.path, warm.folder)), rounds=5)
    wall = median(run.wall for run in runs)
    benchmark.extra_info |= {
        "kind": "start",
        "name": name,
        "task": task,
        "rows": logs.SMALL.rows,
        "seconds": wall,
        "required": required,
        "passed": required is None or wall < required,
        "times": {step: median(run.times[step] for run in runs) for step in runs[0].times},
        "cold_seconds": warm.cold.wall,
        "cold_times": warm.cold.times,
        "kernels": warm.cold.compiled,
    }
    assert warm.cold.compiled > 0
    assert not any(run.compiled for run in runs)
    return wall


@pytest.fixture(scope="session")
def first_results(tmp_path_factory: Any) -> dict[str, compiling.First]:
    return compiling.first_results(tmp_path_factory.mktemp("first"))


@pytest.mark.main
@pytest.mark.parametrize("step", compiling.LIMITS)
def bench_compiling(benchmark: Any, step: str, first_results: dict[str, compiling.First]) -> None:
    """What first results compile, in plain kernels: one process for all of them, whose cache is empty."""
    first, limit = first_results[step], compiling.LIMITS[step]
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info |= {
        "kind": "compiling",
        "name": cases.compiling_name(step),
        "step": step,
        "growth": first.cost,
        "seconds": first.seconds,
        "kernels": len(first.kernels),
        "required": limit,
        "passed": first.cost <= limit,
    }
    assert first.cost <= limit


def make_long(log: logs.LogFile, times: int = cases.LONGER) -> logs.LogFile:
    """The same log with more rows. Skips the benchmark if the disk has no room for it."""
    long = replace(log, rows=times * log.rows)
    if not long.path.exists() and shutil.disk_usage(logs.LOGS).free < 2 * BYTES_A_ROW * long.rows:
        pytest.skip(f"no room for {long.rows:,} rows in {logs.LOGS}")
    long.make()
    return long


def memory_param(log: logs.LogFile) -> Any:
    return pytest.param(log, id=str(log), marks=[pytest.mark.main] if log is cases.MEMORY_MAIN else [])


@pytest.mark.parametrize("log", [*map(memory_param, cases.MEMORY_LOGS)])
def bench_memory(benchmark: Any, log: logs.LogFile, warm: Warm) -> None:
    log.make()
    long = make_long(log, cases.MEMORY_LOGS[log])
    peaks: list[float] = []
    long_peaks: list[float] = []
    benchmark.pedantic(
        lambda: long_peaks.append(run_once("evaluate", long.path, warm.folder).peak_mb),
        setup=lambda: peaks.append(run_once("evaluate", log.path, warm.folder).peak_mb),
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
    if logs.FULL_SIZE:
        assert growth <= cases.MEMORY_GROWTH
        assert max(long_peaks) < cases.PEAK_MEMORY


def bench_memory_of_replay(benchmark: Any, warm_for_replay: Warm) -> None:
    """With the sketch the peak must not grow with the log. The exact tracker may add the values that it holds."""
    folder = warm_for_replay.folder
    logs.LIST.make()
    long = make_long(logs.LIST)
    short_runs: list[Once] = []
    long_runs: list[Once] = []
    exact_runs: list[Once] = []

    def setup() -> None:
        short_runs.append(run_once("replay-long-sketch", logs.LIST.path, folder))
        long_runs.append(run_once("replay-long-sketch", long.path, folder))

    benchmark.pedantic(
        lambda: exact_runs.append(run_once("replay-long-exact", long.path, folder)), setup=setup, rounds=3
    )
    short_mb, long_mb, exact_mb = (median(run.peak_mb for run in runs) for runs in (short_runs, long_runs, exact_runs))
    growth = long_mb / short_mb
    values = exact_runs[0].values or 0
    allowed_mb = cases.BYTES_A_VALUE * values / 1e6
    benchmark.extra_info |= {
        "kind": "replay memory",
        "name": cases.REPLAY_MEMORY_NAME,
        "log": str(logs.LIST),
        "rows": [logs.LIST.rows, long.rows],
        "peak_mb": [short_mb, long_mb],
        "all_mb": [[run.peak_mb for run in runs] for runs in (short_runs, long_runs, exact_runs)],
        "growth": growth,
        "required_growth": cases.MEMORY_GROWTH,
        "growth_passed": growth <= cases.MEMORY_GROWTH,
        "exact_mb": exact_mb,
        "values": values,
        "required_mb": allowed_mb,
        "exact_passed": exact_mb - long_mb <= allowed_mb,
    }
    if logs.FULL_SIZE:
        assert growth <= cases.MEMORY_GROWTH
        assert exact_mb - long_mb <= allowed_mb


@pytest.mark.parametrize("model", MODELS)
def bench_memory_of_fit(benchmark: Any, model: str, warm: Warm) -> None:
    """One process for each peak, because a fit of 20 million rows takes half a minute."""
    log = logs.WIDE
    log.make()
    long = make_long(log)
    sklearn_mb = run_once(cases.SKLEARN[model], log.path, warm.folder).peak_mb
    short_mb = run_once(f"fit-{model}", log.path, warm.folder).peak_mb
    peaks: list[float] = []
    benchmark.pedantic(lambda: peaks.append(run_once(f"fit-{model}", long.path, warm.folder).peak_mb), rounds=1)
    growth = peaks[0] / short_mb
    benchmark.extra_info |= {
        "kind": "fit memory",
        "name": cases.fit_memory_name(model),
        "model": model,
        "log": str(log),
        "rows": [log.rows, long.rows],
        "peak_mb": [short_mb, peaks[0]],
        "growth": growth,
        "sklearn_mb": sklearn_mb,
        "sklearn_kind": cases.SKLEARN[model].rpartition("-")[2],
        "required": cases.MEMORY_GROWTH,
        "passed": growth <= cases.MEMORY_GROWTH,
    }
    if logs.FULL_SIZE:
        assert growth <= cases.MEMORY_GROWTH
