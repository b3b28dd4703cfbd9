"""What an audit refuses, and files that are given twice."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.logs import world


@pytest.fixture
def table():
    table = world().table(50, seed=1)
    table = table.append_column("day", pa.array([f"2026-01-{i % 28 + 1:02}" for i in range(50)]))
    table = table.append_column("shown_at", pa.array(np.arange(50)).cast(pa.timestamp("s")))
    return table.append_column("tags", pa.array([[1]] * 50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "shown"}, "the log has no column 'shown' for the time: did you mean 'shown_at'?"),
        ({"event_id": "idd"}, "the log has no column 'idd' for the event_id: "),
        (
            {"time": "day"},
            "time='day': the column has type string, but a time is a timestamp, a date, an integer or a float; "
            "columns that do: 'shown_at'",
        ),
        ({"time": "tags"}, "time='tags': the column has type list"),
        ({"event_id": "tags"}, "event_id column 'tags' has type list<item: int64>: it must hold one value a row"),
        ({"threads": 0}, "threads"),
        ({"executor": 3}, "executor=3: it must be a concurrent.futures.Executor"),
    ],
)
def test_bad_parameters(table, options, message):
    with pytest.raises(drs.DrstreamError) as error:
        drs.Log(table).audit(**options)
    assert message in str(error.value)


def test_a_time_that_is_none_names_columns_that_could_be(table):
    table = table.drop_columns(["shown_at"])
    with pytest.raises(drs.LogError, match="columns that do: 'action', 'reward', 'propensity', 'x0'"):
        drs.Log(table).audit(time="day")
    text = pa.table({name: ["0"] for name in ("when",)} | {"action": ["a"], "reward": [True], "propensity": [True]})
    with pytest.raises(drs.LogError, match="no column of the log does"):
        drs.Log(text).audit(time="when")


def test_an_empty_log(table):
    with pytest.raises(drs.LogError, match="the log is empty"):
        drs.Log(table.slice(0, 0), actions=4).audit()


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").mkdir()
    for i in range(3):
        pq.write_table(table, tmp_path / "clicks" / f"part-{i}.parquet")
    return tmp_path


def twice(source, message):
    with pytest.raises(drs.LogError) as error:
        drs.Log(source)
    assert message in str(error.value)
    assert "its events would count twice. Give it once" in str(error.value)


def test_the_same_file_twice(folder):
    part = os.path.join("clicks", "part-1.parquet")
    real = repr(os.path.realpath(part))
    twice([part, part], f"the file {real} is given twice: ")
    twice(["clicks/*.parquet", "clicks/part-1*"], f"the file {real} is given twice: ")
    twice(["clicks", part], f"the file {real} is given twice: ")
    whole = str(folder / part)
    twice([part, whole], f"the file {real} is given twice, as {part!r} and as {whole!r}: ")
    twice([part, "./clicks/../clicks/part-1.parquet"], f"the file {real} is given twice, as {part!r} and as './clicks/")
    assert drs.Log(["clicks/part-0.parquet", "clicks/part-1.parquet"]).rows == 100


def test_the_same_file_twice_through_a_link(folder):
    os.symlink("part-2.parquet", folder / "clicks" / "latest.parquet")
    assert drs.Log("clicks").rows == 150  # in a folder, a link beside its file counts once
    os.symlink("clicks", folder / "other")
    twice(
        ["clicks/part-0.parquet", "other/part-0.parquet"], "is given twice, as 'clicks/part-0.parquet' and as 'other/"
    )
    assert drs.Log("clicks/latest.parquet").rows == 50


def test_the_same_file_twice_in_a_dataset_or_as_arrow(folder, table):
    twice(ds.dataset(["clicks/part-0.parquet", "clicks/part-0.parquet"]), "is given twice")
    with pa.OSFile("log.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    twice(["log.arrow", "log.arrow"], "is given twice")


def test_a_down_sampled_log_is_refused():
    table = world().table(50).append_column("rate", pa.array(np.full(50, 0.5)))
    with pytest.raises(drs.LogError, match="an audit needs every event, and this log is down-sampled"):
        drs.Log(table, sample_rate="rate").audit()
