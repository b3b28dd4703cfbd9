"""Workers that die: processes of drs.Processes, of a Dask cluster, and tasks of Spark."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import drstream as drs
from scripts.studies.reliability.record import LOST, SAME, Case
from tests.helpers.logs import world
from tests.helpers.places import ROOT

FILES, EACH, GROUP = 4, 500, 50
OPTIONS = {"estimators": ["ips", "snips"]}


class Killer:
    """A policy that kills its process when a worker comes to one of the parts, once."""

    def __init__(self, flag: str, part: int) -> None:
        self.flag, self.part = flag, part

    def probabilities(self, X: Any) -> Any:
        if int(X[0, -1]) == self.part:
            try:
                os.unlink(self.flag)  # whoever comes first
                os.kill(os.getpid(), signal.SIGKILL)
            except FileNotFoundError:
                pass
        return np.full((len(X), 4), 0.25)


def table(seed: int) -> Any:
    """Events whose last feature is the number of their part, of which each file has EACH // GROUP."""
    made = world(kinds=None).table(EACH, seed=seed)
    part = np.arange(EACH) // GROUP + seed * (EACH // GROUP)
    return made.append_column("x9", [part.astype(made["x0"].type.to_pandas_dtype())])


def log_in(folder: Path) -> drs.Log:
    files = folder / "workers"
    if not files.exists():
        files.mkdir()
        for seed in range(FILES):
            pq.write_table(table(seed), files / f"{seed}.parquet", row_group_size=GROUP)
    return drs.Log(files, context="x?")


def numbers(result: Any) -> str:
    return str(result.to_arrow().to_pylist())


def killed(row: str, number: int, log: drs.Log, folder: Path, evaluate: Any) -> Case:
    """A case in which a worker is killed, at one of ten points."""
    parts = FILES * EACH // GROUP
    flag = folder / f"kill{number}"
    policies = {"killer": drs.policies.named("quarter", Killer(str(flag), number % 10 * parts // 10))}
    wanted = numbers(drs.evaluate(log, policies, threads=1, **OPTIONS))
    flag.touch()
    try:
        found = numbers(evaluate(log, policies))
    except BaseException as error:
        return Case(row, LOST, f"{type(error).__name__}: {error}")
    if flag.exists():
        return Case(row, LOST, "no worker was killed")
    return Case(row, SAME) if found == wanted else Case(row, LOST, "other bits")


def run_processes(first: int, last: int, folder: Path) -> Iterator[Case]:
    """The run ends with an error. The same run goes on in new processes."""

    def evaluate(log: drs.Log, policies: Any) -> Any:
        how = {"checkpoint": folder / "run.ckpt", **OPTIONS}
        try:
            with drs.Processes(2) as processes:
                drs.evaluate(log, policies, executor=processes, **how)
        except drs.WorkerError:
            with drs.Processes(2) as processes:
                return drs.evaluate(log, policies, executor=processes, **how)
        raise AssertionError("no error")

    for number in range(first, last):
        yield killed("`drs.Processes(2)`, one killed, goes on", number, log_in(folder), folder, evaluate)


def run_dask(first: int, last: int, folder: Path) -> Iterator[Case]:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
    with cluster, Client(cluster) as client:

        def evaluate(log: drs.Log, policies: Any) -> Any:
            return drs.evaluate(log, policies, executor=client.get_executor(pure=False), **OPTIONS)

        for number in range(first, last):
            yield killed("Dask, two workers, one killed", number, log_in(folder), folder, evaluate)


class Fails:
    """Fails in the first attempts at one partition of Spark's."""

    def __init__(self, partition: int, times: int) -> None:
        self.partition, self.times = partition, times

    def probabilities(self, X: Any) -> Any:
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is not None and task.partitionId() == self.partition and task.attemptNumber() < self.times:
            raise OSError("this task fails on purpose")
        return np.full((len(X), 4), 0.25)


def run_spark(first: int, last: int, folder: Path) -> Iterator[Case]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .config("spark.ui.enabled", "false")
        .config("spark.sql.files.openCostInBytes", str(1 << 30))  # a partition is a file
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        log_in(folder)
        frame = session.read.parquet(*(str(folder / "workers" / f"{i}.parquet") for i in range(FILES)))
        for number in range(first, last):
            yield failed(number, frame)
    finally:
        session.stop()


def failed(number: int, frame: Any) -> Case:
    row = "Spark, a task fails once or twice"
    about = {"context": ["x0", "x1", "x2", "x9"], "actions": 4}
    try:
        wanted, found = (
            numbers(drs.spark.evaluate(frame, {"q": drs.policies.named("quarter", policy)}, log=about, **OPTIONS))
            for policy in (Fails(-1, 0), Fails(number % FILES, 1 + number // FILES % 2))
        )
    except BaseException as error:
        return Case(row, LOST, f"{type(error).__name__}: {error}")
    return Case(row, SAME) if found == wanted else Case(row, LOST, "other bits")
