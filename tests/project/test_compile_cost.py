"""What a first result costs on a machine that has no kernels: compiling, as a multiple of one plain kernel.

A plain kernel is a loop that Numba compiles in a process of its own, its start included: as much as `START` such loops
in a process where Numba is at work already. These are compiled in turn with the kernels, because the same work takes
other numbers of seconds on a busy core. Measured: 11 for estimates by IPS, 3 more for a model and folds, 7 more for a
replay.
"""

import json
import os
import subprocess
import sys

from tests.helpers.places import ROOT

START = 10
FIRST = """
import json, time
import numba
from numba.core.types import Array, float64, int64, void
from drstream.kernels import _jit

def gains(x, y):
    total = 0.0
    for i in range(x.shape[0]):
        if y[i] > 0.0:
            total += x[i] * y[i]
    return total

NUMBERS = Array(float64, 1, "C", readonly=True)
compiled, spent = _jit._compile, {}

def seconds(work, *given):
    started = time.thread_time()
    work(*given)
    return time.thread_time() - started

def plain():
    return min(seconds(numba.njit(nogil=True)(gains).compile, (NUMBERS, NUMBERS)) for _ in range(2))

def timed(dispatcher, signature):
    before, took = plain(), seconds(compiled, dispatcher, signature)
    name = dispatcher.py_func.__name__
    spent[step][name] = spent[step].get(name, 0.0) + 2 * took / (before + plain())

_jit.kernel(void(int64))(lambda x: None)(1)  # the start of Numba
_jit._compile = timed

import drstream as drs
world = drs.synth.World(n_actions=3, n_features=2)
world.write("clicks.parquet", rows=3000, row_group_rows=1000)
log = drs.Log("clicks.parquet", context=["x0", "x1"])
policies = {"always 1": drs.policies.Constant(1), "softmax": drs.policies.Softmax(world.taste)}
spent[step := "ips"] = {}
drs.evaluate(log, policies, estimators=["ips"])
spent[step := "folds"] = {}
drs.evaluate(log, policies, model=drs.models.Ridge(), crossfit=5)
spent[step := "replay"] = {}
drs.replay(log, drs.policies.EpsilonGreedy(epsilon=0.1), horizon=300)
print(json.dumps(spent))
"""
LIMITS = {"ips": 15, "folds": 6, "replay": 9}


def run(program, folder):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_first_result_costs_a_few_plain_kernels(tmp_path):
    spent = json.loads(run(FIRST, tmp_path).stdout)
    for step, limit in LIMITS.items():
        cost = sum(spent[step].values()) / START
        assert 0 < cost <= limit, f"{step}: {cost:.1f} plain kernels; by kernel: {spent[step]}"


def test_compiling_is_said_once_and_not_when_kernels_are_there(tmp_path):
    program = """
import numpy as np
from drstream.kernels import _notice, crossing, order
from drstream.progress import reporter
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
