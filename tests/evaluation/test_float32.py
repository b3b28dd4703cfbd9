"""Scores in the type of the contexts: estimates near those in float64, the same bits however a log is cut."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from scripts.precision_study.measure import CASES, REQUIRED, measure
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


@pytest.mark.jit_only
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
        drs.evaluate(drs.Log(path, context=FEATURES, batch_size=rows), POLICIES, fitted, threads=threads).to_json()
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


def test_a_policy_that_fills_in_something_else_is_asked():
    class Reversed(drs.policies.Softmax):
        def fill(self, block, out):
            super().fill(block, out)
            out[:] = out[::-1].copy()

    log = drs.Log(WORLD.table(500, seed=8), context=FEATURES)
    plain, other = (drs.evaluate(log, kind(WORLD.taste)) for kind in (drs.policies.Softmax, Reversed))
    by_hand = drs.evaluate(log, lambda X: drs.policies.Softmax(WORLD.taste).probabilities(X)[:, ::-1])
    assert other["ips"].value == pytest.approx(by_hand["ips"].value, rel=1e-6)
    assert other["ips"].value != pytest.approx(plain["ips"].value, rel=1e-3)
