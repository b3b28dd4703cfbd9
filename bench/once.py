"""One evaluation in a process of its own; prints as JSON how long each step took, and the peak memory.

usage: python -m bench.once LOG SPAWNED   (SPAWNED: time.monotonic() of the parent when it started this process)
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    log, spawned = sys.argv[1], float(sys.argv[2])
    times = {"interpreter": time.monotonic() - spawned}

    started = time.monotonic()
    import numba  # noqa: F401
    import numpy  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import scipy.linalg  # noqa: F401

    times["imports"] = time.monotonic() - started

    started = time.monotonic()
    from drstream import Log, evaluate, models, policies  # noqa: F401
    from drstream.kernels._jit import COMPILED

    times["kernels"] = time.monotonic() - started

    started = time.monotonic()
    from bench import cases

    cases.model()
    times["fit"] = time.monotonic() - started

    started = time.monotonic()
    cases.FOUR.run(log)
    times["evaluation"] = time.monotonic() - started

    compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in COMPILED)
    print(json.dumps({"times": times, "compiled": compiled, "peak_mb": peak_memory()}))  # noqa: T201


def peak_memory() -> float:
    """In MB, from Linux's VmHWM, which starts anew with this program.

    getrusage's ru_maxrss does not: a child of a parent that holds 1 GB reported 979 MB and had used 11.
    """
    with open("/proc/self/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    return int(kilobytes) * 1024 / 1e6


if __name__ == "__main__":
    main()
