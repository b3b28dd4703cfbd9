"""Categories as contexts: one-hot and hashed columns, dense and sparse, against scikit-learn's OneHotEncoder."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

import drstream as drs
from drstream.log import encoding
from drstream.log.finding import MOST
from tests.helpers.categories import COUNTRIES, features, one_hot, table
from tests.helpers.cut import cut_log

TEXT = st.text(alphabet="aB é☃", max_size=2)
KINDS = {
    "text": (TEXT, pa.string()),
    "large": (TEXT, pa.large_string()),
    "dictionary": (TEXT, pa.dictionary(pa.int8(), pa.string())),
    "integer": (st.integers(-(2**62), 2**62), pa.int64()),
    "small": (st.integers(0, 3), pa.uint8()),
    "huge": (st.integers(2**63 - 1, 2**64 - 1), pa.uint64()),
    "integers": (st.integers(-3, 3), pa.dictionary(pa.int16(), pa.int32())),
    "boolean": (st.booleans(), pa.bool_()),
}


def roles(rows):
    return {"action": [i % 2 for i in range(rows)], "reward": [1.0] * rows, "propensity": [0.5] * rows}


def of(columns, **options):
    """A log of these columns."""
    rows = len(next(iter(columns.values())))
    return drs.Log(pa.table({**roles(rows), **columns}), context=list(columns), **options)


@st.composite
def columns(draw):
    """A column of each kind, some of them with nulls."""
    rows = draw(st.integers(1, 12))
    found = {}
    for name, (values, kind) in KINDS.items():
        maybe = draw(st.sampled_from([values, st.none() | values]))
        found[name] = pa.array(draw(st.lists(maybe, min_size=rows, max_size=rows)), kind)
    return found


def by_sklearn(columns):
    """The features of all columns, by scikit-learn. A null is a category, the last one."""
    return np.hstack([OneHotEncoder(sparse_output=False).fit_transform(as_objects(c)) for c in columns.values()])


def as_objects(column):
    return np.array(column.to_pylist(), object).reshape(-1, 1)


@given(columns())
def test_dense_equals_sparse_equals_one_hot_encoder(columns):
    wanted = by_sklearn(columns)
    forms = []
    for most in (1000, 0):  # dense, then sparse
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoding, "DENSE", most)
            log = of(columns, categorical=list(columns), missing="keep")
            assert log.is_sparse == (most == 0)
            assert log.n_features == wanted.shape[1] == len(log.feature_names)
            forms += [features(log), features(log, rows=5)]
    for found in forms:
        np.testing.assert_array_equal(found, wanted)


@given(columns(), columns())
def test_an_encoding_of_one_log_on_another_equals_one_hot_encoder(ours, theirs):
    """Values that were not seen are all zeros, as with handle_unknown="ignore", and counted."""
    mine = of(ours, categorical=list(ours), missing="keep").encoding
    found = mine.read(pa.RecordBatch.from_pydict(theirs))
    wanted, unseen = [], 0
    for name, column in ours.items():
        known = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(as_objects(column))
        wanted.append(known.transform(as_objects(theirs[name])))
        unseen += int((wanted[-1].sum(axis=1) == 0).sum())
    np.testing.assert_array_equal(found.matrix(), np.hstack(wanted))
    np.testing.assert_array_equal(found.sparse().array().toarray(), np.hstack(wanted))
    assert sum(mine.others(lambda name: theirs[name]).values()) == unseen


def test_numbers_categories_and_hashed_columns_in_one_list():
    data = table(300)
    log = drs.Log(data, context=["age", "country", drs.Hashed("agent", bits=5), "member", "zip"], categorical=["zip"])
    assert log.n_features == 1 + 3 + 32 + 1 + 5
    names = ["age", "country=DE", "country=FR", "country=US", "agent#0"]
    assert log.feature_names[:5] == names
    assert log.feature_names[-6:] == ["member", "zip=100", "zip=101", "zip=102", "zip=103", "zip=104"]
    X = features(log)
    np.testing.assert_array_equal(X[:, 0], data["age"])
    np.testing.assert_array_equal(X[:, 1:4], one_hot(data["country"].to_pylist(), COUNTRIES))
    np.testing.assert_array_equal(X[:, 4:36].argmax(axis=1), [bucket(v, 5) for v in data["agent"].to_pylist()])
    assert (X[:, 4:36].sum(axis=1) == 1).all()
    np.testing.assert_array_equal(X[:, 36], data["member"].to_numpy(zero_copy_only=False))
    np.testing.assert_array_equal(X[:, 37:], one_hot(data["zip"].to_pylist(), range(100, 105)))


def test_a_boolean_is_one_feature_unless_it_is_named():
    data = table(50)
    assert drs.Log(data, context=["member"]).feature_names == ["member"]
    log = drs.Log(data, context=["member"], categorical="member")
    assert log.feature_names == ["member=False", "member=True"]
    np.testing.assert_array_equal(features(log), one_hot(data["member"].to_pylist(), [False, True]))


def test_few_features_are_dense_and_many_are_sparse():
    data = table(100)
    assert not drs.Log(data, context=["age", drs.Hashed("agent", bits=7)]).is_sparse
    assert drs.Log(data, context=["age", drs.Hashed("agent", bits=8)]).is_sparse
    assert not drs.Log(pa.table({**roles(2), **{f"x{j}": [0.0, 1.0] for j in range(300)}})).is_sparse


def test_print_shows_categories_and_hashed_columns():
    log = drs.Log(table(100), context=["age", "country", drs.Hashed("agent", bits=18)])
    line = str(log).splitlines()[1]
    wanted = "age, country (3 categories: DE, FR, US), agent (hashed, 262,144 features)"
    assert line == f"  context     sparse, 262,148 features of 3 columns: {wanted}"
    assert "  missing     kept" in str(drs.Log(table(10), context=["age"], missing="keep"))
    assert "  missing     0 in their place" in str(drs.Log(table(10), context=["age"], missing=0))


def test_a_stream_says_that_categories_are_not_known_yet():
    reader = table(100).to_reader()
    log = drs.Log(reader, context=["age", "country"], actions=2)
    assert "age, country: categories not known before reading" in str(log)
    assert drs.evaluate(log, drs.policies.Softmax(np.zeros((2, 4))), estimators="ips").n == 100


def test_parts_of_a_log_share_its_categories(tmp_path):
    data = pa.concat_tables([table(50, 1, ("AT",)), table(50, 2, ("BE", "CH"))])
    pq.write_table(data, tmp_path / "log.parquet", row_group_size=10)
    log = drs.Log(tmp_path / "log.parquet", context=["country"], filter=pa.compute.field("country") == "AT")
    train, test = log.split(0.5)
    assert train.categories == test.categories == {"country": ["AT", "BE", "CH"]}
    assert train.encoding is test.encoding
    assert features(log)[:, 0].sum() == 50


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("group", [7, 1000])
def test_every_way_to_store_text_gives_the_same_features(tmp_path, kind, group):
    data = table(200)
    wanted = one_hot(data["country"].to_pylist(), COUNTRIES)
    place = data.column_names.index("country")
    stored = data.set_column(place, "country", data["country"].cast(kind))
    pq.write_table(stored, tmp_path / "log.parquet", row_group_size=group)
    cut = pa.concat_tables([stored.slice(0, 90), stored.slice(90)])  # chunks with dictionaries of their own
    for source in (tmp_path / "log.parquet", cut):
        for size in (None, 13):
            np.testing.assert_array_equal(features(cut_log(source, context=["country"], batch_size=size)), wanted)


def test_categories_are_not_looked_for_without_need(monkeypatch):
    data = table(100).append_column("pi", pa.array([0.5] * 100))
    monkeypatch.setattr("drstream.log.context.find_categories", None)
    log = drs.Log(data, context=["age", "country"])
    assert drs.evaluate(log, {"column": drs.policies.Column("pi"), "even": drs.policies.Uniform()}).n == 100


# Hashes


def bucket(value, bits):
    """The bucket of a text by hand: FNV-1a, then splitmix64's finaliser, then the highest bits."""
    h = 0xCBF29CE484222325
    for byte in value.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return mixed(h) >> (64 - bits)


def mixed(h):
    z = (h + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20), st.integers(1, 18))
def test_hashes_of_text(values, bits):
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        column = encoding.Buckets("x", bits, "text").read(pa.array(values, kind), "error")
        assert column.tolist() == [bucket(value, bits) for value in values]


def test_hashes_of_integers_and_nulls():
    for kind in (pa.int8(), pa.int64(), pa.dictionary(pa.int8(), pa.int16())):
        column = encoding.Buckets("x", 12, "integers").read(pa.array([0, 5, None, -7, None], kind), "keep")
        null = mixed(int(encoding.NULL_KEY)) >> 52
        assert column.tolist() == [mixed(0) >> 52, mixed(5) >> 52, null, mixed(2**64 - 7) >> 52, null]


def test_hashes_never_change():
    """A saved model relies on them. They do not depend on Python's seed of hashes either."""
    wanted = [245370, 56196, 187572]
    column = encoding.Buckets("x", 18, "text").read(pa.array(["", "curl/8.5", "Mozilla/5.0 é"]), "error")
    assert column.tolist() == [bucket(v, 18) for v in ("", "curl/8.5", "Mozilla/5.0 é")] == wanted
    code = (
        "import pyarrow as pa; from drstream.log.encoding import Buckets; "
        "print(Buckets('x', 18, 'text').read(pa.array(['curl/8.5']), 'error')[0])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert run.stdout.strip() == "56196", run.stderr


# What is refused


def test_too_many_categories_are_to_be_hashed():
    data = pa.table({**roles(MOST + 1), "id": [f"u{i}" for i in range(MOST + 1)]})
    log = drs.Log(data, context=["id"])
    with pytest.raises(drs.LogError, match=r"holds over 100,000 different values, e.g. 'u0': .*drs.Hashed\('id'"):
        log.n_features  # noqa: B018
    assert drs.Log(data, context=[drs.Hashed("id", bits=10)]).n_features == 1024


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": ["age"], "categorical": ["cuntry"]}, "'cuntry', which is not part of the context: there are: age"),
        ({"context": ["age", "country"], "categorical": ["contry"]}, "did you mean 'country'"),
        ({"context": ["age"], "categorical": ["age"]}, "'age', which has type float: categories are strings, integers"),
        ({"context": [drs.Hashed("age")]}, "Hashed column 'age' has type float"),
        ({"context": [drs.Hashed("agnt")]}, "no column 'agnt' for the context: did you mean 'agent'"),
        ({"context": ["agent", drs.Hashed("agent")]}, "names 'agent' twice"),
        (
            {"context": [drs.Hashed("zip")], "categorical": "zip"},
            "'zip' is hashed: leave it out of categorical=",
        ),
        (
            {"context": ["when"]},
            "'when' has type timestamp.*must hold numbers, booleans, strings, or a dictionary",
        ),
        ({"context": ["list", "country"]}, "holds lists: a context is one column of lists"),
        ({"context": ["country", "reward"]}, "column 'reward' is the reward: it cannot be part of the context"),
    ],
)
def test_what_cannot_be_categories(options, message):
    data = table(10).append_column("when", pa.array([0] * 10, pa.timestamp("s")))
    data = data.append_column("list", pa.array([[1.0]] * 10))
    with pytest.raises(drs.LogError, match=message):
        drs.Log(data, **options)


@pytest.mark.parametrize("bits", [0, 29, 1.5, True, "8"])
def test_bits_of_a_hash(bits):
    with pytest.raises(drs.LogError, match="bits must be a whole number from 1 to 28"):
        drs.Hashed("agent", bits=bits)


def test_a_hashed_column_is_one_name():
    with pytest.raises(drs.LogError, match="name one column"):
        drs.Hashed(["agent"])
    assert drs.Log(table(10), context=drs.Hashed("agent", bits=3)).n_features == 8


def test_a_column_without_a_category_has_no_feature():
    columns = {"x0": pa.array([1.0, 2.0]), "c": pa.array([None, None], pa.string())}
    known = encoding.Encoding((encoding.Number("x0"), encoding.Category("c", "text", ())), missing="keep")
    found = known.read(pa.RecordBatch.from_pydict(columns))
    assert found.matrix().tolist() == found.sparse().array().toarray().tolist() == [[1.0], [2.0]]
    assert known.others(lambda name: columns[name]) == {"c": 2}
