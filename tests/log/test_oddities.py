"""Logs of odd types, names and layouts: what is easily overlooked."""

import bz2
import gzip

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import drstream as drs


def tiny(**changes):
    roles = {"action": ["a", "b", "a", "b"], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4}
    return pa.table({**roles, "x0": [1.0, 2, 3, 4], **changes})


def uniform(source, **options):
    return drs.evaluate(drs.Log(source, **options), drs.policies.Uniform(), estimators="ips")


def test_text_partitions_and_text_filters(tmp_path):
    table = tiny(country=["us", "de", "us", "de"], x1=["one", "two", "one", "three"])
    for column in ("country", "action"):
        folder = tmp_path / column
        parts = ds.partitioning(pa.schema([(column, pa.string())]), flavor="hive")
        ds.write_dataset(table, folder, format="parquet", partitioning=parts)
        assert drs.Log(folder).labels == ["a", "b"]
        assert uniform(folder).n == 4
        assert uniform(folder, filter=pc.field("country") == "us").n == 2
    pq.write_table(table, tmp_path / "log.parquet")
    assert uniform(tmp_path / "log.parquet", filter=pc.starts_with(pc.field("x1"), "t")).n == 2
    assert uniform(tmp_path / "log.parquet", filter=pc.field("action") == "a").n == 2


def test_row_groups_of_a_dataset_of_some_of_them(tmp_path):
    pq.write_table(tiny(), tmp_path / "log.parquet", row_group_size=1)
    whole = ds.dataset(tmp_path / "log.parquet")
    some = [next(iter(whole.get_fragments())).subset(row_group_ids=[2, 3])]
    part = ds.FileSystemDataset(some, whole.schema, whole.format, whole.filesystem)
    assert drs.Log(part).head()["x0"].to_pylist() == [3.0, 4.0]


def test_dataset_whose_schema_is_wider_than_its_files(tmp_path):
    pq.write_table(tiny(reward=[1, 0, 1, 0]), tmp_path / "a.parquet")
    pq.write_table(tiny(), tmp_path / "b.parquet")
    assert uniform(ds.dataset(tmp_path, schema=tiny().schema)).n == 8


def test_folders_of_files_of_all_names(tmp_path):
    (tmp_path / "spark.parquet").mkdir()
    pq.write_table(tiny(), tmp_path / "spark.parquet" / "part-0")
    pq.write_table(tiny(), tmp_path / "b.PQ")
    assert uniform(tmp_path).n == 8
    assert uniform(f"{tmp_path}/*").n == 8
    with pa.OSFile(str(tmp_path / "c.arrow"), "wb") as sink, pa.ipc.new_file(sink, tiny().schema) as writer:
        writer.write_table(tiny())
    with pytest.raises(drs.LogError, match=r"holds Parquet and Arrow files, e.g. .*c.arrow"):
        drs.Log(tmp_path)


def test_filters_by_position_are_refused():
    with pytest.raises(drs.LogError, match="name its columns"):
        drs.Log(tiny(), filter=pc.field(3) > 2)
    with pytest.raises(drs.LogError, match=r"pass text.*or a pyarrow expression"):
        drs.Log(tiny(), filter=[("x0", ">", 2)])


def test_polars_text_can_be_split_filtered_and_skipped():
    frame = pl.from_arrow(tiny(country=["us", "de", "us", "de"], reward=[1.0, None, 1.0, 0.0]))
    log = drs.Log(frame, on_bad_row="skip", filter=pc.field("country") != "xx")
    whole = drs.evaluate(log.split(1.0)[0], drs.policies.Constant("a"), estimators="ips")
    assert (whole.n, whole.skipped) == (3, {"reward is null": 1})


def test_duckdb_connection_stays_free():
    connection = duckdb.connect()
    events = tiny()
    relation = connection.from_arrow(events)
    log = drs.Log(relation)
    assert connection.sql("select 1").fetchall() == [(1,)]
    assert drs.evaluate(log, drs.policies.Uniform(), estimators="ips").n == 4
    assert drs.evaluate(log, drs.policies.Uniform(), estimators="ips").n == 4


def test_reader_too_large_cannot_be_read_from_its_middle(monkeypatch):
    monkeypatch.setattr("drstream.sources.memory.HOLD_BYTES", 10)
    log = drs.Log(tiny().to_reader(max_chunksize=1))
    for message in ("actions=", "read only once"):
        with pytest.raises(drs.LogError, match=message):
            drs.evaluate(log, drs.policies.Uniform())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reward": [True, None, False, True]}, "reward is null"),
        ({"propensity": pa.array([0.5, 0.5, None, 0.5]).cast(pa.decimal128(3, 2))}, "propensity is null"),
        ({"x": [[1.0, 2.0], [1.0], [3.0, 4.0], [5.0, 6.0]]}, "context has another length"),
        ({"x": [[1.0, 2.0], [1.0, None], [3.0, 4.0], [5.0, 6.0]]}, "context holds a null"),
        ({"action": pa.DictionaryArray.from_arrays([0, 1, 2, 0], ["a", "b", None])}, "action is null"),
    ],
)
def test_skipping_works_for_every_type(change, reason):
    policy = drs.policies.Linear(np.zeros((2, 2))) if "x" in change else drs.policies.Uniform()
    log = drs.Log(tiny(**change), context="x" if "x" in change else "x0", on_bad_row="skip")
    result = drs.evaluate(log, policy, estimators="ips")
    assert result.n == 3
    assert result.skipped == {reason: 1}


def test_labels_of_skipped_rows_do_not_count():
    table = tiny(action=["a", "zzz", "b", "b"], propensity=[0.5, 0.0, 0.5, 0.5])
    assert drs.Log(table, on_bad_row="skip").labels == ["a", "b"]
    log = drs.Log(table)
    assert log.labels == ["a", "b", "zzz"]
    assert drs.evaluate(log, drs.policies.Uniform(), on_bad_row="skip").labels == ["a", "b"]
    numbers = tiny(action=[0, -1, 1, 1])
    assert uniform(numbers, on_bad_row="skip").skipped == {"action is not among the labels": 1}


def test_labels_do_not_depend_on_the_encoding():
    frame = tiny().to_pandas().astype({"action": "category"})
    assert drs.Log(frame[frame.action == "a"]).labels == ["a"]
    small = tiny(action=pa.array([0, 1, 1, 0], pa.int8()))
    assert drs.Log(small, actions=[0, 1, 200]).labels == [0, 1, 200]
    assert uniform(small, actions=[0, 1, 200]).n == 4
    assert uniform(tiny(action=["1", "2", "1", "2"]), actions=[1, 2]).n == 4
    for actions, message in (("ab", "pass a list"), (3, "the actions are text")):
        with pytest.raises(drs.LogError, match=message):
            drs.Log(tiny(), actions=actions)
    with pytest.raises(drs.LogError, match="holds 'a', but the action column holds int64"):
        drs.Log(tiny(action=[0, 1, 0, 1]), actions=["a", "b"])


def test_roles_cannot_be_contexts():
    with pytest.raises(drs.LogError, match="column 'reward' is the reward: it cannot be part of the context"):
        drs.Log(tiny(), context=["x0", "reward"])


# Text where Parquet is expected


@pytest.mark.parametrize(
    "name", ["log.csv", "log.CSV", "log.tsv", "log.csv.gz", "log.json", "log.jsonl.bz2", "wide.csv"]
)
def test_text_is_to_be_converted(tmp_path, name):
    """Also if it is compressed, or of two bytes a character."""
    text = "action,reward,propensity\n0,1,0.5\n"
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(name.rpartition(".")[2], bytes)
    (tmp_path / name).write_bytes(pack(text.encode("utf-16" if name == "wide.csv" else "utf-8")))
    stem = name.partition(".")[0]
    advice = rf"it holds text.*drstream convert \S*{name} {stem}\.parquet"
    with pytest.raises(drs.LogError, match=advice):
        drs.Log(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=rf"no Parquet or Arrow file.*drstream convert \S*{name}"):
        drs.Log(tmp_path)


def test_an_empty_file_and_one_that_is_cut(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"")
    (tmp_path / "log.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(drs.LogError, match=r"log.csv as Parquet: it is empty"):
        drs.Log(tmp_path / "log.csv")
    with pytest.raises(drs.LogError, match="Is it complete"):
        drs.Log(tmp_path / "log.parquet")
    pq.write_table(pa.table({"action": [0], "reward": [1.0], "propensity": [1.0]}), tmp_path / "misnamed.csv")
    assert drs.Log(tmp_path / "misnamed.csv").rows == 1
