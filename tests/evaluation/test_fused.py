"""The fast way of a batch, from contexts to sums in one call, has the bits of the way block by block."""

from functools import partial
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import drstream as drs
from drstream.evaluation import fused, plan
from drstream.log.chunks import FEW, multiples
from tests.helpers.evaluations import M
from tests.helpers.fused import ESTIMATORS, FEATURES, POLICIES, ROWS, table_of
from tests.helpers.passes import not_plain


def both_ways(monkeypatch, run):
    """The estimates of both ways, and whether the first was the fast one.

    Sums that only findings are made from are added up in another order.
    """
    calls = []
    add = fused.Fused.add
    monkeypatch.setattr(fused.Fused, "add", lambda *args: calls.append(1) or add(*args))
    fast = repr(run().rows())
    taken = bool(calls)
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_can_fuse", lambda *args: False)
        slow = repr(run().rows())
    return fast, slow, taken


@pytest.mark.parametrize("kind", [pytest.param("float32", marks=not_plain), "float64"])
@pytest.mark.parametrize("listed", [False, True], ids=["columns", "lists"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (None, {"estimators": ["ips", "snips", "ips-capped"], "cap": 3.0}),
        (M.Ridge(), {"estimators": ESTIMATORS, "cap": 3.0}),
        (M.Logistic(), {"estimators": ["dm", "dr"], "clamp": (0.2, 0.6)}),
        (M.Ridge(), {"crossfit": 3}),
    ],
    ids=["no model", "ridge", "logistic, clamped", "cross-fitted"],
)
def test_bits_of_both_ways_are_equal(monkeypatch, kind, listed, model, options):
    table, context = table_of(kind, listed)
    log = drs.Log(table, context=context)
    if model is not None and "crossfit" not in options:
        model = model.fit(drs.Log(table_of(kind, listed, 500)[0], context=context))
    fast, slow, taken = both_ways(monkeypatch, lambda: drs.evaluate(log, POLICIES, model, interval="normal", **options))
    assert taken
    assert fast == slow


def test_contexts_of_many_numbers_are_multiplied_as_they_are(monkeypatch):
    actions, features, rows = 20, 60, 1_500  # too many for a small product, with 1,024 events
    random = np.random.default_rng(0)
    x = pa.array(random.standard_normal((rows, features)).astype(np.float32).reshape(-1))
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(x, features),
            "action": random.integers(0, actions, rows),
            "reward": random.random(rows),
            "propensity": np.full(rows, 1 / actions),
        }
    )
    policy = drs.policies.Softmax(random.standard_normal((actions, features)) / 8)
    fast, slow, taken = both_ways(monkeypatch, lambda: drs.evaluate(drs.Log(table), policy, estimators=["ips"]))
    assert taken
    assert fast == slow


def test_policies_that_look_at_nothing_are_exact_beside_linear_ones():
    table, context = table_of("float32", listed=False, rows=2_000)
    log = drs.Log(table, context=context)
    alone = {name: POLICIES[name] for name in ("uniform", "always")}
    found, wanted = drs.evaluate(log, POLICIES, interval="normal"), drs.evaluate(log, alone, interval="normal")
    for name in alone:
        assert found[name, "ips"].value == wanted[name, "ips"].value
        assert found[name, "ips"].stderr == wanted[name, "ips"].stderr


def test_policies_that_are_columns_go_the_fast_way(monkeypatch):
    table, context = table_of("float32", listed=False)
    policies = {"given": drs.policies.Column("given"), **POLICIES}
    for chosen in (policies, {"given": policies["given"]}, {"a": policies["given"], "b": policies["given"]}):
        run = partial(drs.evaluate, drs.Log(table, context=context), chosen, None, ["ips", "snips"], interval="normal")
        fast, slow, taken = both_ways(monkeypatch, run)
        assert taken
        assert fast == slow


def test_what_the_fast_way_cannot_do_goes_block_by_block(monkeypatch):
    table, context = table_of("float32", listed=False, rows=2_000)
    log = drs.Log(table, context=context)
    own = {"own": lambda X: np.full((len(X), 4), 0.25), **POLICIES}
    mixed = table.set_column(table.schema.get_field_index("x1"), "x1", table["x1"].cast(pa.float64()))
    for run in (
        lambda: drs.evaluate(log, own),
        lambda: drs.evaluate(log, POLICIES, interval="bootstrap"),
        lambda: drs.evaluate(log, POLICIES, by="action"),
        lambda: drs.evaluate(log, POLICIES, precision="float64"),
        lambda: drs.evaluate(drs.Log(mixed, context=context), POLICIES),
        lambda: drs.evaluate(log, POLICIES, propensity=M.Propensity(), crossfit=2),
        lambda: drs.evaluate(log, POLICIES, estimators=["ips"], max_weight_bound=1e9),
    ):
        fast, slow, taken = both_ways(monkeypatch, run)
        assert not taken
        assert fast == slow


@pytest.mark.jit_only
def test_so_many_actions_that_a_tile_would_not_be_small_go_block_by_block(monkeypatch):
    table, context = table_of("float32", listed=False, rows=1_100)
    policy = drs.policies.Softmax(np.zeros((9_000, 3)))
    _, _, taken = both_ways(monkeypatch, lambda: drs.evaluate(drs.Log(table, context=context), policy))
    assert not taken


@pytest.mark.parametrize("listed", [False, True], ids=["columns", "lists"])
def test_batches_of_any_size_and_threads_give_the_same_bits(tmp_path, listed):
    table, context = table_of("float32", listed)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 3 + 1)
    model = M.Ridge().fit(drs.Log(table_of("float32", listed, 500)[0], context=context))
    found = {
        drs.evaluate(drs.Log(path, context=context, batch_size=rows), POLICIES, model, threads=threads).to_json()
        for rows, threads in ((None, 1), (None, 2), (700, 2), (1024, 1), (5_000, 2))
    }
    assert len(found) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("listed", [False, True], ids=["columns", "lists"])
@pytest.mark.parametrize("with_model", [False, True], ids=["policy", "model"])
@pytest.mark.parametrize("policy", ["soft", "best"])
def test_a_context_that_is_not_finite_is_named(value, listed, with_model, policy):
    table, _ = table_of("float32", listed=False, rows=2_500)
    x = table["x1"].to_numpy().copy()
    x[2_100] = value
    table = table.set_column(table.schema.get_field_index("x1"), "x1", pa.array(x))
    context = FEATURES
    model = M.Ridge().fit(drs.Log(table.slice(0, 500), context=FEATURES)) if with_model else None
    if listed:
        flat = np.column_stack([table[name].to_numpy() for name in FEATURES]).reshape(-1)
        table, context = table.append_column("x", pa.FixedSizeListArray.from_arrays(pa.array(flat), 3)), "x"
    name = "'x'" if listed else "'x1'"
    estimators = ["dr"] if with_model else ["ips"]
    for chosen in ({policy: POLICIES[policy]}, {"zero": drs.policies.Linear(np.zeros((4, 3)))}):
        with pytest.raises(drs.LogError, match=f"context {name} must be finite: got {value} at row 2100"):
            drs.evaluate(drs.Log(table, context=context), chosen, model, estimators=estimators)
        log = drs.Log(table, context=context, on_bad_row="skip")
        found = drs.evaluate(log, chosen, model, estimators=estimators)
        assert (found.n, found.skipped) == (2_499, {"context is not finite": 1})


@given(sizes=st.lists(st.integers(1, 3 * FEW), max_size=6), unit=st.sampled_from([1, 64, 1024]))
def test_multiples_keep_all_rows_in_order(sizes, unit):
    ends = np.cumsum([0, *sizes])
    batches = [pa.record_batch({"i": np.arange(a, b)}) for a, b in pairwise(ends)]
    found = list(multiples(iter(batches), unit))
    assert [i for batch in found for i in batch.column("i").to_pylist()] == list(range(ends[-1]))
    assert all(batch.num_rows % unit == 0 for batch in found[:-1])
    assert all(batch.num_rows >= min(unit, FEW) for batch in found[:-1])
