"""Sparse contexts that cannot be read: bad rows, and columns of the wrong kind."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.sparse_forms import (
    ACTIONS,
    CONTEXT,
    DIM,
    batches,
    columns,
    contexts,
    one_column,
    pairs,
    policies,
    roles,
    sparse_table,
    values,
)


def bad(indices, values, index=pa.int64(), value=pa.float64(), make=pa.list_):  # noqa: B008  # types do not change
    """A log whose rows 0, 1, 4 and 5 are fine, and 2 and 3 hold these lists."""
    found = {
        "indices": pa.array([[0], [], *indices, [], [3]], make(index)),
        "values": pa.array([[1.0], [], *values, [], [4.0]], make(value)),
    }
    return pa.table({**found, **roles(6)})


BAD = {
    "negative": (
        ([[1], [2, -1]], [[2.0], [3.0, 5.0]]),
        3,
        r"an index that is not in 0..10: got -1 in place 1, where 'values' holds 5.0",
    ),
    "dim itself": (([[1], [11]], [[2.0], [3.0]]), 3, r"not in 0..10: got 11 in place 0, where 'values' holds 3.0,"),
    "huge": (([[1, 2**62], [1]], [[2.0, 1.0], [3.0]]), 2, r"not in 0..10: got 4611686018427387904"),
    "wraps to 0": (([[1, 2**32], [1]], [[2.0, 1.0], [3.0]]), 2, r"not in 0..10: got 4294967296"),
    "null list of indices": (([[1], None], [[2.0], [3.0]]), 3, r"context is null"),
    "null list of values": (([[1], [2]], [[2.0], None]), 3, r"context is null"),
    "null index": (
        ([[1], [2, None]], [[2.0], [3.0, 1.0]]),
        3,
        r"holds a null: got None in place 1, where 'values' holds 1.0,",
    ),
    "null value": (
        ([[1], [2]], [[2.0], [None]]),
        3,
        r"context holds a null: got 2 in place 0, where 'values' holds None,",
    ),
    "more values": (
        ([[1], [2]], [[2.0], [3.0, 4.0]]),
        3,
        r"other numbers of indices and values: got .2., where .values. holds .3.0, 4.0.",
    ),
    "no values": (([[1], [2]], [[2.0], []]), 3, r"other numbers of indices and values: got .2., where .values. holds"),
    "same sum": (
        ([[1, 2], [2]], [[2.0], [3.0, 4.0]]),
        2,
        r"other numbers of indices and values: got .1, 2., where .values. holds .2.0.",
    ),
    "NaN": (
        ([[1, 2], [2]], [[2.0, np.nan], [3.0]]),
        2,
        r"context is not finite: got 2 in place 1, where 'values' holds nan,",
    ),
    "infinite": (
        ([[1], [2]], [[2.0], [-np.inf]]),
        3,
        r"context is not finite: got 2 in place 0, where 'values' holds -inf,",
    ),
}


@meeting(1, case=BAD, make=[pa.list_, pa.large_list])
def test_bad_rows_name_place_value_and_remedy(case, make, tmp_path):
    lists, row, message = BAD[case]
    table = bad(*lists, make=make)
    with pytest.raises(drs.LogError, match=rf'{message}.* at row {row}, column .*on_bad_row="skip"'):
        contexts(drs.Log(table, context=CONTEXT))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=2)
    place = rf" at row {row} \(row {row - 2} of row group 1 of .*log.parquet\), column .*on_bad_row="
    with pytest.raises(drs.LogError, match=message + ".*" + place):
        contexts(drs.Log(tmp_path / "log.parquet", context=CONTEXT))


@meeting(1, case=BAD, make=[pa.list_, pa.large_list])
def test_bad_rows_are_skipped_and_counted(case, make, tmp_path):
    lists, row, message = BAD[case]
    table = bad(*lists, make=make)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=2)
    others = [k for k in range(6) if k != row and (case != "same sum" or k != 3)]
    wanted = contexts(drs.Log(table.take(others), context=CONTEXT))
    for source in (table, tmp_path / "log.parquet"):
        for size in (1, 4, None):
            skipped = Counter()
            log = cut_log(source, context=CONTEXT, on_bad_row="skip", batch_size=size)
            assert contexts(log, skipped) == wanted
            assert [int(row) for batch in batches(log) for row in batch.rows] == others
            ((reason, count),) = skipped.items()
            assert count == 6 - len(others)
            assert message.partition(":")[0] in reason


def test_every_reason_is_counted_once():
    indices = [[0], None, [1], [1, 2], [None, 99], [99], [3], [4]]
    numbers = [[1.0], [1.0], None, [1.0], [1.0, 1.0], [np.nan], [np.inf], [4.0]]
    table = pa.table({"indices": indices, "values": numbers, **roles(8)})
    log = drs.Log(table, context=CONTEXT, actions=ACTIONS, on_bad_row="skip")
    result = drs.evaluate(log, policies(), estimators=["ips", "snips"])
    assert result.n == 2
    assert result.skipped == {
        "context is null": 2,
        "context has other numbers of indices and values": 1,
        "context holds a null": 1,
        "context has an index that is not in 0..10": 1,
        "context is not finite": 1,
    }
    good = drs.Log(table.take([0, 7]), context=CONTEXT, actions=ACTIONS)
    np.testing.assert_allclose(values(log), values(good), atol=1e-7)  # sums are taken about the first rewards of all


def test_the_first_bad_row_is_named():
    """Not the first that one check finds, while another's stands before it."""
    table = bad([[99], [None]], [[1.0], [1.0]])
    with pytest.raises(drs.LogError, match=r"got 99 in place 0, where 'values' holds 1.0, at row 2"):
        contexts(drs.Log(table, context=CONTEXT))


@pytest.mark.parametrize(
    ("kind", "index"), [(pa.uint64(), 2**64 - 1), (pa.uint64(), 2**63), (pa.uint8(), 255), (pa.int8(), -128)], ids=str
)
def test_indices_outside_of_every_type(kind, index):
    table = bad([[1], [index]], [[1.0], [1.0]], index=kind)
    with pytest.raises(
        drs.LogError, match=rf"not in 0..10: got {index} in place 0, where 'values' holds 1.0, at row 3"
    ):
        contexts(drs.Log(table, context=CONTEXT))
    skipped = Counter()
    assert len(contexts(drs.Log(table, context=CONTEXT, on_bad_row="skip"), skipped)) == 5
    assert skipped == {"context has an index that is not in 0..10": 1}


@pytest.mark.parametrize("form", ["structs", "map", "indices", "fixed structs", "fixed lists"])
def test_bad_rows_of_other_forms(form):
    rows = [[(1, 2.0), (2, 3.0)] for _ in range(6)]
    rows[3][1] = (DIM, 3.0)
    table, context = sparse_table(rows, form)
    shown = {"indices": "11", "map": r"\(11, 3.0\)"}.get(form, r"\{.*11, .*3.0\}")
    shown = "11" if form == "fixed lists" else shown
    with pytest.raises(drs.LogError, match=rf"not in 0..10: got {shown} in place 1.* at row 3, .*on_bad_row="):
        contexts(drs.Log(table, context=context))
    cleared = columns(rows, form)[0]
    name = context.indices
    masked = [None if k == 2 else x for k, x in enumerate(cleared[name].to_pylist())]
    table = pa.table({**cleared, name: pa.array(masked, cleared[name].type), **roles(6)})
    skipped = Counter()
    got = contexts(drs.Log(table, context=context, on_bad_row="skip"), skipped)
    assert got == [[(1, 1.0), (2, 1.0)] if form == "indices" else [(1, 2.0), (2, 3.0)]] * 4
    assert skipped == {"context is null": 1, "context has an index that is not in 0..10": 1}
    with pytest.raises(drs.LogError, match=rf"context is null at row 2, column '{name}'"):
        contexts(drs.Log(table, context=context))


@pytest.mark.parametrize("make", [pa.ListArray.from_arrays, pa.FixedSizeListArray.from_arrays])
def test_structs_that_are_null(make):
    """What stands under a null struct is anything, here an entry that looks well."""
    fields = [pa.array([0, 1, 2, 3], pa.int32()), pa.array([1.0, 2.0, 3.0, 4.0])]
    structs = pa.StructArray.from_arrays(fields, ["index", "value"], mask=pa.array([False, False, True, False]))
    lists = make([0, 2, 4], structs) if make is pa.ListArray.from_arrays else make(structs, 2)
    table = pa.table({"f": lists, **roles(2)})
    with pytest.raises(drs.LogError, match=r"context holds a null: got .* in place 0 at row 1"):
        contexts(drs.Log(table, context=one_column()))
    skipped = Counter()
    assert contexts(drs.Log(table, context=one_column(), on_bad_row="skip"), skipped) == [[(0, 1.0), (1, 2.0)]]
    assert skipped == {"context holds a null": 1}


def test_lists_that_are_null_over_entries():
    """A null list may have entries in its memory."""

    def lists(flat, kind):
        mask = pa.array([False, True, False])
        return pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array(flat, kind), mask=mask)

    found = {"indices": lists([0, 99, 98, 1], pa.int32()), "values": lists([1, np.nan, 9, 2], pa.float32())}
    table = pa.table({**found, **roles(3)})
    skipped = Counter()
    assert contexts(drs.Log(table, context=CONTEXT, on_bad_row="skip"), skipped) == [[(0, 1)], [(1, 2)]]
    assert skipped == {"context is null": 1}
    assert contexts(drs.Log(table.take([0, 2]), context=CONTEXT)) == [[(0, 1)], [(1, 2)]]


def test_no_row_that_can_be_used():
    table = bad([[1], [2]], [[1.0], [2.0]]).slice(2, 2)
    for change in ([None, None], [[99], [-1]], [[], []]):
        changed = table.set_column(0, "indices", pa.array(change, pa.list_(pa.int64())))
        skipped = Counter()
        assert contexts(drs.Log(changed, context=CONTEXT, on_bad_row="skip"), skipped) == []
        assert skipped.total() == 2
    assert contexts(drs.Log(table.slice(0, 0), context=CONTEXT, actions=2)) == []


@pytest.mark.parametrize("dim", [0, -1, 2**31, 1.5, 10.0, "10", None])
def test_dim_must_be_a_number_of_features(dim):
    with pytest.raises(drs.LogError, match=r"dim=.*say how many features there are, from 1 to 2,147,483,647"):
        drs.Sparse("indices", dim=dim)
    with pytest.raises(drs.LogError, match=r"dim=0: say how many"):
        drs.Sparse("indices", "values")


ENTRY = {"index": 1, "value": 2.0}


@pytest.mark.parametrize(
    ("changes", "context", "message"),
    [
        ({}, drs.Sparse("indces", "values", dim=5), r"no column 'indces' for the context: did you mean 'indices'\?"),
        ({}, drs.Sparse("indices", "value", dim=5), r"no column 'value' for the context: did you mean 'values'\?"),
        ({}, drs.Sparse("values", "indices", dim=5), r"'values' has type list<.*double>: the indices .* integers"),
        ({}, drs.Sparse("action", dim=5), r"'action' has type int64: the indices of sparse contexts are lists"),
        ({}, drs.Sparse("indices", "reward", dim=5), r"'reward' has type double: the values .* lists of numbers"),
        ({"values": [["a"]] * 4}, CONTEXT, r"'values' has type list<.*string>: the values .* lists of numbers"),
        ({"values": [[[1.0]]] * 4}, CONTEXT, r"'values' has type list<.*list<.*: the values .* lists of numbers"),
        ({"indices": [[True]] * 4}, CONTEXT, r"'indices' has type list<.*bool>: the indices"),
        ({"indices": [1] * 4}, CONTEXT, r"'indices' has type int64: the indices"),
        ({"indices": [[ENTRY]] * 4}, CONTEXT, r"'indices' holds indices and values: leave out values='values'"),
        ({"indices": [[{"a": 1, "b": 2}]] * 4}, drs.Sparse("indices", dim=5), r"not plain\. Call them index and value"),
        ({"indices": [[{"index": 1}]] * 4}, drs.Sparse("indices", dim=5), r"not plain.*there are: index|did you mean"),
        (
            {"indices": pa.array([[("a", 1.0)]] * 4, pa.map_(pa.string(), pa.float64()))},
            drs.Sparse("indices", dim=5),
            r"map<string, double>.*the index \(an integer\)",
        ),
    ],
)
def test_columns_that_cannot_be_sparse_contexts(changes, context, message):
    table = pa.table({"indices": [[1]] * 4, "values": [[1.0]] * 4, **roles(4), **changes})
    with pytest.raises(drs.LogError, match=message):
        drs.Log(table, context=context)


def test_policies_of_another_size_are_refused():
    table, context = sparse_table(pairs())
    with pytest.raises(drs.PolicyError, match=r"shape \(3, 4\).*3 actions and 11 features"):
        drs.evaluate(drs.Log(table, context=context), drs.policies.Linear(np.zeros((ACTIONS, 4))))


def test_log_without_propensities_can_be_read():
    rows = pairs()
    table, context = sparse_table(rows)
    table = table.drop_columns(["propensity"])
    with pytest.raises(drs.LogError, match=r"usual name for the propensity.*propensity=None"):
        drs.Log(table, context=context)
    log = drs.Log(table, context=context, propensity=None)
    assert "propensity  none" in repr(log)
    assert contexts(log) == rows
    assert log.n_actions == ACTIONS
    batch = batches(log, action=True)[0]
    assert len(batch.propensity) == 0
    block = next(batch.blocks(10)).take(np.array([3, 1]))
    assert len(block.propensity) == 0
    assert block.action.tolist() == table["action"].to_numpy()[[3, 1]].tolist()
    i = table.schema.get_field_index("reward")
    rewards = table["reward"].to_pylist()
    rewards[7] = None
    gap = table.set_column(i, "reward", pa.array(rewards))
    with pytest.raises(drs.LogError, match="reward is null at row 7"):
        contexts(drs.Log(gap, context=context, propensity=None))
    skipped = Counter()
    skipping = drs.Log(gap, context=context, propensity=None, on_bad_row="skip")
    assert contexts(skipping, skipped) == [*rows[:7], *rows[8:]]
    assert skipped == {"reward is null": 1}
    rewards[7] = np.nan
    gap = table.set_column(i, "reward", pa.array(rewards))
    for action in (False, True):
        with pytest.raises(drs.LogError, match="reward is not finite: got nan at row 7"):
            batches(drs.Log(gap, context=context, propensity=None), action=action)
