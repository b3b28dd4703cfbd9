"""Kernels directly: status codes, read-only inputs, odd sizes. Everything here also runs as plain Python."""

import ast
from pathlib import Path

import numpy as np
import pytest

import drstream
from drstream.kernels import checks, groups, scores, terms
from drstream.sampling import uniforms
from tests.helpers import reference

KERNELS = Path(drstream.__file__).parent / "kernels"


def read_only(x):
    x = np.ascontiguousarray(x)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1025])
def test_terms_of_an_event(rows):
    rng = np.random.default_rng(rows)
    logged, logged_rhat, b = rng.random((2, rows)), rng.random(rows), rng.random((2, rows))
    r, p = read_only(rng.random(rows)), read_only(rng.uniform(0.1, 1, rows))
    w = logged / p
    codes = np.array([terms.WEIGHT, *rng.permutation([1, 2, 3, 4, 5]), terms.WEIGHTED_REWARD])
    weights = {
        "importance": ((), w),
        "capped": ((0.3, 1.5, 1.2), np.minimum(logged / np.maximum(1.2 * p, 0.3), 1.5)),
        "shrunk": ((2.0,), 2.0 * w / (w * w + 2.0)),
        "switched": ((0.8,), np.where(w <= 0.8, w, 0.0)),
    }
    assert tuple(weights) == terms.WEIGHTS
    places, predicted = np.array([1, 1 + len(codes)]), np.array([1 + 2 * len(codes), 2 + 2 * len(codes)])
    for code, (parameters, v) in enumerate(weights.values()):
        found = np.empty((3 + 2 * len(codes), rows))
        found[0], found[predicted] = r, b
        about = np.array(parameters), codes, places, predicted, read_only(logged), p, r, read_only(logged_rhat), 0.25
        terms.weigh(code, *about, found)
        again = found.copy()
        terms.weigh(terms.GIVEN, *about, again)
        assert (again == found).all()
        for j, place in enumerate(places):
            out = found[place]
            np.testing.assert_allclose(out, v[j], rtol=1e-15 if code == 2 else 0)
            check_inspection(found, place, p, r)
            assert terms.count_reduced(out, logged[j], p) == (out < w[j]).sum()
            wanted = {
                terms.WEIGHT: out,
                terms.WEIGHTED_REWARD: out * r,
                terms.CENTRED_REWARD: out * (r - 0.25),
                terms.RESIDUAL: out * (r - logged_rhat),
                terms.ROBUST: b[j] + out * (r - logged_rhat),
                terms.SHARE: np.ones(rows),
            }
            for term, row in zip(codes, found[place : place + len(codes)], strict=True):
                if term == terms.ROBUST:
                    np.testing.assert_allclose(row, wanted[term], rtol=1e-13, atol=1e-14)
                else:
                    assert (row == wanted[term]).all()
            check_extra_terms(out, logged[j], p, r, logged_rhat)


def check_inspection(found, place, p, r):
    out = found[place]
    inspected = np.zeros((1, terms.INSPECTED))
    terms.inspect(found, np.array([place]), p, 0.3, inspected)
    positive = out[r != 0]
    once = [out.max(), out[p < 0.3].sum(), positive.sum(), (positive**2).sum()]
    np.testing.assert_allclose(inspected[0], once, rtol=1e-13)
    halved = found.copy()
    halved[place] /= 2
    terms.inspect(halved, np.array([place]), p, 0.3, inspected)
    np.testing.assert_allclose(inspected[0], [once[0], *np.multiply(once[1:], [1.5, 1.5, 1.25])], rtol=1e-13)


def check_extra_terms(out, chosen, p, r, logged_rhat):
    extra = np.array([terms.WEIGHT, *range(terms.DISAGREEMENT, terms.SQUARED_REWARD + 1), terms.ROBUST])
    found = np.full((len(extra), len(r)), 7.0)
    found[0] = out
    second = logged_rhat[::-1].copy()
    terms.fill_extra_terms(extra, chosen, p, r, logged_rhat, second, found)
    miss, w = r - logged_rhat, chosen / p
    more = [out, out * (second - logged_rhat), (out - w) * miss, (out - w) * r, out * second]
    more += [out * abs(miss), out * miss**2, out * abs(r), out * r**2]
    np.testing.assert_allclose(found[:-1], more, rtol=1e-13, atol=1e-14)
    assert (found[-1] == 7).all()  # the terms of estimates are left alone


def test_codes_of_terms_are_their_places_in_the_list():
    from drstream.evaluation.marginals import DIRECT, RESIDUAL  # kernels.marginal knows no codes

    from drstream.evaluation.estimators import EXTRA, WITH_WEIGHT

    codes = terms.WEIGHT, terms.WEIGHTED_REWARD, terms.CENTRED_REWARD, terms.RESIDUAL, terms.ROBUST, terms.SHARE
    assert codes == tuple(map(WITH_WEIGHT.index, ("weight", "reward", "centred", "residual", "robust", "share")))
    extra = {name: len(WITH_WEIGHT) + i for i, name in enumerate(EXTRA) if name not in (DIRECT, RESIDUAL)}
    assert extra == {
        "disagreement": terms.DISAGREEMENT,
        "cut": terms.CUT,
        "cut_reward": terms.CUT_REWARD,
        "second": terms.SECOND,
        "absolute": terms.ABSOLUTE,
        "squared": terms.SQUARED,
        "absolute_reward": terms.ABSOLUTE_REWARD,
        "squared_reward": terms.SQUARED_REWARD,
    }


def test_a_weight_at_the_limit_is_kept():
    found, nothing = np.zeros((2, 3)), np.empty(0)
    logged, p = np.array([[0.5, 0.5, 0.25]]), np.array([0.25, 0.2, 0.25])
    code, codes, place = terms.WEIGHTS.index("switched"), np.array([terms.WEIGHT]), np.array([1])
    terms.weigh(code, np.array([2.0]), codes, place, place, logged, p, found[0], nothing, 0.0, found)
    assert found[1].tolist() == [2.0, 0.0, 1.0]


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
    assert terms.clamp(x, 0.0, 1.0) == 2
    np.testing.assert_array_equal(x, [0, 0, 0.5, 1, 1, np.nan])


def test_counts_of_rewards_and_actions():
    rewards = read_only(np.array([0.0, 1.0, 0.5, -1.0, 1.0]))
    first = np.full(1, -1)
    assert terms.count_outside(rewards, 0.0, 1.0, first) == 1
    assert first.tolist() == [3]
    assert terms.count_outside(rewards, -1.0, 1.0, first) == 0
    counts, others = np.zeros(3, np.int64), np.ones(1, np.int64)
    terms.note_events(rewards, read_only(np.array([2, 0, 2, 2, 0], np.int32)), others, counts)
    assert (counts.tolist(), others.tolist()) == ([2, 0, 3], [3])
    terms.note_events(rewards, read_only(np.empty(0, np.int32)), others, counts[:0])
    assert others.tolist() == [5]


def test_sums_by_bucket_and_stretch():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 50))
    bucket = rng.integers(0, 4, 50)
    counts, sums = np.zeros(4), np.zeros((4, 3))
    groups.add_to_buckets(read_only(x), bucket, counts, sums)
    assert counts.tolist() == np.bincount(bucket, minlength=4).tolist()
    np.testing.assert_allclose(sums, [x[:, bucket == g].sum(axis=1) for g in range(4)], rtol=1e-12)
    members, starts = np.array([0, 2, 1]), np.array([0, 2, 3])
    total, products = np.zeros(3), np.zeros(5)
    groups.add_to_stretch(read_only(x), 10, 40, members, starts, total, products)
    part = x[:, 10:40]
    np.testing.assert_allclose(total, part.sum(axis=1), rtol=1e-12)
    wanted = [(part[0] ** 2).sum(), part[0] @ part[2], (part[2] ** 2).sum(), (part[1] ** 2).sum()]
    np.testing.assert_allclose(products[[0, 1, 3, 4]], wanted, rtol=1e-12)
    segment, starts, filled = np.array([2, 0, 2, 2, 0]), np.array([0, 2, 2, 5]), np.zeros(3, np.int64)
    p, out = np.arange(50.0), np.empty(4 * 5)
    for first in (0, 3):  # two blocks
        last = min(first + 3, 5)
        part = read_only(x[:, first:last])
        groups.divide(part, p[first:last], segment[first:last], starts, filled, out)
    assert filled.tolist() == [2, 0, 3]
    assert (out[:8].reshape(4, 2) == np.vstack([x, p])[:, [1, 4]]).all()
    assert (out[8:].reshape(4, 3) == np.vstack([x, p])[:, [0, 2, 3]]).all()


def test_first_bad_event():
    action, reward, propensity = np.array([0, 1, 2], np.int32), np.zeros(3), np.full(3, 0.5)
    assert checks.first_bad(action, 3, reward, propensity) == -1
    assert checks.first_bad(action, 2, reward, propensity) == 2
    assert checks.first_bad(action[:0], 0, reward, propensity) == -1
    assert checks.first_bad(np.array([0, -1, 0], np.int32), 3, reward, propensity) == 1
    for value in (np.nan, np.inf, -np.inf):
        assert checks.first_bad(action, 3, np.array([0, value, 0]), propensity) == 1
    for value in (np.nan, 0.0, -0.1, 1.0000001, np.inf):
        assert checks.first_bad(action, 3, reward, np.array([0.5, 0.5, value])) == 2
    assert checks.first_bad(action, 3, reward, np.array([1.0, 5e-324, 0.5])) == -1


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


@pytest.mark.jit_only
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
    """No kernel raises, asserts or is long; only _jit.py and _types.py import numba; kernels import kernels only."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if path.name not in ("_jit.py", "_interrupts.py"):  # Python, not kernels
            assert not isinstance(node, ast.Raise | ast.Assert), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("drstream"):
            assert node.module.startswith("drstream.kernels"), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Import | ast.ImportFrom) and path.name not in ("_jit.py", "_types.py"):
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
