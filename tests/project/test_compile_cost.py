"""What a first result compiles, and what is said about it. `bench/process/compiling.py` measures.

Measured: 11 plain kernels for estimates by IPS, 3 more for a model and folds, 7 more for a replay. On a busy machine,
they are up to 13, 4 and 8.
"""

import os
import subprocess
import sys

from bench.process import compiling
from tests.helpers.places import ROOT


def run(program, folder):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_first_result_costs_a_few_plain_kernels(tmp_path):
    found = compiling.first_results(tmp_path)
    for step, limit in compiling.LIMITS.items():
        first = found[step]
        assert 0 < first.cost <= limit, f"{step}: {first.cost:.1f} plain kernels; by kernel: {first.kernels}"


def test_compiling_is_said_once_and_not_when_kernels_are_there(tmp_path):
    program = """
import numpy as np
from drstream.kernels import _notice, crossing, order
from drstream.running.progress import reporter
for kernel in (1, 2):
    with reporter(False, None):
        order.gather(np.zeros(3), np.zeros(1, np.int64), np.zeros(1))
    with reporter(False, None):
        order.gather(np.zeros(3, np.float32), np.zeros(1, np.int64), np.zeros(1, np.float32))
assert (_notice.seconds() > 0) == bool(_notice._kernels)
"""
    first, again = run(program, tmp_path).stderr.splitlines(), run(program, tmp_path).stderr
    assert [line.partition(";")[0].rstrip("0123456789. s") for line in first] == [
        "compiling kernels for this machine",
        "compiled 1 kernel in",
        "compiled 1 kernel in",
    ]
    assert again == ""


def test_worker_processes_say_nothing(processes, capfd):
    assert processes.submit(_say).result()
    assert capfd.readouterr().err == ""


def _say():
    from drstream.kernels import _notice

    _notice.silent = False
    _notice.begin()
    _notice.end()
    _notice.sum_up()
    return True


def test_the_clock_of_progress_stands_still_while_kernels_compile(monkeypatch):
    from drstream.kernels import _notice

    now = iter([10.0, 11.0, 15.0, 16.0, 30.0])
    monkeypatch.setattr(_notice.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(_notice, "_spent", 0.0)
    assert _notice.clock() == 10.0
    _notice.begin(kernel=False)
    assert _notice.clock() == 11.0
    assert _notice.seconds() == 4.0
    _notice.end()
    assert _notice.clock() == 25.0
