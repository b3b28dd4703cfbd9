"""Simulates worlds in processes, and writes what was noted: NAME.parquet for each world."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drstream.states.files import atomic_path
from scripts.studies.coverage.measure import CHUNK, COMPARED, Notes, measure
from scripts.studies.coverage.worlds import WORLDS
from scripts.studies.trials import THREADS, Setting, commit


def simulate(names: Iterable[str], setting: Setting) -> None:
    os.environ.update(dict.fromkeys(THREADS, "1"))  # the processes inherit these
    with ProcessPoolExecutor(setting.workers, multiprocessing.get_context("spawn")) as pool:
        for name in names:
            started = time.perf_counter()
            logs = logs_of(name, setting)
            counts = [min(CHUNK, logs - first) for first in range(0, logs, CHUNK)]
            notes = Notes()
            tasks = ((name, setting.seed, chunk, count) for chunk, count in enumerate(counts))
            for found in pool.map(task, *zip(*tasks, strict=True)):
                notes.merge(found)
            write(setting.output / f"{name}.parquet", notes, setting.seed)
            each = (time.perf_counter() - started) / logs * setting.workers
            print(f"{name}: {logs} logs, {1e3 * each:.1f} ms each", flush=True)  # noqa: T201


def logs_of(name: str, setting: Setting) -> int:
    return setting.logs or setting.repetitions(WORLDS[name].logs, WORLDS[name].logs // 10)


def task(name: str, seed: int, chunk: int, count: int) -> Notes:
    return measure(name, WORLDS[name], seed, chunk, count, others=chunk * CHUNK < COMPARED)


def write(path: Path, notes: Notes, seed: int) -> None:
    about = {"logs": notes.logs, "seed": seed, "commit": commit()}
    about |= {"findings": dict(notes.findings), "levels": dict(notes.levels)}
    table = pa.Table.from_pylist(notes.rows).replace_schema_metadata({"study": json.dumps(about)})
    with atomic_path(path) as unfinished:
        pq.write_table(table, unfinished)
