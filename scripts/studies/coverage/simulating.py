"""Simulates worlds in processes, and writes their counts."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

from drstream.states.files import atomic_path
from scripts.studies.coverage import thresholds
from scripts.studies.coverage.measure import Counts, measure
from scripts.studies.coverage.worlds import WORLDS
from scripts.studies.trials import THREADS, Setting

THRESHOLDS = "thresholds.json"
CHUNK = 50  # logs of a task
FULL = 200  # logs with all methods and levels


def simulate(setting: Setting) -> None:
    """Write NAME.json for each world."""
    os.environ.update(dict.fromkeys(THREADS, "1"))  # the processes inherit these
    with ProcessPoolExecutor(setting.workers, multiprocessing.get_context("spawn")) as pool:
        for name in WORLDS:
            started = time.perf_counter()
            chunks = max(1, WORLDS[name].logs // CHUNK // setting.repetitions(1, 10))
            counts = Counts()
            for found in pool.map(task, *zip(*((name, setting.seed, chunk) for chunk in range(chunks)), strict=True)):
                counts.merge(found)
            with atomic_path(setting.output / f"{name}.json") as unfinished:
                unfinished.write_text(as_json(name, setting.seed, counts))
            seconds = time.perf_counter() - started
            print(f"{name}: {counts.logs} logs in {seconds:.0f} s", flush=True)  # noqa: T201


def simulate_thresholds(setting: Setting) -> None:
    """Write thresholds.json."""
    with atomic_path(setting.output / THRESHOLDS) as unfinished:
        unfinished.write_text(json.dumps(thresholds.measure(setting.seed, quick=setting.quick), indent=1) + "\n")


def task(name: str, seed: int, chunk: int) -> Counts:
    world = WORLDS[name]
    key = list(WORLDS).index(name)
    full = chunk * CHUNK < (world.logs if world.adaptive else FULL)
    return measure(world, seed * 1000 + key, chunk, CHUNK, full=full)


def as_json(name: str, seed: int, counts: Counts) -> str:
    """Return the counts of a world, with one line for each interval."""
    world = WORLDS[name]
    about = {
        "world": name,
        "title": world.title,
        "rows": world.rows,
        "logs": counts.logs,
        "seed": seed,
        "truth": {policy or "logging": value for policy, value in world.truth.items()},
        "chosen": [[*key, count] for key, count in counts.chosen.items()],
        "findings": [[*key, count] for key, count in sorted(counts.findings.items())],
    }
    head = json.dumps(about, ensure_ascii=False)[:-1]
    rows = [json.dumps([*key, *vars(count).values()]) for key, count in counts.intervals.items()]
    return f'{head}, "intervals": [\n' + ",\n".join(rows) + "\n]}\n"
