"""Which rows are meant: splits and folds by cluster."""

import datetime
import decimal
import uuid
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.log.rows import FOLD_SEED, Folds, keys_of, split_seed
from tests.helpers import reference
from tests.helpers.cut import cut_log
from tests.helpers.logs import clustered

ROWS, USERS = 400, 60


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode() if isinstance(text, str) else text:
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return h


def key(value):
    return value % 2**64 if isinstance(value, int) else fnv(value)


@pytest.fixture(scope="module")
def users():
    return np.random.default_rng(0).integers(0, USERS, ROWS)


def rows_of(log, skipped=None, **needs):
    """The numbers of the rows that a pass over the log sees."""
    reader = log.reader(**needs)
    skipped = Counter() if skipped is None else skipped
    batches = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, skipped)]
    return [int(row) for batch in batches for row in batch.rows]


START = datetime.datetime(2024, 2, 28, 22)
DAY = datetime.timedelta(days=1)
COLUMNS = {
    "int64": lambda u: pa.array(u),
    "negative": lambda u: pa.array(-u),
    "int8": lambda u: pa.array(u, pa.int8()),
    "uint64": lambda u: pa.array(2**64 - 1 - u.astype(np.uint64)),
    "string": lambda u: pa.array([f"user {k}" for k in u]),
    "one empty": lambda u: pa.array(["é" * k for k in u.tolist()]),
    "large string": lambda u: pa.array([f"user {k}" for k in u], pa.large_string()),
    "dictionary": lambda u: pa.array([f"user {k}" for k in u]).dictionary_encode(),
    "dictionary of integers": lambda u: pa.array(u).dictionary_encode(),
    "decimal": lambda u: pa.array([decimal.Decimal(k) / 4 for k in u.tolist()]),
    "date": lambda u: pa.array([(START + k * DAY).date() for k in u.tolist()]),
    "timestamp": lambda u: pa.array([START + k * DAY / 7 for k in u.tolist()]),
    "timestamp of a zone": lambda u: pa.array([START + k * DAY for k in u.tolist()], pa.timestamp("us", "UTC")),
    "binary": lambda u: pa.array([bytes([255, k]) for k in u.tolist()]),
    "fixed binary": lambda u: pa.array([bytes([255, k, 0]) for k in u.tolist()], pa.binary(3)),
    "UUID": lambda u: pa.array([uuid.UUID(int=2**127 + k).bytes for k in u.tolist()], pa.uuid()),
}


# splits by cluster


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_cluster_is_on_one_side_however_it_is_stored(kind, users, tmp_path):
    whole = clustered(COLUMNS[kind](users))
    left, right = (rows_of(side) for side in drs.Log(whole).split(0.4, seed=3, cluster="user"))
    assert sorted(left + right) == list(range(ROWS))
    assert left == sorted(left)
    assert not set(users[left]) & set(users[right])
    assert 6 < len(set(users[left])) < 42  # of 60: 4.5 standard deviations about 24
    pq.write_table(whole, tmp_path / "log.parquet", row_group_size=70)
    chunks = pa.concat_tables(whole.slice(i, 13) for i in range(0, ROWS, 13))
    for source in (chunks, tmp_path / "log.parquet", whole.to_reader(max_chunksize=17)):
        for size in (1, 7, 1000):
            if not isinstance(source, pa.RecordBatchReader) or size == 7:
                log = cut_log(source, batch_size=size)
                assert rows_of(log.split(0.4, seed=3, cluster="user")[0]) == left
    assert rows_of(drs.Log(whole).split(0.4, seed=4, cluster="user")[0]) != left


@pytest.mark.parametrize(
    "kind", ["int64", "negative", "int8", "uint64", "string", "one empty", "binary", "fixed binary"]
)
def test_splits_are_those_of_the_naive_hash(kind, users):
    column = COLUMNS[kind](users)
    left = rows_of(drs.Log(clustered(column)).split(0.4, seed=3, cluster="user")[0])
    seed = split_seed(3, 0)
    assert left == [k for k, v in enumerate(column.to_pylist()) if reference.uniform(seed, key(v)) < 0.4]


def test_text_is_the_same_in_every_encoding(users, tmp_path):
    plain = COLUMNS["string"](users)
    wanted = rows_of(drs.Log(clustered(plain)).split(0.5, cluster="user")[0])
    unused = pa.DictionaryArray.from_arrays(pa.array(users, pa.uint8()), pa.array([f"user {k}" for k in range(200)]))
    views = pa.DictionaryArray.from_arrays(pa.array(users), unused.dictionary.cast(pa.string_view()))
    for column in (plain.cast(pa.large_string()), plain.cast(pa.string_view()), plain.cast(pa.binary()), unused, views):
        assert rows_of(drs.Log(clustered(column)).split(0.5, cluster="user")[0]) == wanted
    for frame in (pl.from_arrow(clustered(plain)), clustered(plain).to_pandas()):
        assert rows_of(drs.Log(frame).split(0.5, cluster="user")[0]) == wanted
    frame = pl.from_arrow(clustered(plain)).with_columns(pl.col("user").cast(pl.Categorical))
    assert rows_of(drs.Log(frame).split(0.5, cluster="user")[0]) == wanted
    frame = clustered(plain).to_pandas().astype({"user": "category"})
    assert rows_of(drs.Log(frame).split(0.5, cluster="user")[0]) == wanted
    action = clustered(plain).drop_columns(["action"])  # text actions of Parquet files come as dictionaries
    pq.write_table(action, tmp_path / "log.parquet", row_group_size=50)
    log = drs.Log(tmp_path / "log.parquet", action="user")
    assert rows_of(log.split(0.5, cluster="user")[0], action=True) == wanted


def test_integers_are_the_same_in_every_width(users):
    wanted = rows_of(drs.Log(clustered(pa.array(users))).split(0.5, cluster="user")[0])
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int32(), pa.uint64()):
        assert rows_of(drs.Log(clustered(pa.array(users, kind))).split(0.5, cluster="user")[0]) == wanted


def test_partitions_as_clusters(users, tmp_path):
    whole = clustered(pa.array(users % 20)).append_column("row", pa.array(np.arange(ROWS)))
    parts = ds.partitioning(pa.schema([("user", pa.int64())]), flavor="hive")
    ds.write_dataset(whole, tmp_path, format="parquet", partitioning=parts)
    wanted = drs.Log(whole).split(0.5, cluster="user")[0].head(ROWS)["row"].to_pylist()
    got = drs.Log(tmp_path).split(0.5, cluster="user")[0].head(ROWS)["row"].to_pylist()
    assert sorted(got) == wanted


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16(), pa.dictionary(pa.int32(), pa.float64())])
def test_numbers_with_fractions_are_no_clusters(kind):
    """Of a CSV file, or a data frame with nulls, they may be rounded ids."""
    column = pa.array([1.0, 2.0] * 5).cast(kind) if pa.types.is_floating(kind) else pa.array([1.0]).dictionary_encode()
    with pytest.raises(drs.LogError, match=r"cluster column 'user' has type .*: it rounds whole numbers"):
        drs.Log(clustered(column)).split(0.5, cluster="user")


def test_shares_are_about_right():
    count = 5_000
    for column in (
        pa.array(np.arange(count)),
        pa.array([f"{k:04d}" for k in range(count)]),
    ):
        for fraction in (0.1, 0.5):
            for seed in (0, 1):
                left = rows_of(drs.Log(clustered(column)).split(fraction, seed=seed, cluster="user")[0])
                assert abs(len(left) / count - fraction) < 4.5 * np.sqrt(fraction * (1 - fraction) / count)
    assert rows_of(drs.Log(clustered(column)).split(0, cluster="user")[0]) == []
    assert rows_of(drs.Log(clustered(column)).split(1, cluster="user")[0]) == list(range(count))


def test_split_of_a_split(users):
    log = drs.Log(clustered(pa.array(users)))
    half = log.split(0.5, cluster="user")[0]
    quarters = [rows_of(side) for side in half.split(0.5, cluster="user")]
    assert sorted(quarters[0] + quarters[1]) == rows_of(half)
    assert not set(users[quarters[0]]) & set(users[quarters[1]])
    assert all(quarters)
    by_row = [rows_of(side) for side in half.split(0.5)]
    assert sorted(by_row[0] + by_row[1]) == rows_of(half)
    assert set(users[by_row[0]]) & set(users[by_row[1]])
    nothing = log.split(0)[0].split(0.5, cluster="user")[0]
    assert rows_of(nothing) == []


@pytest.mark.parametrize("kind", ["int64", "string", "dictionary", "UUID", "fixed binary"])
def test_split_after_nothing_is_left_of_a_batch(kind, users):
    log = cut_log(clustered(COLUMNS[kind](users)), batch_size=1).split(0.5)[0]
    sides = [rows_of(side) for side in log.split(0.5, cluster="user")]
    assert sorted(sides[0] + sides[1]) == rows_of(log)


def test_with_a_filter_and_bad_rows(users, tmp_path):
    rewards = [None if k % 10 == 3 else k / ROWS for k in range(ROWS)]
    whole = clustered(pa.array(users)).set_column(1, "reward", pa.array(rewards))
    pq.write_table(whole, tmp_path / "log.parquet", row_group_size=70)
    left = set(rows_of(drs.Log(clustered(pa.array(users))).split(0.5, cluster="user")[0]))
    for source in (whole, tmp_path / "log.parquet"):
        log = cut_log(source, filter=pc.field("x0") >= 100, on_bad_row="skip", batch_size=30)
        skipped = Counter()
        sides = [rows_of(side, skipped) for side in log.split(0.5, cluster="user")]
        good = [k for k in range(100, ROWS) if rewards[k] is not None]
        assert sides == [[k for k in good if (k in left) is first] for first in (True, False)]
        assert skipped == {"reward is null": 30}


# clusters that are null


@pytest.mark.parametrize("kind", COLUMNS)
def test_null_clusters(kind, users, tmp_path):
    """The other rows stay where they are without nulls, whichever batch the nulls are in."""
    gone = [5, 17, 222]
    whole = clustered(COLUMNS[kind](users))
    wanted = [[k for k in rows_of(side) if k not in gone] for side in drs.Log(whole).split(0.5, cluster="user")]
    mask = np.isin(np.arange(ROWS), gone)
    column = whole["user"].combine_chunks()
    gaps = clustered(column.take(pa.array(np.arange(ROWS), mask=mask)) if kind != "UUID" else null_uuids(column, gone))
    pq.write_table(gaps, tmp_path / "log.parquet", row_group_size=100)
    for source, size in ((gaps, 1), (gaps, 1000), (tmp_path / "log.parquet", 50)):
        log = cut_log(source, on_bad_row="skip", batch_size=size)
        skipped = Counter()
        assert [rows_of(side, skipped) for side in log.split(0.5, cluster="user")] == wanted
        assert skipped == {"cluster is null": 3}  # each on one of the sides
        for side in cut_log(source, batch_size=size).split(0.5, cluster="user"):
            with pytest.raises(drs.LogError, match=r"cluster is null at row 5\b.*, column 'user'.*on_bad_row="):
                rows_of(side)
    assert rows_of(drs.Log(gaps)) == list(range(ROWS))  # the column is not read


def null_uuids(column, gone):
    stored = [None if k in gone else v for k, v in enumerate(column.storage.to_pylist())]
    return pa.array(stored, pa.binary(16)).cast(pa.uuid())


def test_null_in_a_dictionary():
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0]), pa.array(["a", None, "b"]))
    plain = pa.array(["a", None, "b", None, "a"])
    for seed in range(5):
        results = []
        for column in (names, plain):
            log = drs.Log(clustered(column), on_bad_row="skip")
            counts = [Counter(), Counter()]
            sides = log.split(0.5, seed=seed, cluster="user")
            results.append([rows_of(side, count) for side, count in zip(sides, counts, strict=True)] + counts)
        assert results[0] == results[1]
        assert sorted(results[0][0] + results[0][1]) == [0, 2, 4]
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    skipped = Counter()
    for side in drs.Log(clustered(empty), on_bad_row="skip").split(0.5, cluster="user"):
        assert rows_of(side, skipped) == []
    assert skipped == {"cluster is null": 2}
    with pytest.raises(drs.LogError, match=r"cluster is null at row 1\b"):
        rows_of(drs.Log(clustered(names)).split(0.5, cluster="user")[0])


def test_the_place_of_a_null_cluster(tmp_path):
    pq.write_table(clustered(pa.array([1, 2, 3, 4, None, 6])), tmp_path / "log.parquet", row_group_size=3)
    side = drs.Log(tmp_path / "log.parquet", filter=pc.field("x0") > 0).split(0.5, cluster="user")[1]
    with pytest.raises(drs.LogError, match=r"null at row 4 \(row 1 of row group 1 of .*log.parquet\), column 'user'"):
        rows_of(side)


# what is refused, and what is read


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2]]), r"cluster column 'user' has type list<.*one value a row, e.g. a user's id"),
        (pa.array([{"a": 1}] * 2), r"cluster column 'user' has type struct<.*one value a row"),
        (pa.array([[(1, 2)]] * 2, pa.map_(pa.int8(), pa.int8())), r"'user' has type map<.*one value a row"),
        (pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()), r"'user' has type month_.*cast it to integers"),
    ],
)
def test_columns_that_cannot_be_clusters(column, message):
    log = drs.Log(clustered(column))
    with pytest.raises(drs.LogError, match=message):
        log.split(0.5, cluster="user")
    with pytest.raises(drs.LogError, match=message):
        log.folds(2, cluster="user")


def test_missing_cluster_column():
    log = drs.Log(clustered(pa.array([1, 2])))
    with pytest.raises(drs.LogError, match=r"no column 'usr' for the cluster: did you mean 'user'\?"):
        log.split(0.5, cluster="usr")
    with pytest.raises(drs.LogError, match=r"no column 7 for the cluster: there are: action, "):
        log.folds(2, cluster=7)


def test_the_column_is_read_only_when_needed(users):
    log = drs.Log(clustered(pa.array(users)))
    assert "user" not in log.reader(context=True, action=True).columns
    assert "user" not in log.split(0.5)[0].reader().columns
    assert log.split(0.5, cluster="user")[0].reader().columns.count("user") == 1
    assert log.reader(folds=log.folds(3, cluster="user")).columns.count("user") == 1
    both = log.split(0.5, cluster="user")[0].split(0.5, cluster="action")[0]
    assert set(both.reader(columns=["user"]).columns) == {"reward", "propensity", "user", "action"}
    batch = next(
        drs.Log(clustered(pa.array(users)))
        .split(0.5, cluster="user")[0]
        .reader()
        .batches(next(log.parts(["reward", "propensity", "user"])), Counter())
    )
    assert batch.columns.num_columns == 0


def test_repr(users):
    left, right = drs.Log(clustered(pa.array(users))).split(0.25, cluster="user")
    assert "split       values of user with a random number in [0, 0.25)" in repr(left)
    assert "split       values of user with a random number in [0.25, 1)" in repr(right)
    assert "rows with a random number in no interval" in repr(drs.Log(clustered(pa.array(users))).split(0)[0])


def test_evaluation_of_sides_adds_up(users):
    log = drs.Log(clustered(COLUMNS["string"](users)))
    policy = drs.policies.Linear([[1.0], [-1.0]], [-200.0, 0.0])
    whole = drs.evaluate(log, policy, estimators="ips")["ips"]
    sides = [drs.evaluate(s, policy, estimators="ips")["ips"] for s in log.split(0.3, cluster="user")]
    assert sum(side.n for side in sides) == whole.n
    assert sum(side.n * side.value for side in sides) == pytest.approx(whole.n * whole.value)


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_keys_of_sliced_text(texts, start, length):
    column = pa.array(texts, pa.string())
    wanted = [0 if v is None else fnv(v) for v in texts[start : start + length]]
    for form in (column, column.cast(pa.large_string()), column.cast(pa.large_binary()), column.dictionary_encode()):
        assert keys_of(form.slice(min(start, len(texts)), length)).tolist() == wanted


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=12), st.integers(0, 12))
def test_keys_of_sliced_integers(numbers, start):
    column = pa.array(numbers, pa.int64())
    wanted = [(v or 0) % 2**64 for v in numbers[start:]]
    for form in (column, column.dictionary_encode()):
        keys = keys_of(form.slice(min(start, len(numbers))))
        assert keys.dtype == np.uint64
        assert keys.tolist() == wanted


# folds


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_folds_are_parts_of_the_log(cluster, count, users, tmp_path):
    whole = clustered(COLUMNS["string"](users))
    pq.write_table(whole, tmp_path / "log.parquet", row_group_size=70)
    log = drs.Log(whole)
    folds = log.folds(count, seed=5, cluster=cluster)
    found = np.full(ROWS, -1)
    reader = log.reader(folds=folds)
    for part in log.parts(reader.columns):
        for batch in reader.batches(part, Counter()):
            for block in batch.blocks(37):
                assert len(block.fold) == len(block)
                found[block.numbers] = block.fold
    seed = (5 + FOLD_SEED) % 2**64
    keys = range(ROWS) if cluster is None else [fnv(f"user {u}") for u in users]
    assert found.tolist() == [int(reference.uniform(seed, k) * count) for k in keys]
    assert set(found) == set(range(count))
    for fold in range(count):
        others = np.flatnonzero(found != fold).tolist()
        for source in (whole, tmp_path / "log.parquet"):
            assert rows_of(cut_log(source, batch_size=30).part_of(folds.all_but(fold))) == others
        assert rows_of(log.part_of(folds.all_but(fold).complement)) == np.flatnonzero(found == fold).tolist()
        assert folds.all_but(fold).excludes(folds.all_but(fold).complement)
    assert not folds.all_but(0).excludes(folds.all_but(1)) or count == 2


def test_folds_do_not_follow_splits_of_the_same_seed():
    count = 4_000
    log = drs.Log(clustered(pa.array(np.arange(count))))
    keys = np.arange(count, dtype=np.uint64)
    for seed in (0, 9):
        folds = Folds(4, seed).of(keys)
        for fraction in (0.25, 0.5):
            left = rows_of(log.split(fraction, seed=seed)[0])
            shares = np.bincount(folds[left], minlength=4) / len(left)
            assert (np.abs(shares - 0.25) < 4.5 * np.sqrt(0.1875 / len(left))).all()
        assert (np.bincount(folds) > 850).all()


def test_folds_of_a_side_with_bad_rows_and_a_filter(users):
    rewards = [None if k % 10 == 3 else k / ROWS for k in range(ROWS)]
    whole = clustered(pa.array(users)).set_column(1, "reward", pa.array(rewards))
    log = cut_log(whole, filter=pc.field("x0") >= 100, on_bad_row="skip", batch_size=30).split(0.5, cluster="user")[0]
    folds = log.folds(3, cluster="user")
    reader = log.reader(folds=folds)
    seen = {}
    for part in log.parts(reader.columns):
        for batch in reader.batches(part, Counter()):
            seen |= dict(zip(map(int, batch.rows), batch.fold.tolist(), strict=True))
    assert list(seen) == rows_of(log)
    assert list(seen.values()) == [int(reference.uniform(FOLD_SEED, int(users[k])) * 3) for k in seen]
    assert {seen[k] for k in rows_of(log.part_of(folds.all_but(1)))} == {0, 2}


def test_null_clusters_of_folds():
    gaps = clustered(pa.array(["a", "b", None, "c", "a"]))
    log = drs.Log(gaps)
    with pytest.raises(drs.LogError, match=r"cluster is null at row 2, column 'user'"):
        rows_of(log, folds=log.folds(2, cluster="user"))
    skipped = Counter()
    skipping = log.with_bad_rows("skip")
    assert rows_of(skipping, skipped, folds=log.folds(2, cluster="user")) == [0, 1, 3, 4]
    assert skipped == {"cluster is null": 1}
    assert rows_of(skipping, folds=log.folds(2)) == [0, 1, 2, 3, 4]


def test_take_keeps_folds(users):
    log = drs.Log(clustered(pa.array(users)))
    reader = log.reader(folds=log.folds(5))
    batch = next(reader.batches(next(log.parts(reader.columns)), Counter()))
    block = list(batch.blocks(100))[2]
    chosen = np.array([7, 7, 0, 99])
    assert block.take(chosen).fold.tolist() == block.fold[chosen].tolist()
