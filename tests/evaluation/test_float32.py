"""Scores in the type of the contexts: estimates near those in float64, the same bits however a log is cut."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.evaluation.observe.linear import limits_of
from drstream.models.binding import BoundModels
from scripts.studies.precision import CASES, REQUIRED, measure
from tests.helpers.cut import cut_log
from tests.helpers.evaluations import WORLD, M

FEATURES = ["x0", "x1", "x2"]
POLICIES = {
    "soft": drs.policies.Softmax(WORLD.taste, [0.1, -0.2, 0.3, 0.0]),
    "best": drs.policies.Linear(WORLD.taste),
    "mixed": drs.policies.Epsilon(drs.policies.Epsilon(drs.policies.Softmax(WORLD.taste), 0.1), 0.2),
    "own": lambda X: np.full((len(X), 4), 0.25),
}


def as_type(table, *kinds):
    for name, kind in zip(FEATURES, kinds, strict=True):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind, safe=False))
    return table


@pytest.mark.parametrize("case", CASES, ids=str)
def test_estimates_are_near_those_in_float64(case):
    found = measure(case, 50_000)
    assert max(found.values.values()) < REQUIRED
    assert found.stderr < REQUIRED
    if case.least == 1e-4:
        assert found.weight > 5_000


def test_the_type_of_the_contexts_decides():
    f2, f4, f8, i2, i4 = pa.float16(), pa.float32(), pa.float64(), pa.int16(), pa.int32()
    table = as_type(WORLD.table(200), i2, f4, f4)
    for kinds, wanted in (
        ((f4, f4, f4), "float32"),
        ((i2, f4, f2), "float32"),
        ((f4, f8, f4), "float64"),
        ((f4, i4, f4), "float64"),
    ):
        log = drs.Log(as_type(table, *kinds), context=FEATURES)
        assert drs.evaluate(log, POLICIES).precision == wanted
        assert drs.evaluate(log, POLICIES, precision="float64").precision == "float64"
        assert drs.evaluate(log, {"own": POLICIES["own"]}).precision == "float64"


@pytest.mark.parametrize("model", [M.Ridge(), M.Logistic()], ids=["ridge", "logistic"])
def test_same_bits_for_any_threads_and_batches(tmp_path, model):
    table = WORLD.table(3_000, seed=5)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=700)
    fitted = model.fit(drs.Log(WORLD.table(500, seed=6), context=FEATURES))
    found = [
        drs.evaluate(cut_log(path, context=FEATURES, batch_size=rows), POLICIES, fitted, threads=threads).to_json()
        for rows, threads in ((None, 1), (None, 2), (64, 2), (1_000, 1))
    ]
    assert len(set(found)) == 1
    assert '"precision": "float32"' in found[0]


def test_a_product_does_not_depend_on_what_else_is_asked_for():
    log = drs.Log(WORLD.table(2_000, seed=7), context=FEATURES)
    together = drs.evaluate(log, POLICIES)
    for name, policy in POLICIES.items():
        alone = drs.evaluate(log, {name: policy})
        assert all(alone[name, e] == together[name, e] for e in alone.estimators)


class Reversed(drs.policies.Softmax):
    def fill(self, block, out):
        super().fill(block, out)
        out[:] = out[::-1].copy()


class Flat(drs.policies.Softmax):
    def _normalise(self, scores, bits):
        scores[:] = 1 / len(scores)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(("kind", "order"), [(Reversed, slice(None, None, -1)), (Flat, None)])
def test_a_policy_that_fills_in_something_else_is_asked(kind, order, wrapped):
    def by_hand(X):
        pi = drs.policies.Softmax(WORLD.taste).probabilities(X)
        return np.full_like(pi, 0.25) if order is None else pi[:, order]

    log = drs.Log(WORLD.table(500, seed=8), context=FEATURES)
    policy = kind(WORLD.taste)
    found = drs.evaluate(log, drs.policies.Epsilon(policy, 0.0) if wrapped else policy)["ips"].value
    assert found == pytest.approx(drs.evaluate(log, by_hand)["ips"].value, rel=1e-6)
    assert found != pytest.approx(drs.evaluate(log, drs.policies.Softmax(WORLD.taste))["ips"].value, rel=1e-3)


class More(M.Ridge):
    def fill(self, block, out):
        super().fill(block, out)
        out += 10


class Exponential(M.Ridge):
    def link(self, scores):
        np.exp(scores, out=scores)


@pytest.mark.parametrize("kind", [More, Exponential])
def test_a_model_that_predicts_something_else_is_asked(kind):
    log = drs.Log(WORLD.table(2_000, seed=8), context=FEATURES)
    plain, other = (one().fit(log.split(0.5)[0]) for one in (M.Ridge, kind))
    policy, test = drs.policies.Uniform(), log.split(0.5)[1]
    function = M.from_function(lambda X: plain.predict(X) + 10 if kind is More else np.exp(plain.predict(X)))
    wanted = drs.evaluate(test, policy, function, "dm")["dm"].value
    assert drs.evaluate(test, policy, other, "dm")["dm"].value == pytest.approx(wanted, rel=1e-6)
    run = drs.replay(test, policy, 20, other, method="dm", q=0.05)
    assert run.value == pytest.approx(drs.replay(test, policy, 20, function, method="dm", q=0.05).value, rel=1e-6)
    assert run.precision == ("float64" if kind is More else "float32")


def test_limits_in_float32_are_within_those_given():
    log = drs.Log(WORLD.table(2_000, seed=9), context=FEATURES)
    model = M.Ridge().fit(log.split(0.5)[0])
    options = {"clamp": (0.0, 0.1), "reward_range": (0.0, 1.0), "interval": "bernstein", "max_weight_bound": 1e4}
    result = drs.evaluate(log.split(0.5)[1], POLICIES["soft"], model, estimators=["dm", "dr"], **options)
    assert result.precision == "float32"
    models = BoundModels(None, None, None, (0.1, 0.1))
    assert limits_of(models, np.dtype(np.float32))[1] <= 0.1 <= limits_of(models, np.dtype(np.float32))[0]
    assert limits_of(models, np.dtype(np.float64)) == (0.1, 0.1)
    assert 0 <= result["dm"].value <= 0.1


def test_a_bound_on_weights_allows_for_rounding():
    world = drs.synth.World(4, 3, kinds=None, floor=0.0)
    log = drs.Log(world.table(2_000, seed=1), context=FEATURES)
    same = drs.policies.Softmax(world.habit)
    result = drs.evaluate(log, same, estimators="ips", max_weight_bound=1, reward_range=(0, 1), interval="bernstein")
    assert result["ips"].max_weight == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1.7e9])
def test_features_far_from_zero_are_scored_in_float64(offset):
    table = WORLD.table(500, seed=2)
    far = table.set_column(3, "x0", pa.array((table["x0"].to_numpy() * 10 + offset).astype(np.float32)))
    assert drs.evaluate(drs.Log(far, context=FEATURES), POLICIES).precision == (
        "float64" if offset > 200 else "float32"
    )
    ones = table.set_column(3, "x0", pa.array(np.ones(500, np.float32)))
    assert drs.evaluate(drs.Log(ones, context=FEATURES), POLICIES).precision == "float32"


def test_weights_that_float32_does_not_hold():
    never = np.array([0.0, 0.0, 0.0, -1e100])
    log = drs.Log(WORLD.table(500, seed=2), context=FEATURES)
    for kind in (drs.policies.Softmax, drs.policies.Linear):
        assert drs.evaluate(log, kind(WORLD.taste, never)).precision == "float64"


def test_a_score_that_is_not_finite():
    table = WORLD.table(5, seed=2)
    huge = table.set_column(3, "x0", pa.array(np.array([1, -1, 2, 3e38, 1], np.float32)))
    policy = drs.policies.Linear(1e3 * np.ones((4, 3)))
    with pytest.raises(drs.PolicyError, match=r"'policy' has a score that is not finite at row 3: \[inf, inf"):
        drs.evaluate(drs.Log(huge, context=FEATURES), policy)


def test_weights_of_ones_own_name_kernels_that_are_there():
    from drstream.evaluation.estimators import KERNELS, Weight
    from drstream.evaluation.program import OPS

    assert set(KERNELS) == set(OPS)
    with pytest.raises(drs.DrstreamError, match=r"no kernel 'caped'.*capped"):
        Weight("mine", "caped")
    with pytest.raises(drs.DrstreamError, match="takes 3 parameters, and it has 2"):
        Weight("mine", "capped", fixed=(0.0, 5.0))


def test_categories_alone_are_scored_in_float32():
    table = WORLD.table(500, seed=2)
    places = pa.array(np.random.default_rng(1).choice(["north", "south", "west"], 500))
    log = drs.Log(table.append_column("place", places), context="place")
    assert drs.evaluate(log, drs.policies.Linear(np.eye(4, 3))).precision == "float32"
