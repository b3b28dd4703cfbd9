"""Everything that a log can be read from, and what stands in it."""

import subprocess
import sys
from collections import Counter

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.log.rows import split_seed
from drstream.sources.base import PIECE
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import not_plain

ROWS = 2_000


@pytest.fixture(scope="module")
def table():
    return world().table(ROWS, seed=1)


def value(source, **options):
    log = drs.Log(source, **options)
    return drs.evaluate(log, drs.policies.Softmax(world().taste), estimators=["ips"])["ips"].value


@pytest.fixture(scope="module")
def wanted(table):
    return value(table)


# sources


def test_parquet_file_list_glob_directory(table, wanted, tmp_path):
    for i in range(4):
        pq.write_table(table.slice(i * 500, 500), tmp_path / f"part-{i}.parquet", row_group_size=200)
    paths = sorted(str(path) for path in tmp_path.glob("*.parquet"))
    values = [
        value(paths),
        value(f"{tmp_path}/part-*.parquet"),
        value(tmp_path),
        value([tmp_path / "part-0.parquet", *paths[1:]]),
    ]
    assert values == [pytest.approx(wanted, rel=1e-13)] * 4
    assert len(set(values)) == 1
    assert drs.Log(paths).rows == ROWS
    assert value(str(paths[0])) == pytest.approx(value(table.slice(0, 500)), rel=1e-13)


def test_directory_with_other_things_in_it(table, wanted, tmp_path):
    (tmp_path / "deep" / "_temporary").mkdir(parents=True)
    pq.write_table(table, tmp_path / "deep" / "log.parquet")
    pq.write_table(table, tmp_path / "deep" / "_temporary" / "log.parquet")
    (tmp_path / "README.md").write_text("what this is")
    (tmp_path / "_SUCCESS").write_text("")
    assert value(tmp_path) == wanted


def test_file_uri(table, wanted, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    assert value(f"file://{tmp_path}/log.parquet") == wanted


def test_hive_partitions_are_columns(table, tmp_path):
    cut = table.append_column("day", pa.array(np.arange(ROWS) % 3)).append_column("x9", pa.array(np.ones(ROWS)))
    ds.write_dataset(
        cut, tmp_path, format="parquet", partitioning=ds.partitioning(pa.schema([("day", pa.int64())]), flavor="hive")
    )
    log = drs.Log(tmp_path, context=["x0", "day"], filter=pc.field("day") == 2)
    got = drs.evaluate(log, lambda X: np.where(X[:, 1:] == 2, [[1.0, 0, 0, 0]], np.nan), estimators="ips")["ips"]
    part = cut.filter(pc.field("day") == 2)
    assert got.n == part.num_rows
    assert got.value == pytest.approx(drs.evaluate(part, drs.policies.Constant(0), estimators="ips")["ips"].value)


def test_arrow_ipc_gives_the_numbers_of_the_table(table, wanted, tmp_path):
    path = tmp_path / "log.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    assert value(path) == wanted


@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t,
        lambda t: t.combine_chunks().to_batches()[0],
        lambda t: ds.dataset(t),
        lambda t: t.to_reader(max_chunksize=123),
        pl.from_arrow,
        lambda t: t.to_pandas(),
        lambda t: duckdb.sql("select * from t"),
        lambda t: duckdb.sql("select * from t").to_arrow_reader(100),
    ],
    ids=["table", "record batch", "dataset", "reader", "polars", "pandas", "duckdb", "duckdb reader"],
)
def test_objects(convert, table, wanted):
    assert value(convert(table)) == wanted


def test_dataset_of_parquet_and_filtered_dataset(table, wanted, tmp_path):
    pq.write_table(table, tmp_path / "log.parquet")
    dataset = ds.dataset(tmp_path)
    assert value(dataset) == wanted
    half = dataset.filter(pc.field("x0") > 0)
    assert value(half) == pytest.approx(value(table.filter(pc.field("x0") > 0)))


def test_polars_and_pandas_text_actions(table):
    names = np.array(["ant", "bee", "cat", "dog"])[table["action"].to_numpy()]
    text = table.set_column(table.schema.get_field_index("action"), "action", pa.array(names))
    results = []
    for source in (
        text,
        pl.from_arrow(text),
        text.to_pandas(),
        text.to_pandas().astype({"action": "category"}),
        duckdb.sql("select * from text"),
    ):
        log = drs.Log(source)
        assert list(log.labels) == ["ant", "bee", "cat", "dog"]
        results.append(drs.evaluate(log, drs.policies.Constant("cat"), estimators="ips")["ips"].value)
    assert len(set(results)) == 1
    assert results[0] == drs.evaluate(table, drs.policies.Constant(2), estimators="ips")["ips"].value


@not_plain
def test_more_rows_than_a_segment():
    rows = PIECE * 2 + 17
    column = np.arange(rows) % 2
    table = pa.table({"action": column, "reward": column.astype(float), "propensity": np.full(rows, 0.5)})
    log = drs.Log(table)
    assert [part.rows for part in log.parts(["reward"])] == [PIECE, PIECE, 17]
    for source in (table, table.to_reader(max_chunksize=1000)):
        assert drs.evaluate(source, drs.policies.Constant(1), estimators="ips")["ips"].value == pytest.approx(
            2 * column.mean()
        )


# streams that can be read once


def test_one_shot_stream_twice(table):
    log = drs.Log(table.to_reader(), actions=4)
    drs.evaluate(log, drs.policies.Uniform(), estimators="ips")
    with pytest.raises(drs.LogError, match=r"read only once.*Table.*Parquet"):
        drs.evaluate(log, drs.policies.Uniform(), estimators="ips")


def test_one_shot_stream_for_fit_and_evaluation(table):
    train, test = drs.Log(table.to_reader(), actions=4).split(0.5)
    model = drs.models.Ridge().fit(train)
    with pytest.raises(drs.LogError, match="read only once"):
        drs.evaluate(test, drs.policies.Uniform(), model=model)


def test_one_shot_stream_too_large_to_find_labels(table, monkeypatch):
    monkeypatch.setattr("drstream.sources.memory.HOLD_BYTES", 1000)
    with pytest.raises(drs.LogError, match="actions="):
        drs.evaluate(table.to_reader(max_chunksize=50), drs.policies.Uniform())


def test_object_that_streams_once(table):
    class Once:
        left = 1

        def __arrow_c_stream__(self, requested_schema=None):
            if not self.left:
                raise RuntimeError("already consumed")
            self.left -= 1
            return table.__arrow_c_stream__(requested_schema)

    log = drs.Log(Once(), actions=4)
    drs.evaluate(log, drs.policies.Uniform(), estimators="ips")
    with pytest.raises(drs.LogError, match=r"already consumed.*pass a pyarrow Table"):
        drs.evaluate(log, drs.policies.Uniform(), estimators="ips")


# contexts


def batch_of(log, **needs):
    reader = log.reader(context=True, **needs)
    part = next(log.parts(reader.columns))
    return next(reader.batches(part, Counter()))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_float_contexts_arrive_as_they_are_without_a_copy(kind):
    values = pa.array(np.arange(60), kind)
    lists = pa.FixedSizeListArray.from_arrays(values, 3)
    table = pa.table(
        {"x": lists, "f0": values[:20], "action": [0] * 20, "reward": [0.0] * 20, "propensity": [1.0] * 20}
    )
    address = values.buffers()[1].address
    batch = batch_of(drs.Log(table.slice(5, 10), context="x"))
    assert batch.context.dtype == kind.to_pandas_dtype()
    assert batch.context.ctypes.data == address + 15 * values.type.bit_width // 8
    assert batch.context.tolist() == np.arange(15, 45).reshape(10, 3).tolist()
    (column,) = batch_of(drs.Log(table.slice(5, 10), context=["f0"])).context
    assert column.dtype == kind.to_pandas_dtype()
    assert not column.flags.owndata
    assert column.tolist() == list(range(5, 15))


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.int32(),
        pa.uint32(),
        pa.int64(),
        pa.uint64(),
        pa.bool_(),
        pa.float16(),
        pa.decimal128(22, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["column", "list"])
def test_contexts_of_any_number_type(kind, layout):
    numbers = [False, True, True, False, True, False] if kind == pa.bool_() else [0, 1, 100, 7, 5, 3]
    values = pa.array([np.float16(x) for x in numbers] if kind == pa.float16() else numbers).cast(kind)
    ref = np.array(values.to_pylist(), float)
    roles = {"action": [0] * 6, "reward": [0.0] * 6, "propensity": [1.0] * 6}
    if layout == "list":
        context = pa.FixedSizeListArray.from_arrays(values, 2)
        table = pa.table({"x": context, **{k: v[:3] for k, v in roles.items()}})
        got = batch_of(drs.Log(table.slice(1))).context
        assert got.tolist() == ref.reshape(3, 2)[1:].tolist()
    else:
        got = batch_of(drs.Log(pa.table({"x0": values, **roles}).slice(2))).context[0]
        assert got.tolist() == ref[2:].tolist()
    assert got.dtype in (np.float32, np.float64)


def test_lists_of_one_length(table):
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(3)])
    lists = table.select(["action", "reward", "propensity"]).append_column("context", pa.array(list(X)))
    assert pa.types.is_list(lists.schema.field("context").type)
    assert value(lists) == value(table)
    assert value(lists.to_reader(max_chunksize=100)) == value(table)
    ragged = lists.slice(0, 2).to_pylist()
    ragged[1]["context"] = [1.0]
    with pytest.raises(drs.LogError, match=r"context has another length: got \[.*\] at row 1, .*have 3 numbers"):
        value(pa.Table.from_pylist(ragged, schema=lists.schema), actions=4)


def test_context_by_glob_and_order(table):
    log = drs.Log(table, context="x*")
    assert log.roles.context == ("x0", "x1", "x2")
    assert drs.Log(table, context=["x2", "x?"]).roles.context == ("x2", "x0", "x1")
    assert drs.Log(table, context="*").roles.context == ("x0", "x1", "x2")
    assert drs.Log(table, context=[]).roles.context == ()


# actions


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_actions_of_any_integer_type(kind, table, wanted):
    i = table.schema.get_field_index("action")
    assert value(table.set_column(i, "action", table["action"].cast(kind))) == wanted


def test_given_labels_are_kept_in_order():
    table = pa.table({"action": ["b", "a", "b"], "reward": [1.0, 2.0, 3.0], "propensity": [0.5] * 3})
    log = drs.Log(table, actions=["b", "c", "a"])
    assert log.labels == ["b", "c", "a"]
    result = drs.evaluate(log, lambda X: np.tile([1.0, 0, 0], (len(X), 1)), estimators="ips")
    assert result["ips"].value == pytest.approx((1 + 3) * 2 / 3)
    numbers = pa.table({"action": [30, 10, 30], "reward": [1.0, 2.0, 3.0], "propensity": [0.5] * 3})
    log = drs.Log(numbers, actions=[10, 20, 30])
    assert drs.evaluate(log, drs.policies.Constant(30), estimators="ips")["ips"].value == pytest.approx(8 / 3)
    assert "3 actions 10, 20, 30" in repr(log)


def test_dictionary_actions_of_parquet_chunks(tmp_path):
    """Each row group has a dictionary of its own, in its own order."""
    rows = {"action": ["z", "z", "y", "x"], "reward": [1.0, 2.0, 3.0, 4.0], "propensity": [0.5] * 4}
    for kind in (pa.string(), pa.dictionary(pa.int8(), pa.string())):
        table = pa.table(rows)
        table = table.set_column(
            0, "action", table["action"].cast(kind) if kind == pa.string() else table["action"].dictionary_encode()
        )
        pq.write_table(table, tmp_path / "log.parquet", row_group_size=2)
        for batch_size in (1, 100):
            log = cut_log(tmp_path / "log.parquet", batch_size=batch_size)
            assert log.labels == ["x", "y", "z"]
            assert drs.evaluate(log, drs.policies.Constant("y"), estimators="ips")["ips"].value == pytest.approx(1.5)


def test_policy_knows_more_actions_than_were_logged(table):
    few = table.filter(pc.field("action") < 2)
    assert drs.Log(few).n_actions == 2
    policy = drs.policies.Softmax(world().taste)
    both = drs.evaluate(few, {"soft": policy, "uniform": drs.policies.Uniform()}, estimators="ips")
    assert both["uniform", "ips"].max_weight == pytest.approx(0.25 / pc.min(few["propensity"]).as_py())
    with pytest.raises(drs.PolicyError, match=r"shape \(4, 3\).*2 actions"):
        drs.evaluate(drs.Log(few, actions=2), policy)


# roles


def test_usual_names_are_found_and_shown():
    table = pa.table(
        {"item_id": [1, 0], "click": [1, 0], "pscore": [0.5, 0.25], "user_feature_0": [1.5, 2.5], "noise": ["a", "b"]}
    )
    log = drs.Log(table)
    text = repr(log)
    for line in (
        "action      item_id: 2 actions 0, 1",
        "reward      click",
        "propensity  pscore",
        "1 feature: user_feature_0",
    ):
        assert line in text
    for name in ("propensity_score", "probability", "action_prob"):
        assert drs.Log(table.rename_columns(["arm", "reward", name, "f0", "noise"])).roles.propensity == name


def test_cost_is_negated():
    table = pa.table({"action": [0, 0], "cost": [1.0, 2.0], "propensity": [1.0, 1.0]})
    log = drs.Log(table)
    assert drs.evaluate(log, drs.policies.Constant(0), estimators="ips").baseline.value == -1.5
    assert "costs, negated" in repr(log)
    assert drs.evaluate(drs.Log(table, reward="cost"), drs.policies.Constant(0), estimators="ips").baseline.value == 1.5


def test_repr_of_a_part(table):
    log = drs.Log(table, filter=pc.field("x0") > 0, on_bad_row="skip").split(0.25)[1]
    text = repr(log)
    for part in ("filter", "x0 > 0", "[0.25, 1)", "skipped"):
        assert part in text


# filter, split, head


def test_filter_equals_filtered_table(table, tmp_path):
    expression = (pc.field("x1") < 0.5) & (pc.field("reward") < 2)
    pq.write_table(table.append_column("unused", pa.array(["?"] * ROWS)), tmp_path / "log.parquet", row_group_size=300)
    wanted = value(table.filter(expression))
    for source in (table, tmp_path / "log.parquet", table.to_reader(max_chunksize=77)):
        assert value(source, filter=expression) == pytest.approx(wanted, rel=1e-12)


def test_filter_skips_row_groups_by_statistics(table, tmp_path):
    ordered = table.append_column("day", pa.array(np.arange(ROWS) // 500))
    pq.write_table(ordered, tmp_path / "log.parquet", row_group_size=500)
    log = drs.Log(tmp_path / "log.parquet", filter=pc.field("day") == 2)
    parts = list(log.parts(["reward"]))
    assert [(part.index, part.first_row) for part in parts] == [(2, 1000)]


def test_split_is_disjoint_complete_repeatable_and_independent_of_storage(table, tmp_path):
    numbered = table.append_column("row", pa.array(np.arange(ROWS)))
    pq.write_table(numbered, tmp_path / "log.parquet", row_group_size=333)

    def rows(log):
        return log.head(ROWS)["row"].to_pylist()

    train, test = drs.Log(numbered).split(0.3, seed=7)
    a, b = rows(train), rows(test)
    assert sorted(a + b) == list(range(ROWS))
    assert abs(len(a) / ROWS - 0.3) < 4.5 * np.sqrt(0.21 / ROWS)
    assert a == [k for k in range(ROWS) if drs.uniforms(split_seed(7, 0), k, 1)[0] < 0.3]
    assert rows(cut_log(tmp_path / "log.parquet", batch_size=100).split(0.3, seed=7)[0]) == a
    assert rows(drs.Log(numbered).split(0.3, seed=8)[0]) != a
    filtered = drs.Log(tmp_path / "log.parquet", filter=pc.field("row") >= 900).split(0.3, seed=7)[0]
    assert rows(filtered) == [k for k in a if k >= 900]


def test_split_of_a_split_by_the_same_seed(table):
    numbered = table.append_column("row", pa.array(np.arange(ROWS)))
    half = drs.Log(numbered).split(0.5)[0]
    quarter, other = half.split(0.5)
    a, b, whole = (set(log.head(ROWS)["row"].to_pylist()) for log in (quarter, other, half))
    assert a | b == whole
    assert not a & b
    assert abs(len(a) / len(whole) - 0.5) < 4.5 * 0.5 / np.sqrt(len(whole))


def test_head(table):
    assert drs.Log(table).head(3).equals(table.slice(0, 3))
    assert drs.Log(table, filter=pc.field("x0") > 0).head(2).equals(table.filter(pc.field("x0") > 0).slice(0, 2))
    assert drs.Log(table).head(10**9).num_rows == ROWS


# bad rows, skipped


def test_bad_rows_are_skipped_and_counted(tmp_path):
    table = pa.table(
        {
            "action": pa.array(["a", "b", None, "zzz", "a", "a", "b", "a", "a", "b"]),
            "reward": pa.array([1.0, None, 1.0, 1.0, np.nan, np.inf, 1.0, 1.0, 1.0, 0.0]),
            "propensity": pa.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 1.5, None, 0.5]),
            "x0": pa.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=3)
    good = table.take([0, 9])
    for source in (table, tmp_path / "log.parquet"):
        log = cut_log(source, context=["x0"], actions=["a", "b"], on_bad_row="skip", batch_size=2)
        result = drs.evaluate(log, lambda X: np.full((len(X), 2), 0.5), estimators="ips")
        assert result.n == 2
        assert result.skipped == {
            "reward is null": 1,
            "propensity is null": 1,
            "action is null": 1,
            "reward is not finite": 2,
            "propensity is not in (0, 1]": 2,
            "action is not among the labels": 1,
        }
        ref = drs.evaluate(drs.Log(good, actions=["a", "b"]), drs.policies.Uniform(), estimators="ips")
        assert result["ips"].value == ref["ips"].value
        assert "skipped" in repr(result)
        assert result.to_dict()["skipped"]["reward is null"] == 1
    result = drs.evaluate(
        drs.Log(table, actions=["a", "b"]), drs.policies.Uniform(), estimators="ips", on_bad_row="skip"
    )
    assert sum(result.skipped.values()) == 8


def test_bad_contexts_are_skipped_and_counted():
    lists = pa.array([[1.0, 2.0], None, [1.0, np.nan], [3.0, 4.0]], pa.list_(pa.float64(), 2))
    table = pa.table({"x": lists, "action": [0, 0, 0, 1], "reward": [1.0] * 4, "propensity": [0.5] * 4})
    result = drs.evaluate(drs.Log(table, on_bad_row="skip"), drs.policies.Linear(np.eye(2)), estimators="ips")
    assert result.n == 2
    assert result.skipped == {"context is null": 1, "context is not finite": 1}


def test_import_is_lazy():
    code = "import sys, drstream; print([m for m in ('numba', 'pyarrow', 'numpy', 'scipy') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_pandas_result(table):
    frame = drs.evaluate(table, drs.policies.Uniform(), estimators=["ips", "snips"]).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["estimator"]) == ["ips", "snips"]
