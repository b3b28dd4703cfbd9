"""Runs one evaluation, replay or fit. Prints the time of each step and the peak memory as JSON.

usage: python -m bench.process.once TASK LOG SPAWNED

TASK is one of TASKS below. SPAWNED is the parent's time.monotonic() when it started this process.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

FITS = ("fit-Ridge", "fit-Logistic", "fit-Propensity")
SKLEARN_FITS = ("sklearn-Ridge-float64", "sklearn-Logistic-float32", "sklearn-Propensity-float32")
TASKS = ("evaluate", "replay", "replay-long-sketch", "replay-long-exact", *FITS, *SKLEARN_FITS)
FEATURES = 20  # as logs.FEATURES, which cannot be imported without drstream


def main() -> None:
    task, log, spawned = sys.argv[1], sys.argv[2], float(sys.argv[3])
    times = {"interpreter": time.monotonic() - spawned}
    if task in SKLEARN_FITS:
        fit_sklearn(task, log)
        print(json.dumps({"times": times, "compiled": 0, "peak_mb": peak_memory(), "values": None}))  # noqa: T201
        return

    started = time.monotonic()
    import numba  # noqa: F401
    import numpy  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import scipy.linalg  # noqa: F401

    times["imports"] = time.monotonic() - started

    started = time.monotonic()
    from drstream import Log, models, policies  # noqa: F401
    from drstream.kernels._jit import COMPILED

    if task == "evaluate":  # load only what the task needs, as a user's program does
        from drstream import evaluate  # noqa: F401
    elif task.startswith("replay"):
        from drstream import replay  # noqa: F401

    times["kernels"] = time.monotonic() - started

    started = time.monotonic()
    from bench.common import logs

    logs.model()
    times["fit"] = time.monotonic() - started

    started = time.monotonic()
    result = run(task, log)
    times["task"] = time.monotonic() - started

    compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in COMPILED)
    report = {"times": times, "compiled": compiled, "peak_mb": peak_memory(), "values": None}
    if task == "replay-long-exact":
        from bench.process import replays

        report["values"] = replays.values_held(log, result)
    print(json.dumps(report))  # noqa: T201


def run(task: str, log: str) -> Any:
    if task == "evaluate":
        from bench.evaluation import cases

        return cases.FOUR.run(log)
    if task in FITS:
        from bench.models import cases

        return cases.fit(task.removeprefix("fit-"), log)
    from bench.process import replays

    if task == "replay":
        return replays.replay_small(log)
    assert task in TASKS
    return replays.replay_long(log, task.removeprefix("replay-long-"))


def fit_sklearn(task: str, log: str) -> None:
    """Two steps are enough for the peak, because LogisticRegression's arrays are the same in each."""
    import warnings

    from bench.models import sklearn_fits

    _, name, kind = task.split("-")
    events = sklearn_fits.read(log, kind, FEATURES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge in two steps
        sklearn_fits.fit(name, events, **({} if name == "Ridge" else {"max_iter": 2}))


def peak_memory() -> float:
    """In MB, from Linux's VmHWM, which starts at zero with this program.

    getrusage's ru_maxrss also counts the parent: a child that used 11 MB reported 979 MB under a parent of 1 GB.
    """
    with open("/proc/self/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    return int(kilobytes) * 1024 / 1e6


if __name__ == "__main__":
    main()
