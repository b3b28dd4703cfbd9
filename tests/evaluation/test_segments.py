"""Segments: each is what a log of its own events would give; pooled, paired, and corrected for their number."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.evaluation import segments
from drstream.evaluation.tables import benjamini_hochberg
from tests.helpers.cut import cut_log
from tests.helpers.logs import world
from tests.helpers.passes import PLAIN

ROWS = 900 if PLAIN else 30_000
POLICIES = {"soft": drs.policies.Softmax(world().taste), "second": drs.policies.Constant(1)}
METHODS = ["normal", "bootstrap", "cluster", "anytime", "likelihood"]
OPTIONS = {"cluster": "user", "interval": METHODS, "reward_range": (0, 1), "max_weight_bound": 1e4, "clamp": (0, 1)}


@pytest.fixture(scope="module")
def table():
    table = world().table(ROWS, seed=3)
    rng = np.random.default_rng(0)
    country = rng.choice(["DE", "FR", None], ROWS, p=[0.5, 0.4, 0.1])
    columns = {"country": pa.array(country, pa.string()), "mobile": pa.array(rng.random(ROWS) < 0.3)}
    for name, column in {**columns, "user": pa.array(rng.integers(0, 60, ROWS))}.items():
        table = table.append_column(name, column)
    return table


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("segments") / "log.parquet"
    pq.write_table(table, path, row_group_size=ROWS // 4)
    return path


@pytest.fixture(scope="module")
def model():
    return drs.models.Ridge().fit(drs.Log(world().table(400, seed=4)))


def run(source, model, by=("country", "mobile"), log_options=None, **options):
    return drs.evaluate(cut_log(source, **(log_options or {})), POLICIES, model, by=by, **{**OPTIONS, **options})


def test_a_segment_is_what_its_events_alone_give(table, model):
    result = run(table, model)
    keys = {(c, m) for c, m in zip(table["country"].to_pylist(), table["mobile"].to_pylist(), strict=True)}
    assert {(r["country"], r["mobile"]) for r in result.segments.to_pylist()} == keys
    for country, mobile in keys:
        is_country = pc.is_null(pc.field("country")) if country is None else pc.field("country") == country
        alone = drs.evaluate(
            drs.Log(table, filter=is_country & (pc.field("mobile") == mobile)), POLICIES, model, **OPTIONS
        )
        part = result.segment(country=country, mobile=mobile)
        assert part.n == alone.n
        for policy in POLICIES:
            for estimator in alone.estimators:
                one, two = part[policy, estimator], alone[policy, estimator]
                assert one.value == pytest.approx(two.value, rel=1e-12)
                assert one.stderr == pytest.approx(two.stderr, rel=1e-9)
                for name in METHODS:
                    assert one.intervals[name] == pytest.approx(two.intervals[name], rel=1e-8), name
            one, two = part.difference(policy), alone.difference(policy)
            assert (one.value, one.low, one.high) == pytest.approx((two.value, two.low, two.high), rel=1e-8)


def bits(result):
    return [
        [v if isinstance(v, (str, bool)) or v is None else float(v).hex() for v in row.values()]
        for row in result.segments.to_pylist()
    ]


def test_the_same_bits_for_any_batch_size_and_threads(parquet, model):
    wanted = bits(run(parquet, model, threads=1))
    assert bits(run(parquet, model, threads=3)) == wanted
    assert bits(run(parquet, model, log_options={"batch_size": 101})) == wanted


def test_asking_for_segments_does_not_change_the_whole(parquet, model):
    plain = run(parquet, model, by=())
    result = run(parquet, model)
    for policy in POLICIES:
        for estimator in plain.estimators:
            assert result[policy, estimator] == plain[policy, estimator]
    assert plain.segments is None


def test_rare_segments_are_pooled(table, model, monkeypatch):
    monkeypatch.setattr(segments, "MOST_SHOWN", 3)
    result = run(table, model, interval="normal", cluster=None)
    rows = [r for r in result.segments.to_pylist() if r["policy"] == "soft" and r["estimator"] == "dr"]
    assert len(rows) == 4
    assert sum(r["n"] for r in rows) == ROWS
    assert rows[-1]["country"] == rows[-1]["mobile"] == segments.OTHER
    kept = sorted((r["n"] for r in rows[:-1]), reverse=True)
    assert kept[-1] >= rows[-1]["n"] / 3  # the largest ones are kept


def test_segments_by_whole_numbers_and_dates(table):
    day = pa.array(np.repeat(np.arange(3), -(-ROWS // 3))[:ROWS].astype(np.int32), pa.int32()).cast(pa.date32())
    result = drs.evaluate(drs.Log(table.append_column("day", day)), POLICIES, by="day")
    assert len(result.segments) == 3 * 2 * 2
    assert result.segment(day=day[0].as_py()).n == -(-ROWS // 3)
    assert '"segments"' in result.to_json()


def test_q_values_are_those_of_benjamini_and_hochberg(table, model):
    result = run(table, model)
    found = result.segments.to_pylist()
    for policy in POLICIES:
        group = [r for r in found if r["policy"] == policy and r["estimator"] == "dr"]
        p = np.array([r["p_value"] for r in group])
        order = np.argsort(p)
        adjusted = np.minimum.accumulate((p[order] * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
        wanted = np.empty(len(p))
        wanted[order] = np.minimum(adjusted, 1)
        np.testing.assert_allclose([r["q_value"] for r in group], wanted, rtol=1e-12)
    assert np.isnan(benjamini_hochberg([np.nan, 0.5])[0])


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("x0", "by= names column 'x0', which has type float: segments are made from columns with few different"),
        ("contry", "the log has no column 'contry' for the segments: did you mean 'country'"),
        (["country", "country"], "names a column twice"),
    ],
)
def test_columns_that_cannot_be_segments(table, by, message):
    with pytest.raises(drs.DrstreamError, match=message):
        drs.evaluate(drs.Log(table), POLICIES, by=by)


def test_segments_that_do_not_fit_into_memory_are_refused_before_they_take_it(table, monkeypatch):
    from drstream.running import execution

    monkeypatch.setattr(execution, "physical_memory", lambda: 50_000.0)
    log = drs.Log(table)
    with pytest.raises(
        drs.DrstreamError, match=r"sums of \d+ segments need about .* GB in all.*fewer different values"
    ):
        drs.evaluate(log, drs.policies.Constant(0), by="user", cluster="user", estimators=["ips"], threads=1)


def test_too_many_segments(table, monkeypatch):
    import drstream.evaluation.segments as module

    monkeypatch.setattr(module, "MOST_VALUES", 5)
    with pytest.raises(drs.LogError, match=r"by=\['user'\] makes more than 5 segments"):
        drs.evaluate(drs.Log(table), POLICIES, by="user")
    lists = table.append_column("tags", pa.array([["a"]] * ROWS))
    with pytest.raises(drs.LogError, match="it must hold text, whole numbers, booleans or dates"):
        drs.evaluate(drs.Log(lists), POLICIES, by="tags")


def test_a_segment_that_is_not_there(table):
    result = drs.evaluate(drs.Log(table), POLICIES, by="country")
    with pytest.raises(KeyError, match="there is no segment"):
        result.segment(country="XX")
    with pytest.raises(drs.DrstreamError, match="give a value for each of country"):
        result.segment(land="DE")
    with pytest.raises(drs.DrstreamError, match="pass by= to evaluate"):
        result.segment(country="DE").segment(country="DE")


@pytest.mark.parametrize(
    ("interval", "cluster", "close"),
    [("normal", None, 1e-3), (None, None, 1e-3), ("cluster", "user", 1e-3), ("gamma", None, 1e-3)],
)
def test_p_values_are_those_of_the_intervals(table, model, interval, cluster, close):
    """At a confidence of 1 - p, the interval of the difference just touches 0."""
    options = {"interval": interval, "cluster": cluster, "reward_range": (0, 1)}
    result = run(table, model, **options)
    row = next(r for r in result.segments.to_pylist() if 1e-9 < r["p_value"] < 0.9 and r["estimator"] == "ips")
    at = run(table, model, **options, confidence=1 - row["p_value"])
    part = at.segment(country=row["country"], mobile=row["mobile"]).difference(row["policy"], estimator="ips")
    assert min(abs(part.low), abs(part.high)) < close * (part.high - part.low)


def test_dm_has_no_p_value_unless_its_interval_was_asked_for(table, model):
    rows = drs.evaluate(drs.Log(table), POLICIES, model, by="country").segments.to_pylist()
    assert all(np.isnan(r["p_value"]) == (r["estimator"] == "dm") for r in rows)


def test_a_segment_without_an_action_has_a_level_and_the_whole_says_so():
    rng = np.random.default_rng(0)
    rows = 2_000
    german = np.arange(rows) % 2 == 0
    action = np.where(german, rng.integers(0, 2, rows), rng.integers(0, 3, rows))  # action 2 is not shown in Germany
    columns = {"action": action, "reward": (rng.random(rows) < 0.5).astype(float)}
    columns |= {"propensity": np.where(german, 1 / 2, 1 / 3), "country": np.where(german, "DE", "FR")}
    result = drs.evaluate(drs.Log(pa.table(columns)), {"u": drs.policies.Uniform()}, by="country")
    assert {r["country"]: r["level"] for r in result.segments.to_pylist()} == {"DE": "stop", "FR": "ok"}
    said = next(f for f in result.findings if f.check == "segments")
    assert "country=DE: The mean weight of u" in said.message
    assert said.level == "look"


def test_a_value_with_the_name_of_the_pooled_segment(table, monkeypatch):
    monkeypatch.setattr(segments, "MOST_SHOWN", 2)
    names = np.random.default_rng(0).choice([segments.OTHER, "a", "b", "c"], ROWS, p=[0.4, 0.3, 0.2, 0.1])
    result = drs.evaluate(drs.Log(table.append_column("kind", pa.array(names))), POLICIES, by="kind")
    rows = [r for r in result.segments.to_pylist() if (r["policy"], r["estimator"]) == ("soft", "ips")]
    assert sum(r["n"] for r in rows) == ROWS
    assert {r["kind"] for r in rows} == {segments.OTHER, "a", f"({segments.OTHER})"}


def test_odd_columns_of_segments(table):
    large = table.append_column("id", pa.array(np.full(ROWS, 2**63 + 5, np.uint64)))
    assert drs.evaluate(drs.Log(large), POLICIES, by="id").segments["id"][0].as_py() == 2**63 + 5
    with pytest.raises(drs.LogError, match="names column 'value', and the table of segments has one: rename it"):
        drs.evaluate(drs.Log(table.append_column("value", table["country"])), POLICIES, by="value")
    with pytest.raises(drs.LogError, match=r"by=.*: name a column, or several"):
        drs.evaluate(drs.Log(table), POLICIES, by=3)


def test_processes_give_the_same_bits(parquet, model, processes):
    assert bits(run(parquet, model, executor=processes)) == bits(run(parquet, model))
