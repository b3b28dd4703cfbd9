"""The kernel cache: a second process compiles nothing, files do not pile up, and old code never runs."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import drstream
from tests.helpers.places import ROOT

KERNELS = Path(drstream.__file__).parent / "kernels"

# A package of this name with the real compiling and caching, and kernels that compile in a moment.
HELPERS = """
from drstream.kernels._jit import helper

@helper
def scaled(x):
    return 1.0 * x
"""
STUB = """
from numba.core.types import Array, float64
from drstream.kernels._jit import kernel
from drstream.kernels.helpers import scaled

NUMBERS = Array(float64, 1, "C", readonly=True)

@kernel(float64(NUMBERS))
def first(x):
    return x[0]

@kernel(float64(NUMBERS))
def last(x):
    return x[-1]

@kernel(float64(NUMBERS))
def total(x):
    found = 0.0
    for i in range(x.shape[0]):
        found += scaled(x[i])
    return found
"""
SUM = """
import numpy as np
from drstream.kernels import stub
x = np.arange(100.0)
value = stub.first(x) + stub.total(x)
"""
EVALUATE = """
import drstream as drs
table = drs.synth.World(n_actions=3, n_features=2).table(100)
model = drs.models.Ridge().fit(drs.Log(table).split(0.5)[0])
value = drs.evaluate(drs.Log(table).split(0.5)[1], drs.policies.Uniform(), model=model)["ips"].value
"""
REPLAY = """
import drstream as drs
{policy}
table = drs.synth.World(n_actions=3, n_features=2).table(3000)
value = drs.replay(table, policy, 20, q=0.1).value
"""
COUNT = """
from drstream.kernels import _jit
hits = sum(sum(k.stats.cache_hits.values()) for k in _jit.COMPILED)
misses = sum(sum(k.stats.cache_misses.values()) for k in _jit.COMPILED)
print(hits, misses, value)
"""


def run(folder, cache, program, **environment):
    """How many kernels came from the cache, how many were compiled, and the value. The folder's modules come first."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path, **environment}
    env.pop("NUMBA_DISABLE_JIT", None)
    command = [sys.executable, "-W", "error", "-c", program + COUNT]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    hits, misses, value = done.stdout.split()
    return int(hits), int(misses), float(value)


def files(cache):
    """Of machine code. Another process may be writing one, under another name."""
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*.code"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with the small package, to be edited, and what the first process found, whose cache was empty."""
    folder = tmp_path_factory.mktemp("stub")
    kernels = folder / "drstream" / "kernels"
    kernels.mkdir(parents=True)
    for path in KERNELS.glob("_*.py"):
        shutil.copy(path, kernels)
    (folder / "drstream" / "__init__.py").write_text("")
    (kernels / "helpers.py").write_text(HELPERS)
    (kernels / "stub.py").write_text(STUB)
    return folder, run(folder, folder / "cache", SUM)


@pytest.fixture
def cache(compiled, tmp_path):
    """The cache of that process, for one test."""
    return shutil.copytree(compiled[0] / "cache", tmp_path / "cache")


@contextmanager
def edited(path, old, new):
    """A source with other text, for a while."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        yield
    finally:
        path.write_text(text)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The cache of this test run, with the kernels of the programs below; those it has not are compiled here."""
    folder = tmp_path_factory.mktemp("full")
    cache = Path(os.environ.get("NUMBA_CACHE_DIR", folder / "cache"))
    *_, value = run(folder, cache, EVALUATE)
    return cache, value


def test_a_process_compiles_what_is_not_in_the_cache_or_broken_there(compiled, cache):
    folder, (hits, misses, value) = compiled
    assert (hits, misses) == (0, 2)  # the two that it calls, and no other of that file
    first = files(cache)
    assert len(first) == misses
    assert run(folder, cache, SUM) == (misses, 0, value)
    assert files(cache) == first
    for damage in (cut, flip, empty):
        damage(cache / first[0])
        assert run(folder, cache, SUM) == (1, 1, value)
        assert run(folder, cache, SUM) == (2, 0, value)  # the file is good again
        assert files(cache) == first


def test_processes_that_compile_at_once_do_not_disturb_each_other(compiled, tmp_path):
    folder, (_, misses, value) = compiled
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(3) as pool:
        for hits, compiled_here, found in pool.map(lambda _: run(folder, cache, SUM), range(3)):
            assert (hits + compiled_here, found) == (misses, value)
    assert len(files(cache)) == misses
    assert run(folder, cache, SUM) == (misses, 0, value)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_is_read(compiled, cache):
    """It leaves a file with a part of the code, under a name that nobody looks for."""
    folder, (_, misses, value) = compiled
    killed = "import os, drstream.kernels._jit as jit\njit.os.replace = lambda *names: os._exit(9)\n"
    for path in files(cache):
        (cache / path).unlink()
    with pytest.raises(AssertionError):
        run(folder, cache, killed + SUM)
    assert files(cache) == []
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 1
    assert run(folder, cache, SUM) == (0, misses, value)
    assert run(folder, cache, SUM) == (misses, 0, value)


def test_a_folder_that_cannot_be_written_is_read(compiled, cache, tmp_path):
    """As in an image that was made by another user. Here, no file can be made in the place of the second folder."""
    folder, (_, misses, value) = compiled
    (tmp_path / "file").touch()
    place = "import drstream.kernels._jit as jit\nfrom pathlib import Path\nfolders = jit._folders\n"
    first = f"jit._folders = lambda target: [Path({str(tmp_path / 'file')!r}) / 'no', *folders(target)]\n"
    assert run(folder, cache, place + first + SUM) == (misses, 0, value)
    only = f"jit._folders = lambda target: [Path({str(tmp_path / 'file')!r}) / 'no']\n"
    assert run(folder, cache, place + only + SUM) == (0, misses, value)


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def flip(path):
    """Change a byte near the end, which is machine code, or the name of the file of machine code."""
    data = bytearray(path.read_bytes())
    data[-len(data) // 4] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def test_a_second_process_compiles_nothing_and_leaves_no_file(full, tmp_path):
    cache, value = full
    first = files(cache)
    hits, misses, again = run(tmp_path, cache, EVALUATE)
    assert (hits > 10, misses) == (True, 0)
    assert again == value
    assert files(cache) == first


def test_editing_a_helper_in_another_file_changes_the_result(compiled, cache):
    """The kernel stands in stub.py, what it calls in helpers.py."""
    folder, (*_, before) = compiled
    with edited(folder / "drstream" / "kernels" / "helpers.py", "1.0 * x", "2.0 * x"):
        _, misses, after = run(folder, cache, SUM)
    assert misses > 0
    assert after == pytest.approx(2 * before)


def test_editing_a_flag_does_not_run_old_code(compiled, cache):
    folder, (_, misses, _) = compiled
    flags = folder / "drstream" / "kernels" / "_jit.py"
    with edited(flags, '"fastmath": {"contract"}', '"fastmath": False'):
        assert run(folder, cache, SUM)[:2] == (0, misses)
        assert run(folder, cache, SUM, NUMBA_BOUNDSCHECK="1")[:2] == (0, misses)
        assert run(folder, cache, SUM, NUMBA_BOUNDSCHECK="1")[:2] == (misses, 0)
        assert run(folder, cache, SUM)[:2] == (misses, 0)


def test_importing_kernels_compiles_none(tmp_path):
    cache = tmp_path / "cache"
    program = "from tests.helpers import kernels\nvalue = len(kernels.load())"
    hits, misses, modules = run(tmp_path, cache, program)
    assert (hits, misses) == (0, 0)
    assert modules > 10
    assert files(cache) == []


def test_a_kernel_compiles_for_a_signature_when_that_is_first_called(monkeypatch):
    from numba.core.types import Array, float32, float64

    from drstream.kernels import _jit

    monkeypatch.setattr(_jit, "COMPILED", [])
    arrays = [Array(kind, 1, "C", readonly=True) for kind in (float32, float64)]

    @_jit.kernel(float64(arrays[0]), float64(arrays[1]))
    def total(x):
        found = 0.0
        for i in range(x.shape[0]):
            found += x[i]
        return found

    assert _jit.COMPILED == []
    assert total(np.ones(3)) == 3
    assert list(total.overloads) == [(arrays[1],)]
    with pytest.raises(TypeError):
        total(np.ones(3, np.int32))  # is none of its signatures: it is not compiled for this
    assert list(total.overloads) == [(arrays[1],)]
    assert total(np.ones(3, np.float32)) == 3
    assert total(np.ones(4)) == 4
    assert list(total.overloads) == [(arrays[1],), (arrays[0],)]
    assert len(_jit.COMPILED) == 1


def test_threads_that_call_a_kernel_at_once_compile_it_once(monkeypatch):
    from threading import Barrier

    from numba.core.types import int64

    from drstream.kernels import _jit

    monkeypatch.setattr(_jit, "COMPILED", [])
    together = Barrier(8)

    @_jit.kernel(int64(int64))
    def square(x):
        return x * x

    def call(x):
        together.wait()
        return square(x)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == [x * x for x in range(8)]
    (compiler,) = _jit.COMPILED
    assert sum(compiler.stats.cache_hits.values()) + sum(compiler.stats.cache_misses.values()) == 1


def test_a_full_disk_does_not_matter(monkeypatch, tmp_path):
    from numba.core.types import int64

    from drstream.kernels import _jit

    def full(self, data):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_jit, "_folders", lambda target: [tmp_path])
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(_jit, "COMPILED", [])

    @_jit.kernel(int64(int64))
    def triple(x):
        return 3 * x

    assert triple(14) == 42
    assert list(tmp_path.iterdir()) == []


def test_a_helper_is_no_function_of_python(monkeypatch):
    """It has no code of its own. A call by mistake is an error, and does not end the process."""
    from drstream.kernels.sums import two_sum

    with pytest.raises(TypeError):
        two_sum(1.0, 2.0)


FUNCTION = """
from halves import half

def probabilities(x):
    return half(x)
"""
HALVES = """
from numba import njit

@njit
def half(x):
    return x / 2
"""
CALL = """
import sys
sys.path.insert(0, {folder!r})
from numba.core.types import float64
from drstream.kernels._jit import policy_function
from mine import probabilities
value = policy_function(probabilities, float64(float64))(1.0)
"""


def test_a_users_function_is_compiled_in_each_process(compiled, tmp_path):
    """A cache would not see that `half` is edited, which stands in another file."""
    folder, cache = compiled[0], tmp_path / "cache"
    (tmp_path / "mine.py").write_text(FUNCTION)
    for text, value in (("x / 2", 0.5), ("x / 10", 0.1)):
        (tmp_path / "halves.py").write_text(HALVES.replace("x / 2", text))
        assert run(folder, cache, CALL.format(folder=str(tmp_path))) == (0, 0, value)
    assert files(cache) == []


POLICY = """
import numpy as np
import drstream as drs

class Mine(drs.policies.Compiled):
    def initial_state(self, n_actions, n_features):
        return np.zeros(n_actions)

    @staticmethod
    def probabilities(state, x, out):
        out[:] = 0.5 / (out.shape[0] - 1)
        best = 0
        for a in range(out.shape[0]):
            if state[a] > state[best]:
                best = a
        out[best] = 0.5

    @staticmethod
    def update(state, x, action, reward):
        state[action] += reward
"""
OFFERED = """
import numpy as np
import pyarrow as pa
import drstream as drs
{policy}
rng = np.random.default_rng(0)
n = 2000
table = pa.table({{"x": rng.normal(size=n), "z": [rng.normal(size=(3, 2)).tolist() for _ in range(n)],
    "action": rng.integers(0, 3, n), "reward": rng.random(n), "propensity": np.full(n, 1 / 3)}})
log = drs.Log(table, candidates=drs.Candidates(features="z"))
value = drs.replay(log, policy, 20, q=0.1).value
"""
SHARED = """
import numpy as np
import drstream as drs

class Mine(drs.policies.CompiledShared):
    def initial_state(self, n_context, n_item_features):
        return np.zeros(n_item_features)

    @staticmethod
    def probabilities(state, x, Z, out):
        total = 0.0
        for k in range(out.shape[0]):
            out[k] = np.exp(Z[k, 0] * state[0])
            total += out[k]
        for k in range(out.shape[0]):
            out[k] /= total

    @staticmethod
    def update(state, x, z, reward):
        state[0] += reward * z[0]
"""


PROGRAMS = {
    "actions": (REPLAY, "policy = drs.policies.Exp3()", POLICY),
    "candidates": (OFFERED, "policy = drs.policies.EpsilonGreedy()", SHARED),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_users_policy_needs_no_kernel_of_its_own(kind, full, tmp_path):
    """The loop over events is there already, from another policy."""
    program, ours, source = PROGRAMS[kind]
    cache, _ = full
    (tmp_path / "mine.py").write_text(source)
    run(tmp_path, cache, program.format(policy=ours))
    mine = program.format(policy="from mine import Mine\npolicy = Mine()")
    run(tmp_path, cache, mine)  # a kernel may call the function by its address, and ours need not
    first = files(cache)
    hits, misses, _ = run(tmp_path, cache, mine)
    assert (hits > 2, misses) == (True, 0)
    assert files(cache) == first
