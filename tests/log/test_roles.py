"""context="*" and exclude=, a constant propensity, and what repr says about them."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.log.starred import looks_like

N = 600


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "user_id": rng.integers(0, 9, N),
            "age": rng.integers(18, 80, N),
            "paid": rng.random(N),
            "day": pa.array([dt.date(2026, 11, 1)] * N),
            "created_at": np.arange(N),
            "f1": rng.random(N),
            "action": rng.integers(1, 4, N),
            "reward": rng.random(N),
            "pscore": np.full(N, 1 / 3),
        }
    )


def test_star_leaves_out_ids_and_times_and_says_so(table):
    log = drs.Log(table, context="*")
    assert log.roles.context == ("age", "paid", "f1")
    shown = repr(log).split("\n")
    assert shown[1] == "  context     3 features: age, paid, f1"
    assert shown[2] == (
        "  left out    user_id, day, created_at: like ids, times or other roles. Name them to use them as contexts"
    )
    named = drs.Log(table, context=["*", "user_id"])
    assert named.roles.context == ("user_id", "age", "paid", "f1")
    assert "left out    day, created_at:" in repr(named)
    assert drs.Log(table, context="*_id").roles.context == ("user_id",)


def test_star_prints_all_that_it_took():
    many = pa.table({"action": [0], "reward": [1.0], "propensity": [1.0], **{f"c{i}": [1.0] for i in range(30)}})
    assert f"30 features: {', '.join(f'c{i}' for i in range(30))}" in repr(drs.Log(many, context="*"))
    assert "30 features: c0, c1, c2, ..., c29" in repr(drs.Log(many, context="c*"))


def test_star_leaves_out_other_roles(table):
    log = drs.Log(table, context="*", action=None, propensity=None)
    assert log.roles.left_out == ("user_id", "day", "created_at", "action", "pscore")


def test_exclude(table):
    assert drs.Log(table, context="*", exclude=["paid"]).roles.context == ("age", "f1")
    assert drs.Log(table, context="*", exclude="f*").roles.context == ("age", "paid")
    assert drs.Log(table, exclude="f1").roles.context == ()
    with pytest.raises(drs.LogError, match=r"exclude= names 'pade', which is no column.*did you mean 'paid'"):
        drs.Log(table, context="*", exclude=["pade"])
    with pytest.raises(drs.LogError, match="column 'age' is named with context= and with exclude="):
        drs.Log(table, context=["age", "paid"], exclude=["age"])
    with pytest.raises(drs.LogError, match=r"no column matches 'f\*'"):
        drs.Log(table, context="f*", exclude=["f1"])


@pytest.mark.parametrize(
    ("name", "kind", "like"),
    [
        *((name, pa.int64(), "id") for name in ("id", "ID", "user_id", "userId", "userid", "session_uuid", "event.id")),
        *((name, pa.int64(), None) for name in ("paid", "bid", "valid", "grid", "ideas", "hour", "weekday")),
        *((name, pa.int64(), "time") for name in ("timestamp", "ts", "event_ts", "created_at", "time", "date")),
        *((name, pa.float64(), None) for name in ("watch_time", "time_on_site", "update", "lat", "format")),
        ("x", pa.timestamp("s"), "time"),
        ("x", pa.date32(), "time"),
        ("x", pa.uuid(), "id"),
        ("click", pa.int64(), "another role"),
    ],
)
def test_what_looks_like_an_id_or_a_time(name, kind, like):
    assert looks_like(pa.field(name, kind), ["click"]) == like


# A constant propensity


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(table, path, row_group_size=200)
    return path


@pytest.mark.parametrize("propensity", [1 / 3, "uniform", np.float64(1 / 3)])
def test_constant_propensities_are_like_a_column_of_them(table, path, propensity, tmp_path):
    bare = table.drop_columns(["pscore"])
    first = drs.Log(table, context=["age"])
    policies = {"new": drs.policies.Constant(2), "linear": drs.policies.Linear(np.ones((3, 1)))}
    for source in (bare, path):
        log = drs.Log(source, context=["age"], propensity=propensity)
        for threads in (1, 2):
            found = drs.evaluate(log, policies, drs.models.Ridge(weights="1/p"), crossfit=2, threads=threads)
            wanted = drs.evaluate(
                drs.Log(path, context=["age"]) if source is path else first,
                policies,
                drs.models.Ridge(weights="1/p"),
                crossfit=2,
            )
            assert found.to_arrow()["value"].equals(wanted.to_arrow()["value"])
        assert drs.replay(log, drs.policies.EpsilonGreedy(), 20, q=0.1).value == pytest.approx(
            drs.replay(first, drs.policies.EpsilonGreedy(), 20, q=0.1).value, rel=1e-12
        )
        assert drs.replay(log, drs.policies.Uniform(), 5, method="rs").value > 0  # the smallest propensity is known
        assert log.audit()["exploration"].level == first.audit()["exploration"].level
        wanted = drs.Log(path, context=["age"]) if source is path else first
        assert log.audit().findings == wanted.audit().findings
        learned = drs.optimize.OffsetTree().fit(log)
        assert list(learned.labels_) == [1, 2, 3]
        drs.plan(log, drs.policies.Uniform())
    drs.convert(log, tmp_path / "copy.parquet")
    assert drs.Log(tmp_path / "copy.parquet", propensity=propensity).rows == N


def test_what_is_shown_of_constant_propensities(table):
    assert "propensity  0.25 in every row" in repr(drs.Log(table, propensity=0.25))
    uniform = drs.Log(table, propensity="uniform")
    assert "propensity  1/3 in every row: uniform" in repr(uniform)
    assert drs.Log(table, propensity="uniform", actions=5).constant_propensity == 1 / 5
    named = table.append_column("uniform", pa.array([0.5] * N))
    assert drs.Log(named, propensity="uniform").roles.propensity == "uniform"  # a column of that name


@pytest.mark.parametrize("propensity", [0, 0.0, -0.5, 1.5, float("nan"), 3])
def test_numbers_that_are_no_propensities(table, propensity):
    with pytest.raises(drs.LogError, match=r"a propensity for every row must be in \(0, 1\]"):
        drs.Log(table, propensity=propensity)


def test_constant_propensities_beside_those_of_all_actions(table):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.full(3 * N, 1 / 3)), 3)
    log = drs.Log(table.append_column("mu", lists), context=["age"], propensity="uniform", propensities="mu")
    how = {"model": drs.models.Ridge(), "estimators": ["dr-stablevar"], "crossfit": "forward:100"}
    result = drs.evaluate(log, drs.policies.Uniform(), **how)
    assert result.n == N
    other = drs.Log(log.source, context=["age"], propensity=0.5, propensities="mu", on_bad_row="skip")
    with pytest.raises(drs.LogError, match="after 600 rows were skipped"):
        drs.evaluate(other, drs.policies.Uniform(), **how)


def test_uniform_propensities_do_not_change_with_the_policies():
    table = pa.table({"action": [0, 1, 0, 1], "reward": [1.0, 0.0, 1.0, 1.0], "x0": [1.0, 2.0, 3.0, 4.0]})
    log = drs.Log(table, context=["x0"], propensity="uniform")
    assert drs.evaluate(log, drs.policies.Constant(0), estimators="ips")["ips"].value == 1.0
    with pytest.raises(drs.LogError, match="is 1/2 in a log of 2 actions, and a policy or model knows 3: say how many"):
        drs.evaluate(log, drs.policies.Softmax(np.zeros((3, 1))))
    log = drs.Log(table, context=["x0"], propensity="uniform", actions=3)
    assert drs.evaluate(log, drs.policies.Softmax(np.zeros((3, 1))), estimators="ips")["ips"].value == 0.75
    with pytest.raises(drs.LogError, match="which this log does not tell"):
        drs.Log(table, context=["x0"], propensity="uniform", action=None)


def test_a_fraction_is_a_number():
    log = drs.Log(pa.table({"action": [0], "reward": [1.0], "propensity": [1.0]}))
    with pytest.raises(drs.LogError, match=r"split\('a'\): the fraction must be a number in \[0, 1\]"):
        log.split("a")
