"""What a first result costs on a machine that has no kernels: compiling, as a multiple of one plain kernel.

usage, in an empty folder and with an empty NUMBA_CACHE_DIR: python -m bench.process.compiling

It prints JSON, by step: the seconds until the result, imports included, and for each kernel, seconds to compile as a
multiple of a plain loop that is compiled before and after it, because the same work takes other numbers of seconds on a
busy core. A process that starts Numba and compiles one plain kernel takes as long as `START` such loops.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START = 10
LIMITS = {"ips": 15, "folds": 6, "replay": 9}  # plain kernels
STEPS = {
    "ips": "`evaluate` by IPS, of a softmax policy and a constant one",
    "folds": "then with `Ridge()` in five folds, by dm, ips, snips and dr",
    "replay": "then a `replay` of ε-greedy",
}


@dataclass(frozen=True)
class First:
    """A first result in a process whose cache is empty."""

    kernels: dict[str, float]  # what compiling each costs, in plain kernels
    seconds: float  # until the result, from the start of the process or from the result before

    @property
    def cost(self) -> float:
        return sum(self.kernels.values())


def first_results(folder: Path) -> dict[str, First]:
    """By step, in one process for all of them."""
    root = Path(__file__).parents[2]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "bench.process.compiling"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=env, check=True)
    found = json.loads(done.stdout)
    return {
        step: First({name: cost / START for name, cost in kernels.items()}, taken)
        for step, (kernels, taken) in found.items()
    }


def gains(x: Any, y: Any) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        if y[i] > 0.0:
            total += x[i] * y[i]
    return total


def seconds(work: Callable[..., Any], *given: Any) -> float:
    started = time.thread_time()
    work(*given)
    return time.thread_time() - started


def main() -> None:
    started = time.perf_counter()
    import numba
    from numba.core.types import Array, float64, int64, void

    from drstream.kernels import _jit

    numbers = Array(float64, 1, "C", readonly=True)
    compiled = _jit._compile
    spent: dict[str, dict[str, float]] = {}
    taken: dict[str, float] = {}
    step = ""

    def aside(work: Callable[[], Any]) -> Any:
        """What is no part of a first result."""
        nonlocal started
        before = time.perf_counter()
        result = work()
        started += time.perf_counter() - before
        return result

    def plain() -> float:
        again = lambda: seconds(numba.njit(nogil=True)(gains).compile, (numbers, numbers))  # noqa: E731
        return float(aside(lambda: min(again(), again())))

    def timed(dispatcher: Any, signature: Any) -> None:
        before, took = plain(), seconds(compiled, dispatcher, signature)
        name = dispatcher.py_func.__name__
        spent[step][name] = spent[step].get(name, 0.0) + 2 * took / (before + plain())

    _jit.kernel(void(int64))(lambda x: None)(1)  # the start of Numba
    _jit._compile = timed

    import drstream as drs

    world = drs.synth.World(n_actions=3, n_features=2)
    aside(lambda: world.write("clicks.parquet", rows=3000, row_group_rows=1000))
    log = drs.Log("clicks.parquet", context=["x0", "x1"])
    policies = {"always 1": drs.policies.Constant(1), "softmax": drs.policies.Softmax(world.taste)}
    works: dict[str, Callable[[], Any]] = {
        "ips": lambda: drs.evaluate(log, policies, estimators=["ips"]),
        "folds": lambda: drs.evaluate(log, policies, model=drs.models.Ridge(), crossfit=5),
        "replay": lambda: drs.replay(log, drs.policies.EpsilonGreedy(epsilon=0.1), horizon=300),
    }
    for step, work in works.items():  # `timed` reads it
        spent[step] = {}
        work()
        taken[step], started = time.perf_counter() - started, time.perf_counter()
    print(json.dumps({step: (spent[step], taken[step]) for step in works}))  # noqa: T201


if __name__ == "__main__":
    main()
