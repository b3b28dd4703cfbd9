"""A split or filtered log leaves as batches, a table or a frame; and `rows` counts the rows of a log itself."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.log.rows import split_seed
from tests.helpers.cut import cut_log

N = 3_000


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "action": pa.array(np.array(["a", "b", "c"])[rng.integers(0, 3, N)]),
            "reward": rng.random(N),
            "propensity": np.full(N, 0.5),
            "x0": rng.random(N).astype(np.float32),
            "user": rng.integers(0, 50, N),
            "note": pa.array(["n"] * N).dictionary_encode(),
            "more": pa.array([[1, 2]] * N),
        },
        metadata={"about": "a log"},
    )


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(table, path, row_group_size=700)
    return path


def halves(rows=N, seed=0):
    u = drs.uniforms(split_seed(seed, 0), 0, rows)
    return u < 0.5


def test_a_split_leaves_as_it_is(table, path):
    first = halves()
    for source in (table, path, table.to_reader()):
        log = drs.Log(source, actions=["a", "b", "c"])
        train, test = log.split(0.5)
        found = train.to_arrow()
        assert found.equals(table.filter(pa.array(first)))
        assert found.schema.equals(table.schema)
        assert found.schema.metadata == table.schema.metadata
        if not isinstance(source, pa.RecordBatchReader):
            assert test.to_arrow(["x0", "action"]).equals(table.filter(pa.array(~first)).select(["x0", "action"]))


@pytest.mark.parametrize("batch_size", [None, 13])
def test_batches_stream(path, table, batch_size):
    log = cut_log(path, batch_size=batch_size, filter="user < 10")
    batches = log.batches()
    first = next(batches)
    assert first.num_rows < N
    assert pa.Table.from_batches([first, *batches]).equals(table.filter(pc.less(table["user"], 10)))
    assert log.batches("x0").__next__().schema.names == ["x0"]


def test_frames(table):
    test = drs.Log(table).split(0.5)[1]
    wanted = table.filter(pa.array(~halves()))
    assert test.to_pandas(["x0", "user"]).equals(wanted.select(["x0", "user"]).to_pandas())
    assert test.to_polars(["x0", "action"])["action"].to_list() == wanted["action"].to_pylist()
    assert test.to_polars().columns == table.column_names


def test_models_are_trained_on_what_left_the_log(table):
    from sklearn.linear_model import LinearRegression

    train, test = drs.Log(table).split(0.5)
    frame = train.to_pandas(["x0", "reward"])
    model = LinearRegression().fit(frame[["x0"]].to_numpy(), frame["reward"])
    result = drs.evaluate(
        test,
        drs.policies.Uniform(),
        lambda_=None,
        model=drs.models.from_function(lambda X: np.repeat(model.predict(X)[:, None], 3, axis=1)),
    )
    assert result.n == test.rows == test.to_arrow().num_rows


def test_bad_rows_obey(table):
    broken = table.slice(0, 6).set_column(1, "reward", pa.array([1.0, None, 0.5, float("nan"), 0.0, 1.0]))
    with pytest.raises(drs.LogError, match="reward is null at row 1"):
        drs.Log(broken).to_arrow(["x0"])
    with pytest.raises(drs.LogError, match="reward is null at row 1"):
        list(drs.Log(broken).batches())
    log = drs.Log(broken, on_bad_row="skip")
    found = log.to_arrow()
    assert found.num_rows == 4
    assert found.schema.metadata[b"drstream"] == b'{"skipped": {"reward is null": 1, "reward is not finite": 1}}'
    assert log.to_pandas().attrs == {"skipped": {"reward is null": 1, "reward is not finite": 1}}
    assert log.rows == 6


def test_an_empty_export(table):
    nothing = drs.Log(table, filter="user > 100").to_arrow(["x0", "more"])
    assert (nothing.num_rows, nothing.schema.names) == (0, ["x0", "more"])


def test_wrong_columns(table):
    with pytest.raises(drs.LogError, match=r"columns= names 'usr', which is not a column.*did you mean 'user'"):
        drs.Log(table).to_arrow(["usr"])
    with pytest.raises(drs.LogError, match="columns= names 'usr'"):
        drs.Log(table).batches(["usr"])


def test_frames_need_their_library(table, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(drs.LogError, match=r"to_polars\(\) needs polars: pip install polars"):
        drs.Log(table).to_polars()


def test_rows_of_splits_filters_and_streams(table, path):
    user = table["user"].to_numpy()
    for source in (table, path):
        log = drs.Log(source)
        assert log.rows == log.source_rows == N
        train, test = log.split(0.5)
        assert (train.rows, test.rows) == (halves().sum(), N - halves().sum())
        assert train.source_rows == N
        again, _ = train.split(0.5)
        u = drs.uniforms(split_seed(0, 1), 0, N)
        assert again.rows == (halves() & (u < 0.5)).sum()
        by_user, rest = log.split(0.3, cluster="user")
        assert by_user.rows + rest.rows == N
        assert by_user.rows == by_user.to_arrow().num_rows
        some = drs.Log(source, filter=pc.field("user") < 7)
        assert some.rows == (user < 7).sum()
        assert some.split(0.5)[0].rows == (halves() & (user < 7)).sum()
        assert log.rows_before(1_000).rows == 1_000
        assert train.rows_before(1_000).rows == halves()[:1_000].sum()
        assert drs.Log(source, filter=pc.scalar(True)).rows == N
        assert f"{halves().sum():,} of {N:,} rows" in repr(train)
    stream = drs.Log(table.to_reader(), actions=["a", "b", "c"])
    assert stream.split(0.5)[0].rows is None
    assert "rows not known before reading" in repr(stream)


def test_rows_without_a_filter_need_no_reading(path, monkeypatch):
    from drstream.sources.parquet import RowGroup

    train = drs.Log(path).split(0.5)[0]
    monkeypatch.setattr(RowGroup, "batches", None)
    assert train.rows == halves().sum()
