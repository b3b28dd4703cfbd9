"""Limits Polars' threads, and adds to the benchmarks' JSON what the page says about the machine and the run's size."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.common import logs, racing
from drstream.running.execution import usable_cores

PACKAGES = ("drstream", "numba", "numpy", "pyarrow", "polars", "duckdb", "scikit-learn", "vowpalwabbit", "coba")

os.environ["POLARS_MAX_THREADS"] = str(racing.THREADS)  # read when a benchmark imports polars


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    machine_info["usable_cores"] = usable_cores()
    machine_info["versions"] = {name: found for name in PACKAGES if (found := installed(name))}
    machine_info["rows"] = logs.ROWS
    machine_info["full_size"] = logs.FULL_SIZE
    machine_info["quick"] = logs.QUICK


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
