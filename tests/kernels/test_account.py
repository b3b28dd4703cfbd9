"""From observations to sums: the kernels against NumPy, instruction by instruction and table by table."""

from itertools import pairwise

import numpy as np
import pytest

from drstream.kernels import account as kernels
from drstream.kernels.moments import TILE
from drstream.moments import Layout

pytestmark = pytest.mark.covers

ROWS = ("reward", "p", "pi", "rhat", "b", "whole", "covered", "scale")
SIZES = [1, 63, 1025, 2 * TILE + 5]
OPS = {  # operation, rows that it reads, its parameters, and the same in NumPy
    "copy": (kernels.COPY, ["reward"], [], lambda o: o["reward"]),
    "constant": (kernels.CONSTANT, [], [0.75], lambda o: np.full_like(o["p"], 0.75)),
    "importance": (kernels.IMPORTANCE, ["pi", "p"], [], lambda o: o["pi"] / o["p"]),
    "product": (kernels.PRODUCT, ["pi", "reward"], [0.25], lambda o: o["pi"] * (o["reward"] - 0.25)),
    "residual": (kernels.RESIDUAL, ["pi", "reward", "rhat"], [], lambda o: o["pi"] * (o["reward"] - o["rhat"])),
    "robust": (
        kernels.ROBUST,
        ["pi", "reward", "rhat", "b"],
        [],
        lambda o: o["b"] + o["pi"] * (o["reward"] - o["rhat"]),
    ),
    "capped": (
        kernels.CAPPED,
        ["pi", "p"],
        [0.3, 1.5, 1.2],
        lambda o: np.minimum(o["pi"] / np.maximum(1.2 * o["p"], 0.3), 1.5),
    ),
    "shrunk": (kernels.SHRUNK, ["pi", "p"], [2.0], lambda o: 2 * weight(o) / (weight(o) ** 2 + 2)),
    "switched": (kernels.SWITCHED, ["pi", "p"], [0.8], lambda o: np.where(weight(o) <= 0.8, weight(o), 0)),
    "reduced": (kernels.REDUCED, ["pi", "p", "whole"], [], lambda o: (o["whole"] < weight(o)) * 1.0),
    "difference": (
        kernels.DIFFERENCE,
        ["whole", "pi", "reward", "rhat"],
        [0.5],
        lambda o: (o["whole"] - o["pi"]) * (o["reward"] - o["rhat"] - 0.5),
    ),
    "absolute": (
        kernels.ABSOLUTE,
        ["pi", "reward", "rhat"],
        [],
        lambda o: o["pi"] * abs(o["reward"] - o["rhat"]),
    ),
    "squared": (kernels.SQUARED, ["pi", "reward", "rhat"], [], lambda o: o["pi"] * (o["reward"] - o["rhat"]) ** 2),
    "other": (
        kernels.OTHER,
        ["pi", "p", "whole", "covered"],
        ["b"],  # the row that counts where nothing is covered
        lambda o: np.where(
            o["covered"] > 0, weight(o) * o["whole"] / np.where(o["covered"] > 0, o["covered"], 1), o["b"]
        ),
    ),
    "logarithm": (
        kernels.LOGARITHM,
        ["pi", "reward"],
        [2.0, -0.3],
        lambda o: np.log(1 + 0.3 * o["pi"] * (2.0 - o["reward"])),
    ),
    "exploring": (kernels.EXPLORING, ["pi", "p"], [0.1], lambda o: o["pi"] / (o["p"] + 0.1)),
}


def weight(o):
    return o["pi"] / o["p"]


def observations(n, seed=0):
    rng = np.random.default_rng([n, seed])
    found = {name: rng.random(n) for name in ROWS}
    found["reward"] = np.where(rng.random(n) < 0.4, 0.0, found["reward"])
    found["p"] = rng.uniform(0.001, 1, n)
    found["covered"] = np.where(rng.random(n) < 0.2, 0.0, found["covered"])
    return found


def program(lines, layout, weights=(), watched=()):
    """A program whose line t fills variable t."""
    variables = layout.variables
    place = {name: variables + i for i, name in enumerate(ROWS)}
    code, number = np.zeros((len(lines), 6), np.int64), np.zeros((len(lines), 3))
    scales = np.full((len(lines), 2), -1, np.int64)
    for t, (op, reads, numbers, scaled) in enumerate(lines):
        code[t, : 2 + len(reads)] = [t, op, *(place[name] for name in reads)]
        number[t, : len(numbers)] = [place[x] if isinstance(x, str) else x for x in numbers]
        scales[t, : len(scaled)] = [place[name] for name in scaled]
    about = np.array(weights, np.int64).reshape(-1, 2), np.array([place[name] for name in watched], np.int64)
    rows = place["p"], variables
    return kernels.Code(code, number, scales, layout.members, layout.starts, *about, *rows)


def space_for(layout):
    return np.empty((layout.variables + len(ROWS), TILE)), np.empty(2 * layout.variables)


@pytest.mark.parametrize("n", SIZES)
def test_instructions(n):
    seen, layout = observations(n), Layout(len(OPS), ((0,),), 0)
    space, _ = space_for(layout)
    more = kernels.More(np.empty((0, 2), np.int64), np.empty((0, kernels.BINS)))
    for scaled in ([], ["scale"], ["scale", "whole"]):
        found = np.full((len(OPS), n), np.nan)
        code = program([(op, reads, numbers, scaled) for op, reads, numbers, _ in OPS.values()], layout)
        kernels.compute(code, np.array([seen[name] for name in ROWS]), more, space, found)
        factor = np.prod([np.ones(n), *(seen[name] for name in scaled)], axis=0)
        for row, (name, (*_, reference)) in zip(found, OPS.items(), strict=True):
            np.testing.assert_allclose(row, reference(seen) * factor, rtol=1e-13, atol=1e-15, err_msg=name)


def test_a_weight_at_the_limit_is_kept():
    layout = Layout(1, ((0,),), 0)
    code = program([(kernels.SWITCHED, ["pi", "p"], [2.0], [])], layout)
    values = np.ones((len(ROWS), 3))
    values[ROWS.index("pi")], values[ROWS.index("p")] = [0.5, 0.5, 0.25], [0.25, 0.2, 0.25]
    found = np.empty((1, 3))
    kernels.compute(
        code, values, kernels.More(np.empty((0, 2), np.int64), np.empty((0, 26))), space_for(layout)[0], found
    )
    assert found[0].tolist() == [2.0, 0.0, 1.0]


LAYOUT = Layout(4, ((0, 2), (1, 3)), 2)
LINES = [
    (kernels.COPY, ["reward"], [], []),
    (kernels.IMPORTANCE, ["pi", "p"], [], []),
    (kernels.SHRUNK, ["pi", "p"], [2.0], []),
    (kernels.REDUCED, ["pi", "p", "b"], [], []),
]
WEIGHTS = [(1, -1), (2, 3)]


def variables_of(seen):
    w = weight(seen)
    return np.array([seen["reward"], w, 2 * w / (w * w + 2), (seen["b"] < w) * 1.0])


def table(groups, width):
    records = np.zeros((groups, width))
    return records, (records.ctypes.data, records.shape[1])


def add(seen, whole, index, moments=(), sums=(), octaves=0, extremes=None):
    """Add events to tables, each given as (address, width)."""
    code = program(LINES, LAYOUT, WEIGHTS, ["rhat"])
    counts = np.zeros((octaves, kernels.BINS))
    tables = [np.array(found, np.int64).reshape(-1, 2) for found in (moments, sums)]
    extremes = np.array([[np.inf, -np.inf]]) if extremes is None else extremes
    more = kernels.More(tables[0], counts)
    into = kernels.Into(whole, tables[1], extremes)
    kernels.account(code, np.array([seen[name] for name in ROWS]), index, into, more, *space_for(LAYOUT))
    return counts, extremes


def check_moments(record, x, seen):
    """A record is that of events with the variables x."""
    n = x.shape[1]
    assert record[0] == n
    np.testing.assert_allclose(LAYOUT.means(record), x.mean(axis=1), rtol=1e-12)
    for group in ((0, 2), (1, 3)):
        gaps = x[list(group)] - x[list(group)].mean(axis=1, keepdims=True)
        np.testing.assert_allclose(LAYOUT.comoment(record, group), gaps @ gaps.T, rtol=1e-10, atol=1e-12)
    facts = LAYOUT.facts(record)
    for w, reduced, row in ((x[1], 0, facts[0]), (x[2], x[3].sum(), facts[1])):
        once = [w.max(), w[seen["p"] < kernels.SMALL].sum(), reduced]
        np.testing.assert_allclose(row, once, rtol=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_tables(n):
    """All events, groups with moments, groups with sums, weights by size, and extremes; some events are in no group."""
    rng = np.random.default_rng(n)
    seen = observations(n)
    x = variables_of(seen)
    index = rng.integers(-1, 3, (3, n)).astype(np.int32)
    index[0] = np.maximum(index[0], 0) if n > 1 else 0
    whole = LAYOUT.create()
    first, second = table(3, LAYOUT.width), table(3, LAYOUT.width)
    third = table(3, 1 + LAYOUT.variables)
    counts, extremes = add(seen, whole, index, [first[1], second[1]], [third[1]], octaves=2)
    check_moments(whole, x, seen)
    for (records, _), groups in ((first, index[0]), (second, index[1])):
        for g in range(3):
            some = groups == g
            if some.any():
                check_moments(records[g], x[:, some], {name: row[some] for name, row in seen.items()})
            else:
                assert not records[g].any()
    for g in range(3):
        some = index[2] == g
        np.testing.assert_allclose(third[0][g], [some.sum(), *x[:, some].sum(axis=1)], rtol=1e-12)
    for w, row in zip(x[1:3], counts, strict=True):
        octave = np.clip(np.floor(np.log2(w)), kernels.LOWEST, kernels.HIGHEST).astype(int) - kernels.LOWEST + 1
        assert row.tolist() == np.bincount(octave, minlength=kernels.BINS).tolist()
    assert extremes.tolist() == [[seen["rhat"].min(), seen["rhat"].max()]]


def test_what_is_rare_changes_no_bit_of_the_rest():
    """Without it, a kernel is called that was compiled without its code."""
    layout = Layout(2, ((0, 1),), 1)
    lines = [LINES[0], LINES[1]]
    seen = observations(3000)
    values, index = np.array([seen[name] for name in ROWS]), np.zeros((0, 3000), np.int32)
    found = []
    for more in (None, kernels.More(np.empty((0, 2), np.int64), np.zeros((1, kernels.BINS)))):
        whole = layout.create()
        into = kernels.Into(whole, np.empty((0, 2), np.int64), np.empty((0, 2)))
        kernels.account(program(lines, layout, [(1, -1)]), values, index, into, more, *space_for(layout))
        found.append(whole.tobytes())
    assert found[0] == found[1]


def test_records_merge():
    seen = observations(5000)
    x, cuts = variables_of(seen), (0, 700, 701, 3000, 5000)
    groups = (np.arange(5000) * 7 % 3).astype(np.int32)
    whole, tables = LAYOUT.create(), [np.zeros((3, LAYOUT.width)), np.zeros((3, 1 + LAYOUT.variables))]
    for first, last in pairwise(cuts):
        part = {name: row[first:last] for name, row in seen.items()}
        alone, moments, sums = LAYOUT.create(), table(3, LAYOUT.width), table(3, 1 + LAYOUT.variables)
        index = np.tile(groups[first:last], (2, 1))
        add(part, alone, index, [moments[1]], [sums[1]])
        before = alone.tobytes()
        LAYOUT.merge(alone, LAYOUT.create())
        assert alone.tobytes() == before
        LAYOUT.merge(whole, alone)
        LAYOUT.merge(tables[0], moments[0], np.arange(3))
        kernels.merge_sums(np.arange(3), tables[1], sums[0])
    check_moments(whole, x, seen)
    for g in range(3):
        some = groups == g
        check_moments(tables[0][g], x[:, some], {name: row[some] for name, row in seen.items()})
        np.testing.assert_allclose(tables[1][g], [some.sum(), *x[:, some].sum(axis=1)], rtol=1e-12)


def test_sizes_of_odd_weights():
    """NaN is not above 0, and what is very small or very large is in the last bins."""
    layout = Layout(2, ((0, 1),), 1)
    seen = observations(5)
    seen["pi"], seen["p"] = np.array([0.0, np.inf, np.nan, 1e-300, 1.0]), np.ones(5)
    counts = np.zeros((1, kernels.BINS))
    into = kernels.Into(layout.create(), np.empty((0, 2), np.int64), np.empty((0, 2)))
    more = kernels.More(np.empty((0, 2), np.int64), counts)
    code = program([LINES[0], LINES[1]], layout, [(1, -1)])
    kernels.account(
        code, np.array([seen[name] for name in ROWS]), np.zeros((0, 5), np.int32), into, more, *space_for(layout)
    )
    assert counts[0, [0, 1, -1]].tolist() == [2, 1, 1]
    assert counts.sum() == 5
