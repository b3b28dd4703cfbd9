"""Kernels directly: status codes, read-only inputs, odd sizes. Everything here also runs as plain Python."""

import ast
from pathlib import Path

import numpy as np
import pytest

import drstream
from drstream.kernels import checks, observe, scores
from drstream.sampling import uniforms
from tests.helpers import reference
from tests.helpers.passes import not_plain

pytestmark = pytest.mark.covers

KERNELS = Path(drstream.__file__).parent / "kernels"


def read_only(x):
    x = np.ascontiguousarray(x)
    x.flags.writeable = False
    return x


def test_one_hot_and_add_column():
    out = np.empty((3, 4))
    scores.one_hot(read_only(np.array([2, 0, 1, 2], np.int32)), out)
    assert (out == np.eye(3)[[2, 0, 1, 2]].T).all()
    single = np.empty((3, 4), np.float32)  # of a feature of categories; -1 is none of them
    scores.one_hot(read_only(np.array([2, -1, 1, 3], np.int32)), single)
    assert single.T.tolist() == [[0, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    scores.add_column(out, read_only(np.array([1.0, 2.0, 3.0])))
    assert (out == np.eye(3)[[2, 0, 1, 2]].T + np.array([[1], [2], [3]])).all()


def test_clamp():
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan])
    assert observe.clamp(x, 0.0, 1.0) == 2
    np.testing.assert_array_equal(x, [0, 0, 0.5, 1, 1, np.nan])


def test_counts_of_rewards_and_actions():
    rewards = read_only(np.array([0.0, 1.0, 0.5, -1.0, 1.0]))
    counts, others = np.zeros(3, np.int64), np.ones(1, np.int64)
    observe.note_events(rewards, read_only(np.array([2, 0, 2, 2, 0], np.int32)), others, counts)
    assert (counts.tolist(), others.tolist()) == ([2, 0, 3], [3])
    observe.note_events(rewards, read_only(np.empty(0, np.int32)), others, counts[:0])
    assert others.tolist() == [5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_not_finite(dtype):
    x = np.ones(100, dtype)
    assert checks.first_not_finite(x) == -1
    for value in (np.nan, np.inf, -np.inf):
        x[70] = value
        assert checks.first_not_finite(x) == 70
    largest = np.array([np.finfo(dtype).max], dtype)
    assert checks.first_not_finite(largest) == -1


def test_uniforms_equal_reference():
    for seed in (0, 1, 7, 2**63, 2**64 - 1, -3):
        ref = [reference.uniform(seed % 2**64, row) for row in range(20)]
        assert uniforms(seed, 0, 20).tolist() == ref
        assert uniforms(seed, 13, 7).tolist() == ref[13:]


@not_plain
def test_uniforms_are_uniform_and_unrelated():
    """Mean, variance, lag-1 and between-seed correlations of a million numbers, each within 4.5 standard errors."""
    n = 1_000_000
    u, v = uniforms(0, 0, n), uniforms(1, 0, n)
    assert 0 <= u.min() < u.max() < 1
    bound = 4.5 / np.sqrt(n)
    assert abs(u.mean() - 0.5) < bound * np.sqrt(1 / 12)
    assert abs(u.var() - 1 / 12) < bound * np.sqrt(1 / 180)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(u, v)[0, 1]) < bound
    counts = np.bincount((u * 1000).astype(int), minlength=1000)
    assert ((counts - n / 1000) ** 2 / (n / 1000)).sum() < 999 + 4.5 * np.sqrt(2 * 999)


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.py")), ids=lambda p: p.name)
def test_kernels_keep_the_rules(path):
    """No kernel raises, asserts or is long; few files import numba; kernels import kernels only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if path.name not in ("_jit.py", "_interrupts.py"):  # Python, not kernels
            assert not isinstance(node, ast.Raise | ast.Assert), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("drstream"):
            assert node.module.startswith("drstream.kernels"), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom) and path.name not in (
            "_jit.py",
            "_machine.py",
            "_bytes.py",
            "_types.py",
        ):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
            assert not any(name.split(".")[0] == "numba" for name in names), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.FunctionDef):
            assert lines_of_code(node) <= 43, f"{node.name} is too long"


def lines_of_code(function):
    """After the first, and its docstring apart."""
    first = function.body[0]
    lines = function.end_lineno - function.lineno
    return lines if ast.get_docstring(function) is None else lines - (first.end_lineno - first.lineno + 1)


def test_nothing_outside_kernels_imports_numba():
    for path in KERNELS.parent.rglob("*.py"):
        if KERNELS not in path.parents:
            assert "import numba" not in path.read_text(), path
            assert "from numba" not in path.read_text(), path
