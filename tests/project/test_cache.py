"""The kernel cache: a second process compiles nothing, files do not pile up, and old code never runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import drstream

pytestmark = pytest.mark.jit_only
PACKAGE = Path(drstream.__file__).parent

PROGRAM = """
import drstream as drs
table = drs.synth.World(n_actions=3, n_features=2).table(100)
model = drs.models.Ridge().fit(drs.Log(table).split(0.5)[0])
result = drs.evaluate(drs.Log(table).split(0.5)[1], drs.policies.Uniform(), model=model)
from drstream.kernels import _jit
hits = sum(sum(k.stats.cache_hits.values()) for k in _jit.COMPILED)
misses = sum(sum(k.stats.cache_misses.values()) for k in _jit.COMPILED)
print(hits, misses, result["ips"].value)
"""


def run(folder, cache, program=PROGRAM, **environment):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(folder), **environment}
    env.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, env=env, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    hits, misses, value = done.stdout.split()
    return int(hits), int(misses), float(value)


def files(cache):
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*.nb*"))


@pytest.fixture
def copy(tmp_path):
    """A copy of the package that can be edited."""
    shutil.copytree(PACKAGE, tmp_path / "drstream", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_second_process_compiles_nothing_and_leaves_no_file(copy):
    cache = copy / "cache"
    hits, misses, value = run(copy, cache)
    assert hits == 0
    assert misses > 10
    first = files(cache)
    assert run(copy, cache) == (misses, 0, value)
    assert run(copy, cache) == (misses, 0, value)
    assert files(cache) == first


def test_editing_a_helper_in_another_file_changes_the_result(copy):
    """The kernel `update` stands in moments.py; what it calls in sums.py is edited."""
    cache = copy / "cache"
    *_, before = run(copy, cache)
    helper = copy / "drstream" / "kernels" / "sums.py"
    text = helper.read_text()
    assert "return result, errors" in text
    helper.write_text(text.replace("return result, errors", "return 2.0 * result, 2.0 * errors"))
    _, misses, after = run(copy, cache)
    assert misses > 0
    assert after == pytest.approx(2 * before)


def test_editing_a_flag_does_not_run_old_code(copy):
    cache = copy / "cache"
    _, misses, _ = run(copy, cache)
    flags = copy / "drstream" / "kernels" / "_jit.py"
    flags.write_text(flags.read_text().replace('"fastmath": {"contract"}', '"fastmath": False'))
    assert run(copy, cache)[:2] == (0, misses)
    assert run(copy, cache, NUMBA_BOUNDSCHECK="1")[:2] == (0, misses)
    assert run(copy, cache, NUMBA_BOUNDSCHECK="1")[:2] == (misses, 0)
    assert run(copy, cache)[:2] == (misses, 0)


def test_a_broken_cache_file_is_compiled_again(copy):
    cache = copy / "cache"
    *_, value = run(copy, cache)
    for path in cache.rglob("*.nbc"):
        path.write_bytes(path.read_bytes()[:100])
    assert run(copy, cache)[2] == value


def test_without_a_writable_folder_there_is_no_cache(monkeypatch):
    from drstream.kernels import _jit

    def nowhere(function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(_jit, "_DigestCache", nowhere)
    monkeypatch.setattr(_jit, "COMPILED", [])
    from numba.core.types import int64

    @_jit.kernel(int64(int64))
    def double(x):
        return 2 * x

    assert double(21) == 42


def test_a_full_disk_does_not_matter(monkeypatch):
    from numba.core.caching import FunctionCache
    from numba.core.types import int64

    from drstream.kernels import _jit

    def full(self, sig, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FunctionCache, "save_overload", full)
    monkeypatch.setattr(_jit, "COMPILED", [])

    @_jit.kernel(int64(int64))
    def triple(x):
        return 3 * x

    assert triple(14) == 42


POLICY = """
import settings
from helpers import half
import numpy as np
import drstream as drs

class Mine(drs.policies.Compiled):
    def initial_state(self, n_actions, n_features):
        return np.zeros(n_actions)

    @staticmethod
    def probabilities(state, x, out):
        out[:] = half(1.0) / (out.shape[0] - 1)
        best = 0
        for a in range(out.shape[0]):
            if state[a] > state[best]:
                best = a
        out[best] = 1.0 - half(1.0)

    @staticmethod
    def update(state, x, action, reward):
        state[action] += reward - SHIFT - settings.SHIFT

SHIFT = 0.1
"""
HELPERS = """
from numba import njit

@njit
def half(x):
    return x / 2
"""
REPLAY = """
import drstream as drs
from mine import Mine
table = drs.synth.World(n_actions=3, n_features=2).table(3000)
runs = drs.replay(table, {"mine": Mine(), "greedy": drs.policies.EpsilonGreedy()}, 20, q=0.1)
from drstream.kernels import _jit
hits = sum(sum(k.stats.cache_hits.values()) for k in _jit.COMPILED)
misses = sum(sum(k.stats.cache_misses.values()) for k in _jit.COMPILED)
print(hits, misses, runs["mine"].value)
"""


def test_the_replay_loop_and_a_users_policy_come_from_the_cache(copy):
    """One more policy compiles its two functions and nothing else; a second process compiles nothing."""
    cache = copy / "cache"
    (copy / "mine.py").write_text(POLICY)
    (copy / "helpers.py").write_text(HELPERS)
    (copy / "settings.py").write_text("SHIFT = 0\n")
    _, misses, value = run(copy, cache, REPLAY)
    first = files(cache)
    assert run(copy, cache, REPLAY) == (misses, 0, value)
    assert files(cache) == first
    (copy / "other.py").write_text(POLICY.replace("SHIFT = 0.1", "SHIFT = 0.2"))
    hits, more, _ = run(copy, cache, REPLAY.replace("from mine", "from other"))
    assert (hits, more) == (misses - 2, 2)


def test_editing_what_a_users_policy_calls_changes_the_result(copy):
    """`half` and settings.SHIFT stand in other files, which Numba's own cache key does not see."""
    cache = copy / "cache"
    (copy / "mine.py").write_text(POLICY)
    (copy / "helpers.py").write_text(HELPERS)
    (copy / "settings.py").write_text("import numpy as np\nSHIFT = np.int64(0)\n")
    *_, before = run(copy, cache, REPLAY)
    (copy / "helpers.py").write_text(HELPERS.replace("x / 2", "x / 10"))
    hits, misses, after = run(copy, cache, REPLAY)
    assert after != before
    assert misses == 1  # probabilities; update does not call it
    assert hits > 10
    (copy / "settings.py").write_text("import numpy as np\nSHIFT = np.int64(1)\n")
    _, misses, last = run(copy, cache, REPLAY)
    assert last != after
    assert misses == 1  # update


def test_a_policy_that_closes_over_a_compiled_function_leaves_no_files():
    import numba

    from drstream.kernels import _jit
    from drstream.kernels.replay import UPDATE

    @numba.njit
    def double(x):
        return 2 * x

    def update(state, x, action, reward):
        state[0] = double(reward)

    function = _jit.policy_function(update, UPDATE)
    assert not isinstance(function._cache, _jit._DigestCache)
    assert _jit.policy_function(update, UPDATE) is function
