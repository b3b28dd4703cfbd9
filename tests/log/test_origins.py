"""Where the rows of a log came from, and whether two logs have rows in common."""

import json
import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.log.rows import Origin, Split
from tests.helpers.logs import clustered


def shares(one, other):
    """It is the same seen from either side, and after a way through JSON where files are known."""
    a, b = one.origin, other.origin
    found = {a.shares_rows_with(b), b.shares_rows_with(a)}
    if all(isinstance(key, str) for key in (*a.keys, *b.keys)):
        kept = Origin.from_dict(json.loads(json.dumps(a.to_dict())))
        assert kept == a
        found |= {kept.shares_rows_with(b), b.shares_rows_with(kept), pickle.loads(pickle.dumps(a)).shares_rows_with(b)}
    (answer,) = found
    return answer


@pytest.fixture
def files(tmp_path):
    whole = clustered(pa.array(np.arange(20)))
    for name in ("a", "b"):
        pq.write_table(whole, tmp_path / f"{name}.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", ["table", "file"])
@pytest.mark.parametrize("cluster", [None, "user"])
def test_rows_in_common_of_one_source(kind, cluster, files):
    source = clustered(pa.array(np.arange(20))) if kind == "table" else files / "a.parquet"
    log = drs.Log(source)
    left, right = log.split(0.5, cluster=cluster)
    again = drs.Log(source).split(0.5, cluster=cluster)
    assert shares(log, log)
    assert shares(log, drs.Log(source, context=["x0"]))
    assert shares(log, left)
    assert shares(left, left)
    assert shares(left, again[0])
    assert not shares(left, right)
    assert not shares(left, again[1])
    assert shares(left, log.split(0.5, seed=1, cluster=cluster)[1])
    assert shares(left, log.split(0.5, cluster="action")[1])
    assert shares(left, log.split(0.3, cluster=cluster)[1])
    assert not shares(log.split(0.3, cluster=cluster)[0], right)
    quarters = left.split(0.5, cluster=cluster)
    assert not shares(*quarters)
    assert shares(quarters[0], left)
    assert not shares(quarters[0], right)
    assert not shares(quarters[0], right.split(0.5, cluster=cluster)[0])
    assert shares(quarters[0], log.split(0.5, cluster=cluster)[0])
    folds = log.folds(3, cluster=cluster)
    train, test = log.part_of(folds.all_but(0)), log.part_of(folds.all_but(0).complement)
    assert not shares(train, test)
    assert shares(train, log.part_of(folds.all_but(1)))
    assert shares(train, left)
    assert shares(drs.Log(source, filter=pc.field("x0") > 1), drs.Log(source, filter=pc.field("x0") < 1))


def test_rows_in_common_of_several_sources(files):
    a, b = files / "a.parquet", files / "b.parquet"
    assert not shares(drs.Log(a), drs.Log(b))
    assert shares(drs.Log(a), drs.Log([a, b]))
    assert shares(drs.Log([b, a]), drs.Log([a, b]))
    assert shares(drs.Log(files), drs.Log(f"{files}/b*"))
    assert shares(drs.Log(a).split(0.5)[0], drs.Log([b, a]).split(0.5)[1])  # rows have other numbers
    assert not shares(drs.Log(a).split(0.5, cluster="user")[0], drs.Log([b, a]).split(0.5, cluster="user")[1])
    assert shares(drs.Log(a).split(0.5, cluster="user")[0], drs.Log([b, a]).split(0.5, cluster="user")[0])
    assert shares(drs.Log(a).split(0.5, cluster="user")[0], drs.Log([b, a]).split(0.5)[1])
    one, same = clustered(pa.array([1, 2])), clustered(pa.array([1, 2]))
    assert not shares(drs.Log(one), drs.Log(same))  # another object: nothing is known
    assert not shares(drs.Log(one), drs.Log(a))
    reader = drs.Log(one.to_reader())
    assert shares(reader, reader)
    assert not shares(reader, drs.Log(one.to_reader()))
    frame = pl.from_arrow(one)
    assert shares(drs.Log(frame), drs.Log(frame))


def test_origin_as_text_and_as_a_dictionary(files):
    log = drs.Log(files / "a.parquet", filter=pc.field("x0") > 1).split(0.25, cluster="user")[1].split(0.5)[0]
    text = str(log.origin)
    for part in ("a.parquet, filtered, values of user", "[0.25, 1), rows with a random number in [0, 0.5)"):
        assert part in text
    found = json.loads(json.dumps(log.origin.to_dict()))
    assert found["files"] == [str(files / "a.parquet")]
    assert found["filter"] == "(x0 > 1)"
    assert [(s["low"], s["high"], s["outside"], s["cluster"]) for s in found["splits"]] == [
        (0.25, 1.0, False, "user"),
        (0.0, 0.5, False, None),
    ]
    one = clustered(pa.array([1, 2]))
    kept = Origin.from_dict(json.loads(json.dumps(drs.Log(one).split(0.5)[0].origin.to_dict())))
    assert kept.name == "table"
    assert kept.splits == drs.Log(one).split(0.5)[0].origin.splits
    assert not kept.shares_rows_with(drs.Log(one).origin)  # the object is gone, and no other is like it
    assert not kept.shares_rows_with(Origin.from_dict(kept.to_dict()))


halves = st.builds(
    lambda seed, edges, outside: Split(seed, *sorted(edges), outside),
    st.sampled_from([1, 2]),
    st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda e: (e[0] / 4, e[1] / 4)),
    st.booleans(),
)


@given(halves, halves)
def test_splits_exclude_each_other_where_no_number_is_in_both(one, other):
    u = np.arange(0, 1, 1 / 16)
    both = (one.keep(u) & other.keep(u)).any()
    assert one.excludes(other) == (one.seed == other.seed and not both)
    assert (one.keep(u) != one.complement.keep(u)).all()
