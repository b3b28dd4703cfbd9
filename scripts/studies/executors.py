"""What executors cost: one evaluation by two threads, two processes, two workers of Dask, and Spark on two cores."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import drstream as drs
from scripts.studies.results import Found
from scripts.studies.trials import ROOT, Setting, made

PARTS = {
    "threads": "2 threads",
    "processes": "2 worker processes",
    "dask": "2 Dask workers",
    "spark": "Spark, `local[2]`",
}
NEEDS = {"dask": "distributed", "spark": "pyspark"}
ROWS, QUICK_ROWS = 5_000_000, 100_000
TIMES = 3  # runs after the first one
HEAD = ["workers", "first run, s", "best of later runs, s"]


def best(run: Callable[[], Any], times: int) -> tuple[float, float, Any]:
    """Return the first time, the best one, and the result."""
    took = []
    for _ in range(times + 1):
        started = time.perf_counter()
        result = run()
        took.append(time.perf_counter() - started)
    return took[0], min(took[1:]), result


def run(parts: list[str], setting: Setting) -> Found:
    started, found = time.perf_counter(), Found()
    path = make_log(setting.output / "log.parquet", setting.repetitions(ROWS, QUICK_ROWS))
    log = drs.Log(path)
    policy = drs.policies.Softmax(np.random.default_rng(0).normal(size=(log.n_actions, log.n_features)))
    about = {"estimators": ["ips", "snips"], "pairs": False}
    found.figures = {
        "rows": f"{log.source_rows:,}",
        "actions, features": f"{log.n_actions}, {log.n_features}",
        "workers": "2",
    }
    values = set()
    for name in parts:
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            sys.stderr.write(f"{name}: left out, because {NEEDS[name]} is not installed\n")
            continue
        with ExitStack() as stack:
            first, least, result = best(runner(name, stack, path, log, policy, about), TIMES)
        found.table(PARTS[name], HEAD, [[PARTS[name], f"{first:.2g}", f"{least:.2g}"]])
        if name != "spark":  # its partitions are other parts
            values.add((result["ips"].value, result["ips"].low, result["snips"].value))
    assert len(values) <= 1, "not the same bits"
    found.made["executors"] = made(setting, started)
    return found


def make_log(path: Path, rows: int) -> Path:
    """A log with 20 row groups."""
    sizes = ["--rows", str(rows), "--actions", "10", "--features", "20", "--row-group-rows", str(rows // 20)]
    subprocess.run([sys.executable, ROOT / "scripts" / "make_log", path, *sizes], check=True)
    return path


def runner(name: str, stack: ExitStack, path: Path, log: Any, policy: Any, about: dict[str, Any]) -> Callable[[], Any]:
    if name == "threads":
        return lambda: drs.evaluate(log, policy, threads=2, **about)
    if name == "processes":
        processes = stack.enter_context(drs.Processes(2))
        return lambda: drs.evaluate(log, policy, executor=processes, **about)
    if name == "dask":
        from distributed import Client, LocalCluster

        cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
        executor = stack.enter_context(Client(cluster)).get_executor()
        return lambda: drs.evaluate(log, policy, executor=executor, **about)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    stack.callback(session.stop)
    frame = session.read.parquet(str(path)).select(
        *log.roles.context, log.roles.action, log.roles.reward, log.roles.propensity
    )
    options = {"context": list(log.roles.context), "actions": log.n_actions}
    return lambda: drs.spark.evaluate(frame, policy, log=options, **about)
