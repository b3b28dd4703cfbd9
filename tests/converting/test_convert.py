"""Converted logs hold the same events: same values, same labels, same checks."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.converting import convert as engine
from tests.helpers.crossed import meeting
from tests.helpers.logs import arrays, log_of, world

POLICY = drs.policies.Softmax(world().taste, world().appeal)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "log.parquet"
    world().write(path, 5000, seed=1, row_group_rows=700)
    table = pq.read_table(path)
    table = table.append_column("user", pa.array([f"u{k % 37}" for k in range(5000)]))
    pq.write_table(table.append_column("time", pa.array(np.arange(5000))), path, row_group_size=700)
    return path


def values(source, policy=POLICY, precision=None, **options):
    opened = source if isinstance(source, drs.Log) else drs.Log(source, **options)
    model = drs.models.from_function(lambda X: np.asarray(X, float) @ world().taste.T)
    result = drs.evaluate(
        opened, {"new": policy}, model, precision=precision, interval="normal"
    )  # without buckets of rows
    return np.array([[e["value"], e["stderr"], e["low"]] for e in result.rows()])


def same_bits(one, other):
    np.testing.assert_array_equal(one, other)


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_parquet_with_the_same_row_groups_gives_the_same_bits(log, tmp_path):
    result = drs.convert(log, tmp_path / "out.parquet", row_group_rows=700)
    same_bits(values(tmp_path / "out.parquet"), values(log))
    found = pq.ParquetFile(tmp_path / "out.parquet")
    assert [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)] == [700] * 7 + [100]
    assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(log))
    assert (result.rows, result.row_groups, result.skipped) == (5000, 8, {})
    assert result.path == tmp_path / "out.parquet"
    assert result.bytes == result.path.stat().st_size
    assert str(result).endswith("5,000 rows in 8 row groups, 0.1 MB")


@meeting(
    2, name=["out.parquet", "out.arrow", "out.ipc", "out.feather"], pack=[None, "context"], rows=[1, 64, 999, None]
)
def test_any_file_gives_the_same_values(log, tmp_path, name, pack, rows):
    if rows == 1:
        drs.convert(drs.Log(log).rows_before(50), tmp_path / "first.parquet")
        log = tmp_path / "first.parquet"
    result = drs.convert(log, tmp_path / name, pack=pack, row_group_rows=rows)
    assert result.row_groups == -(-result.rows // (rows or engine.ROW_GROUP_ROWS))
    close(values(tmp_path / name, precision="float64"), values(log, precision="float64"))
    np.testing.assert_allclose(values(tmp_path / name), values(log), rtol=1e-5)  # scores are float32


def test_arrow_files_are_not_compressed_and_hold_batches_of_the_size(log, tmp_path):
    drs.convert(log, tmp_path / "out.arrow", row_group_rows=2000)
    with pa.memory_map(str(tmp_path / "out.arrow")) as mapped:
        before = pa.total_allocated_bytes()
        file = pa.ipc.open_file(mapped)
        assert [file.get_batch(i).num_rows for i in range(file.num_record_batches)] == [2000, 2000, 1000]
        file.get_batch(0)
        assert pa.total_allocated_bytes() - before < 10_000  # nothing was decompressed


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_file_does_not_depend_on_threads(log, tmp_path, threads):
    drs.convert(log, tmp_path / "one.parquet", threads=1, pack="x")
    drs.convert(log, tmp_path / "more.parquet", threads=threads, pack="x")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "more.parquet").read_bytes()


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_codecs(log, tmp_path, codec):
    drs.convert(log, tmp_path / "out.parquet", codec=codec)
    column = pq.ParquetFile(tmp_path / "out.parquet").metadata.row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    close(values(tmp_path / "out.parquet"), values(log))


# Columns


def test_roles_are_always_written_and_others_on_request(log, tmp_path):
    names = ["action", "reward", "propensity", "x0", "x1", "x2"]
    for columns, more in (([], []), (["user"], ["user"]), ("time", ["time"]), (["x1", "user"], ["user"])):
        drs.convert(log, tmp_path / "out.parquet", columns=columns)
        assert pq.read_schema(tmp_path / "out.parquet").names == names + more
    drs.convert(log, tmp_path / "out.parquet", columns=["time"], context=["x2"], propensity=None)
    assert pq.read_schema(tmp_path / "out.parquet").names == ["action", "reward", "x2", "time"]


def test_all_roles_of_a_log_are_kept(log, tmp_path):
    table = pq.read_table(log)
    all_of = np.full((5000, 4), 0.25)
    table = table.append_column("rate", pa.array(np.full(5000, 0.5))).append_column("of_all", pa.array(list(all_of)))
    table = table.set_column(2, "propensity", pa.array(np.full(5000, 0.25)))
    opened = drs.Log(table, reward=["reward", "time"], sample_rate="rate", propensities="of_all")
    drs.convert(opened, tmp_path / "out.arrow", columns=[], pack="context")
    names = pa.ipc.open_file(str(tmp_path / "out.arrow")).schema.names
    assert names == ["action", "reward", "propensity", "time", "rate", "of_all", "context"]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ((pa.float32(), pa.float32()), pa.float32()),
        ((pa.float32(), pa.int16()), pa.float32()),
        ((pa.bool_(), pa.int8()), pa.float32()),
        ((pa.float32(), pa.float64()), pa.float64()),
        ((pa.float32(), pa.int32()), pa.float64()),
        ((pa.int64(), pa.int64()), pa.float64()),
    ],
)
def test_packed_contexts_have_their_common_type(tmp_path, kinds, wanted):
    numbers = [[0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0]]
    table = pa.table({"action": [0, 1] * 3, "reward": [1.0, 0.0] * 3, "propensity": [0.5] * 6})
    for name, values_, kind in zip("gh", numbers, kinds, strict=True):
        table = table.append_column(name, pa.array(values_, pa.int64()).cast(kind))
    drs.convert(table, tmp_path / "out.parquet", context=["h", "g"], pack="x")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["action", "reward", "propensity", "x"]
    assert found.schema.field("x").type.value_type == wanted
    assert found["x"].to_pylist() == [list(pair) for pair in zip(*reversed(numbers), strict=True)]


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int32(), 2)])
def test_lists_are_packed_too(tmp_path, kind):
    table = pa.table({"action": [0, 1], "reward": [1.0, 0.0], "propensity": [0.5] * 2})
    table = table.append_column("features", pa.array([[1, 2], [3, 4]], kind))
    drs.convert(table, tmp_path / "out.arrow", pack="context")
    found = pa.ipc.open_file(str(tmp_path / "out.arrow")).read_all()
    assert found.column_names == ["action", "reward", "propensity", "context"]
    assert pa.types.is_fixed_size_list(found.schema.field("context").type)
    assert found["context"].to_pylist() == [[1, 2], [3, 4]]


def test_a_named_context_column_is_kept_beside_the_packed_one(log, tmp_path):
    drs.convert(log, tmp_path / "out.parquet", columns=["x1"], pack="context")
    assert pq.read_schema(tmp_path / "out.parquet").names == ["action", "reward", "propensity", "x1", "context"]
    assert drs.Log(tmp_path / "out.parquet").roles.context == ("context",)


def test_sparse_contexts(tmp_path):
    X, a, r, p = arrays(world().table(300), 3)
    log = log_of(X, a, r, p, sparse=True)
    drs.convert(log, tmp_path / "out.parquet")
    again = drs.Log(tmp_path / "out.parquet", context=drs.Sparse("at", "value", dim=3))
    same_bits(values_of_uniform(again), values_of_uniform(log))
    with pytest.raises(drs.LogError, match="sparse contexts cannot be packed"):
        drs.convert(log, tmp_path / "no.parquet", pack="x")


def values_of_uniform(log):
    return [e["value"] for e in drs.evaluate(log, drs.policies.Uniform()).rows()]


# Types


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
@pytest.mark.parametrize("ordered", [False, True])
def test_dictionaries_that_differ_between_parts(tmp_path, name, ordered):
    """An Arrow file can add to a dictionary, but not replace it."""
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), ["z", "a"], ordered=ordered),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), ["a", "m", "z"], ordered=ordered),
    ]
    table = pa.table({"action": pa.chunked_array(chunks), "reward": [1.0, 0, 1, 0, 1, 0], "propensity": [0.5] * 6})
    drs.convert(table, tmp_path / name, row_group_rows=2)
    found = drs.Log(tmp_path / name)
    head = found.head(6)
    assert head["action"].cast(pa.string()).to_pylist() == ["z", "a", "a", "a", "m", "z"]
    assert sorted(found.labels) == ["a", "m", "z"]
    assert list(found.labels) == list(drs.Log(table).labels)
    assert head.schema.field("action").type.ordered == ordered
    close(values_of_uniform(found), values_of_uniform(drs.Log(table)))


def test_text_labels_stay_text(log, tmp_path):
    table = pq.read_table(log)
    names = np.array(["ad", "news", "shop", "video"])[table["action"].to_numpy()]
    pq.write_table(table.set_column(0, "action", pa.array(names)), tmp_path / "named.parquet")
    for name in ("out.parquet", "out.arrow"):
        drs.convert(tmp_path / "named.parquet", tmp_path / name)
        assert drs.Log(tmp_path / name).source.schema.field("action").type == pa.string()
        close(values(tmp_path / name), values(log))


def test_metadata_is_kept_unless_it_tells_of_lost_columns(log, tmp_path):
    schema = pq.read_schema(log).with_metadata({"classes": "a,b", "pandas": "{}"})
    pq.write_table(pq.read_table(log).replace_schema_metadata(schema.metadata), tmp_path / "in.parquet")
    drs.convert(tmp_path / "in.parquet", tmp_path / "all.parquet")
    drs.convert(tmp_path / "in.parquet", tmp_path / "some.parquet", columns=[])
    assert pq.read_schema(tmp_path / "all.parquet").metadata == {b"classes": b"a,b", b"pandas": b"{}"}
    assert pq.read_schema(tmp_path / "some.parquet").metadata == {b"classes": b"a,b"}


def test_costs_stay_costs(tmp_path):
    table = pa.table({"action": [0, 1], "cost": [1.0, 3.0], "propensity": [0.5, 0.5]})
    drs.convert(table, tmp_path / "out.parquet")
    assert drs.Log(tmp_path / "out.parquet").roles.negated
    assert values_of_uniform(drs.Log(tmp_path / "out.parquet")) == values_of_uniform(drs.Log(table))


def test_values_that_repeat_get_dictionaries_and_others_do_not(tmp_path):
    drs.convert(drs.synth.World(3, 2, kinds=None).table(70_000), tmp_path / "out.parquet")
    group = pq.ParquetFile(tmp_path / "out.parquet").metadata.row_group(0)
    coded = {group.column(i).path_in_schema for i in range(5) if group.column(i).has_dictionary_page}
    assert coded == {"action", "reward"}


# Rows


def test_filters_splits_and_first_rows(log, tmp_path):
    one = drs.Log(log, filter=pc.field("time") > 99)
    for part in (one, one.split(0.3)[1], one.rows_before(777)):
        drs.convert(part, tmp_path / "out.parquet")
        found = drs.Log(tmp_path / "out.parquet")
        assert found.rows == drs.evaluate(part, drs.policies.Uniform()).n
        close(values(found), values(part))


def bad_table():
    table = world().table(200, seed=3)
    columns = {name: table[name].to_pylist() for name in table.column_names}
    columns["propensity"][3], columns["propensity"][4], columns["propensity"][5] = 0.0, 1.5, None
    columns["propensity"][6], columns["reward"][7], columns["reward"][8] = float("nan"), None, float("inf")
    columns["action"][9], columns["action"][10], columns["x1"][11] = None, 99, float("nan")
    columns["x2"][12] = None
    return pa.table(columns, schema=table.schema)


@pytest.mark.parametrize("pack", [None, "x"])
def test_bad_rows_are_skipped_and_counted_as_in_evaluate(tmp_path, pack):
    log = drs.Log(bad_table(), actions=4)
    result = drs.convert(log, tmp_path / "out.parquet", on_bad_row="skip", pack=pack)
    model = drs.models.from_function(lambda X: np.asarray(X, float) @ world().taste.T)
    ref = drs.evaluate(log, POLICY, model, on_bad_row="skip")
    assert result.skipped == ref.skipped
    assert sum(result.skipped.values()) == 10
    assert result.rows == ref.n == 190
    close(values(tmp_path / "out.parquet"), values(log.with_bad_rows("skip")))


@pytest.mark.parametrize("row", range(3, 13))
def test_each_bad_row_stops_a_conversion_with_the_words_of_evaluate(tmp_path, row):
    log = drs.Log(bad_table().slice(row), actions=4)
    model = drs.models.from_function(lambda X: np.asarray(X, float) @ world().taste.T)
    with pytest.raises(drs.LogError) as wanted:
        drs.evaluate(log, POLICY, model)
    with pytest.raises(drs.LogError) as found:
        drs.convert(log, tmp_path / "out.parquet")
    assert str(found.value) == str(wanted.value)
    assert not list(tmp_path.iterdir())


def test_no_row_is_left(log, tmp_path):
    with pytest.raises(drs.LogError, match="no row of the log is left to write"):
        drs.convert(drs.Log(log, filter=pc.field("time") < 0), tmp_path / "out.parquet")
    assert not list(tmp_path.iterdir())


def test_streams_are_converted_once(tmp_path):
    table = world().table(3000)
    drs.convert(table.to_reader(500), tmp_path / "out.arrow", actions=4)
    close(values(tmp_path / "out.arrow"), values(table))


# Memory and progress


def test_large_row_groups_are_read_in_pieces(tmp_path, monkeypatch):
    """No thread holds more than a few batches, however large a row group is."""
    world().write(tmp_path / "log.parquet", 400_000, row_group_rows=400_000)
    held = []
    table = engine.OutputColumns.table
    monkeypatch.setattr(
        engine.OutputColumns, "table", lambda self, batch: held.append(len(batch)) or table(self, batch)
    )
    drs.convert(tmp_path / "log.parquet", tmp_path / "out.parquet", row_group_rows=1000)
    assert max(held) <= 65_536


def test_default_row_groups_of_wide_logs_are_shorter():
    narrow = pa.schema([(f"x{j}", pa.float32()) for j in range(20)])
    wide = pa.schema([("x", pa.list_(pa.float32(), 1000))])
    assert engine._default_rows(narrow) == engine.ROW_GROUP_ROWS
    assert engine._default_rows(wide) == 1 << 14
    assert engine._default_rows(pa.schema([("x", pa.list_(pa.float64(), 10**6))])) == engine.LEAST_ROWS


def test_progress(log, tmp_path):
    seen = []
    drs.convert(log, tmp_path / "out.parquet", progress=lambda done, rows: seen.append((done, rows)))
    assert seen[-1] == (5000, 5000)
    assert seen == sorted(seen)


def test_an_existing_file_is_replaced_and_a_string_is_a_path(log, tmp_path):
    out = tmp_path / "out.parquet"
    out.write_text("old")
    assert drs.convert(str(log), str(out)).path == Path(out)
    assert drs.Log(out).rows == 5000
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
