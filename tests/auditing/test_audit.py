"""The pass of an audit: its sums against plain Python, the same bits however it runs, and what it counts."""

import json
import math
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.auditing import copies, times
from tests.helpers.cut import cut_log
from tests.helpers.logs import log_of, world
from tests.helpers.passes import not_plain


def replaced(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def dated(table):
    """With ids, and times that go back once."""
    n = table.num_rows
    seconds = np.arange(n) * 7
    seconds[n // 2] = 0
    table = table.append_column("at", pa.array(seconds).cast(pa.timestamp("ms", tz="UTC")))
    return table.append_column("id", pa.array([f"event {i}" for i in range(n)]))


@pytest.fixture(scope="module")
def table():
    return dated(world(kinds=None).table(3000, seed=1))


def naive(table, actions):
    """The columns of Audit.actions, from their definitions."""
    a, p = table["action"].to_numpy(), table["propensity"].to_numpy()
    rows = []
    for action in range(actions):
        y = (a == action) / p
        stderr = y.std(ddof=1) / np.sqrt(len(y))
        count = int((a == action).sum())
        rows.append((action, count, count / len(a), y.mean(), stderr, (y.mean() - 1) / stderr))
    return rows


def test_actions_equal_the_definition(table):
    audit = drs.Log(table).audit()
    assert audit.actions.column_names == ["action", "count", "share", "mean_inverse", "stderr", "z"]
    got = [tuple(row.values()) for row in audit.actions.to_pylist()]
    np.testing.assert_allclose(got, naive(table, 4), rtol=1e-11)
    assert audit.rows == 3000
    p = table["propensity"].to_numpy()
    i = int(p.argmin())
    assert audit["smallest_propensity"].value == p[i]
    assert f"at row {i}." in audit["smallest_propensity"].message
    assert audit["distinct_propensities"].value == len(np.unique(p))
    assert audit["inverse_over_all"].value == pytest.approx((1 / p).mean(), rel=1e-12)
    assert audit["large_propensities"].value == pytest.approx(np.where(p > 0.5, 1 - p, p - 1).mean(), rel=1e-12)


def test_blocks_equal_the_definition(table):
    rng = np.random.default_rng(0)
    shuffled = table.take(rng.permutation(table.num_rows))
    audit = drs.Log(shuffled).audit(time="at")
    blocks = audit.blocks.to_pylist()
    assert len(blocks) == times.BLOCKS
    assert sum(block["rows"] for block in blocks) == 3000
    assert max(block["rows"] for block in blocks) < 2 * 3000 / times.BLOCKS
    at = shuffled["at"].cast(pa.string()).to_numpy(zero_copy_only=False)
    reward, p = shuffled["reward"].to_numpy(), shuffled["propensity"].to_numpy()
    for block in blocks:
        inside = (at >= block["start"]) & (at <= block["end"])
        assert inside.sum() == block["rows"]
        assert block["reward"] == pytest.approx(reward[inside].mean(), rel=1e-12)
        assert block["mean_inverse"] == pytest.approx((1 / p[inside]).mean(), rel=1e-12)
        assert block["smallest_propensity"] == p[inside].min()
        assert block["bad_share"] == 0
        rest = reward[~inside].mean()
        stderr = np.sqrt(reward.var() * (1 / inside.sum() + 1 / (~inside).sum()))
        assert block["reward_z"] == pytest.approx((reward[inside].mean() - rest) / stderr, rel=1e-9)
    assert audit["time_order"].level == "look"
    at = shuffled["at"].cast(pa.int64()).to_numpy()
    assert audit["time_order"].value == (np.diff(at) < 0).sum()


KINDS = {
    "timestamp": lambda t: t["at"],
    "date": lambda t: pa.array(np.arange(t.num_rows) // 30, pa.int32()).cast(pa.date32()),
    "date64": lambda t: pa.array(np.arange(t.num_rows) // 30, pa.int32()).cast(pa.date32()).cast(pa.date64()),
    "integer": lambda t: pa.array(np.arange(t.num_rows) - 1000),
    "small": lambda t: pa.array(np.arange(t.num_rows) // 100, pa.uint8()),
    "float": lambda t: pa.array(1.7e9 + np.arange(t.num_rows) * 0.25),
    "fraction": lambda t: pa.array((np.arange(t.num_rows) / t.num_rows).astype(np.float32)),
    "zero": lambda t: pa.array(np.zeros(t.num_rows)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_times_of_all_kinds(table, kind):
    column = KINDS[kind](table)
    audit = drs.Log(table.append_column("when", column)).audit(time="when")
    assert audit.blocks.num_rows == (1 if kind == "zero" else times.BLOCKS)
    assert sum(audit.blocks["rows"].to_pylist()) == 3000
    assert audit["time_order"].value == (1 if kind == "timestamp" else 0)
    first = pc.min(column).as_py()
    if kind in ("integer", "small", "fraction", "float", "zero"):
        assert audit.blocks["start"][0].as_py() == pytest.approx(first)
    else:
        assert audit.blocks["start"][0].as_py()[:10] == str(first)[:10]
    json.loads(audit.to_json())


def test_missing_times_and_ids(table):
    ids = table["id"].to_pylist()
    ids[5] = None
    broken = replaced(table, "id", ids).append_column("when", pa.array([None, math.nan] + [1.0, 2.0] * 1499))
    audit = drs.Log(broken).audit(event_id="id", time="when")
    assert audit["time_order"].level == "look"
    assert audit["time_order"].value == 2
    assert audit.blocks["rows"].to_pylist() == [1499, 1499]
    assert audit["duplicate_event_ids"].level == "look"
    assert "1 row has no event id" in audit["duplicate_event_ids"].message


@not_plain
def test_the_same_bits_for_any_batch_size_threads_and_executor(tmp_path):
    """Bad rows, text labels, a filter and a split included."""
    table = dated(world(kinds=40, n_actions=6).table(40_000, seed=2))
    names = pa.array(["e", "b", "c", "a", "f", "d"])
    table = replaced(table, "action", names.take(table["action"].combine_chunks()).to_pylist())
    p = table["propensity"].to_numpy().copy()
    p[[17, 30_000]] = 0.0, 2.0
    table = replaced(table, "propensity", p)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=9000)

    def run(threads=1, executor=None, **options):
        log = cut_log(tmp_path / "log.parquet", filter=pc.field("x0") > -1, **options).split(0.8)[0]
        return log.audit(event_id="id", time="at", threads=threads, executor=executor).to_json()

    first = run()
    assert json.loads(first)["bad"]
    for options in ({"batch_size": 1000}, {"batch_size": 77}, {"threads": 4}, {"threads": 2, "batch_size": 5000}):
        assert run(**options) == first
    with ThreadPoolExecutor(3) as pool:
        assert run(executor=pool) == first
    with ProcessPoolExecutor(2) as pool:
        assert run(executor=pool) == first


def test_bad_values_are_counted_with_the_first_place(table, tmp_path):
    p, r = table["propensity"].to_numpy().copy(), table["reward"].to_pylist()
    x = table["x1"].to_numpy().copy()
    p[[1500, 2500]] = 1.5, math.nan
    r[7] = None
    x[[7, 8]] = np.inf
    broken = replaced(replaced(replaced(table, "propensity", p), "reward", r), "x1", x)
    pq.write_table(broken, tmp_path / "log.parquet", row_group_size=1000)
    log = drs.Log(tmp_path / "log.parquet")
    audit = log.audit()
    name = str(tmp_path / "log.parquet")
    assert audit.bad["propensity is not in (0, 1]"] == {
        "count": 2,
        "file": name,
        "row_group": 1,
        "row": 1500,
        "value": 1.5,
    }
    assert audit.bad["reward is null"] == {"count": 1, "file": name, "row_group": 0, "row": 7, "value": None}
    assert {reason: bad["count"] for reason, bad in audit.bad.items()} == {
        "reward is null": 1,
        "propensity is not in (0, 1]": 2,
        "context is not finite": 1,
    }
    policy = drs.policies.Softmax(np.zeros((4, 3)))
    skipped = drs.evaluate(log, policy, estimators="ips", on_bad_row="skip").skipped
    assert skipped == {reason: bad["count"] for reason, bad in audit.bad.items()}
    assert audit["bad_values"].level == "look"
    assert "first 1.5 at row 1500 (row 500 of row group 1 of" in audit["bad_values"].message
    good = broken.filter(pa.array(~np.isin(np.arange(3000), [7, 8, 1500, 2500])))
    expected = drs.Log(good).audit().actions.to_pylist()
    assert audit.actions.to_pylist() == [pytest.approx(row, rel=1e-9) for row in expected]


def test_many_bad_values_stop_and_none_is_left(table):
    p = table["propensity"].to_numpy().copy()
    p[:100] = 0
    assert drs.Log(replaced(table, "propensity", p)).audit()["bad_values"].level == "stop"
    audit = drs.Log(replaced(table, "propensity", np.zeros(3000))).audit(time="at", event_id="id")
    assert [f.check for f in audit.findings if f.level != "ok"] == ["bad_values", "time_order"]
    assert audit["bad_values"].value == 1
    assert audit.actions["count"].to_pylist() == [0] * 4
    assert "null" in audit.to_json()
    json.loads(audit.to_json())


def test_actions_that_are_no_label(table):
    audit = drs.Log(replaced(table, "action", table["action"].to_numpy() - 1)).audit()
    assert list(audit.bad) == ["action is not among the labels"]
    assert audit.bad["action is not among the labels"]["value"] == -1


@pytest.mark.parametrize("layout", ["list", "sparse", "none"])
def test_other_contexts(layout):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((2000, 3)) * (rng.random((2000, 3)) < 0.7)
    action = (X[:, 0] + rng.logistic(size=2000) > 0).astype(int)
    p = 1 / (1 + np.exp(-X[:, 0] * (2 * action - 1)))
    log = log_of(X, action, rng.random(2000), p, sparse=layout == "sparse")
    if layout == "none":
        log = drs.Log(pa.table({"action": action, "reward": rng.random(2000), "propensity": p}))
    audit = log.audit()
    assert audit.level == "ok", audit
    twice = log_of(np.vstack([X, X]), np.tile(action, 2), np.tile(np.arange(2000), 2), np.tile(p, 2))
    assert twice.audit()["duplicate_rows"].level == "stop"
    assert twice.audit()["duplicate_rows"].value >= 1990


def test_without_propensities(table):
    audit = drs.Log(table, propensity=None).audit(time="at")
    assert audit["no_propensities"].level == "look"
    assert audit.level == "look"
    assert audit.actions["count"].to_pylist() == np.bincount(table["action"].to_numpy()).tolist()
    assert "inverse_propensity" not in {finding.check for finding in audit.findings}
    assert all(math.isnan(z) for z in audit.blocks["mean_inverse_z"].to_pylist())
    json.loads(audit.to_json())


def test_tiny_propensities_give_no_warning_and_no_nan_in_json(table):
    p = table["propensity"].to_numpy().copy()
    p[[3, 4]] = 5e-324, 1e-200
    audit = drs.Log(replaced(table, "propensity", p)).audit(time="at")
    assert audit["smallest_propensity"].level == "look"
    json.loads(audit.to_json())


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows(table, rows):
    audit = drs.Log(table.slice(0, rows), actions=4).audit(event_id="id", time="at")
    assert {f.check for f in audit.findings if f.level != "ok"} <= {"unlogged_actions"}
    json.loads(audit.to_json())


def test_one_shot_streams(table):
    reader = table.to_reader(max_chunksize=100)
    assert drs.Log(reader).audit(time="at").to_dict()["actions"] == drs.Log(table).audit(time="at").to_dict()["actions"]


def test_the_result(table):
    audit = drs.Log(table).audit(event_id="id", time="at")
    assert audit.level == "look"
    lines = repr(audit).splitlines()
    assert lines[0] == "Audit of table: look; 3,000 rows, 4 actions"
    assert lines[1].startswith("  look  1 row is earlier")
    assert lines[2].startswith("  ok    bad_values, ")
    assert audit.ordered()[0].check == "time_order"
    assert all(finding.policy is None for finding in audit.findings)
    assert len({finding.check for finding in audit.findings}) == len(audit.findings)
    with pytest.raises(KeyError, match="no check 'rounded' was made: there are bad_values, "):
        audit["rounded"]
    found = json.loads(audit.to_json())
    assert list(found) == ["schema", "log", "rows", "level", "findings", "bad", "actions", "blocks", "provenance"]
    assert pickle.loads(pickle.dumps(audit)).to_json() == audit.to_json()


# Copies


def counted(hashes, most, cuts=()):
    """Hashes added in pieces and merged."""
    total = copies.Copies(most)
    for piece in np.split(hashes, cuts):
        one = copies.Copies(most)
        for half in np.array_split(piece, 2):
            one.add(half, half, np.zeros(len(half)))
        total.merge(one)
    total.settle()
    return total


def test_copies_are_counted_exactly_up_to_the_limit_and_in_a_sample_beyond(monkeypatch):
    monkeypatch.setattr(copies, "PENDING", 64)
    rng = np.random.default_rng(0)
    different = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    hashes = np.concatenate([different, different[:1000]])
    exact = counted(hashes, 3000)
    assert (exact.bits, len(exact.hashes), int((exact.counts - 1).sum())) == (0, 3000, 1000)
    sampled = counted(hashes, 1000)
    assert sampled.bits == 2
    kept = np.unique(different[different < 2**62])
    assert (sampled.hashes == kept).all()
    for cuts in ([1], [1000, 1001, 3500], list(range(0, 4000, 300))):
        for most in (3000, 1000):
            for order in (hashes, hashes[::-1]):
                other, ref = counted(order, most, cuts), counted(hashes, most)
                assert other.bits == ref.bits
                assert (other.hashes == ref.hashes).all()
                assert (other.counts == ref.counts).all()


def test_a_sample_says_so(table, monkeypatch):
    from drstream.auditing import tally

    monkeypatch.setattr(tally, "IDS_KEPT", 500)
    monkeypatch.setattr(tally, "ROWS_KEPT", 500)
    audit = drs.Log(table).audit(event_id="id")
    assert "in a sample of 1 in 8 ids" in audit["duplicate_event_ids"].message
    assert "in a sample of 1 in 8 contexts" in audit["duplicate_rows"].message
    twice = pa.concat_tables([table, table])
    assert drs.Log(twice).audit(event_id="id")["duplicate_event_ids"].level == "stop"
    assert drs.Log(twice).audit()["duplicate_rows"].level == "stop"


def test_distinct_propensities_beyond_the_limit(table, monkeypatch):
    from drstream.auditing import propensities, tally

    monkeypatch.setattr(tally, "DISTINCT", 1000)
    monkeypatch.setattr(propensities, "DISTINCT", 1000)
    assert "more than 1,000" in drs.Log(table).audit()["distinct_propensities"].message


def test_spans_merge_in_any_parts():
    """Blocks do not depend on the parts but for the last bits of sums."""
    rng = np.random.default_rng(3)
    at = np.sort(rng.integers(0, 10**12, 20_000))
    sums = np.ones((len(times.SUMS), len(at)))

    def blocks(cuts):
        total = times.Times()
        for piece in np.split(np.arange(len(at)), cuts):
            one = times.Times()
            one.add(at[piece], np.zeros(len(piece), bool), sums[:, piece], np.ones(len(piece)))
            total.merge(one)
        assert total.backwards == 0
        assert len(total.spans) <= times.SPANS
        return [(start, end, n[0]) for start, end, _, n in total.blocks()]

    whole = blocks([])
    assert len(whole) == times.BLOCKS
    for cuts in ([0], [5, 6, 7], [10_000], list(range(0, 20_000, 500))):
        assert blocks(cuts) == whole
