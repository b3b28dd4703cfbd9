"""Measure one evaluation by two threads, two worker processes, two workers of Dask, and Spark with two cores.

    python -m scripts.studies.executors LOG [--only threads,processes,dask,spark] [--times 3]

Needs pyspark and distributed for their rows. Prints a table for docs/scale-out.md: the best time of several runs, what
the first run took beside it, and bytes that travel.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

import drstream as drs
from drstream.processes import Processes
from drstream.sending import Sender

sent: list[int] = []
back: list[int] = []


def watch() -> None:
    """Note what is sent to workers, and what comes back."""
    submit, received = Sender._submit, Sender.received

    def noting(self: Sender, part: Any, carry: bool) -> Any:
        sent.append(len(pickle.dumps((self.digest, self.data if carry else None, part))))
        return submit(self, part, carry)

    def taking(self: Sender, part: Any, result: Any) -> Any:
        back.append(len(pickle.dumps(result)))
        return received(self, part, result)

    Sender._submit, Sender.received = noting, taking  # type: ignore[method-assign]


def best(run: Callable[[], Any], times: int) -> tuple[float, float, Any]:
    """Return the first time, the best one, and the result."""
    took = []
    for _ in range(times + 1):
        started = time.perf_counter()
        result = run()
        took.append(time.perf_counter() - started)
    return took[0], min(took[1:]), result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--only", default="threads,processes,dask,spark")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    log = drs.Log(given.log)
    policy = drs.policies.Softmax(np.random.default_rng(0).normal(size=(log.n_actions, log.n_features)))
    about = {"estimators": ["ips", "snips"], "pairs": False}
    print(f"{log.source_rows:,} rows, {log.n_actions} actions, {log.n_features} features")  # noqa: T201
    print("| workers | first run, s | best of later runs, s | sent, bytes (median, most) | back, bytes (most) |")  # noqa: T201
    print("|---|---|---|---|---|")  # noqa: T201
    values = set()
    for name in given.only.split(","):
        sent.clear()
        back.clear()
        with ExitStack() as stack:
            first, least, result = best(runner(name, stack, given.log, log, policy, about), given.times)
        bytes_sent = f"{int(np.median(sent)):,}, {max(sent):,}" if sent else "-"
        print(f"| {name} | {first:.2f} | {least:.2f} | {bytes_sent} | {max(back, default=0):,} |", flush=True)  # noqa: T201
        if name != "spark":  # its partitions are other parts
            values.add((result["ips"].value, result["ips"].low, result["snips"].value))
    assert len(values) <= 1, "not the same bits"


def runner(name: str, stack: ExitStack, path: str, log: Any, policy: Any, about: dict[str, Any]) -> Callable[[], Any]:
    if name == "threads":
        return lambda: drs.evaluate(log, policy, threads=2, **about)
    watch()
    if name == "processes":
        processes = stack.enter_context(Processes(2))
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
    frame = session.read.parquet(path).select(
        *log.roles.context, log.roles.action, log.roles.reward, log.roles.propensity
    )
    options = {"context": list(log.roles.context), "actions": log.n_actions}
    return lambda: drs.spark.evaluate(frame, policy, log=options, **about)


if __name__ == "__main__":
    main()
