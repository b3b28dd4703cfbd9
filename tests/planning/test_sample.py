"""Samples of a log: which rows they have, and that they are read as in the whole log."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import drstream as drs
from drstream.planning.sample import RUNS, choose_runs, take_sample
from tests.helpers.logs import world


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ([1000], 20),
        ([1000], 7),
        ([50] * 200, 200),
        ([10, 0, 3000, 70], 61),
        ([1], 1),
        ([5, 5], 1),
        ([131_072, 5], 9_999),
    ],
)
def test_runs_have_the_rows_that_were_asked_for(sizes, rows):
    found = choose_runs(sizes, rows)
    assert len(found) == len(sizes)
    taken = []
    for part, (size, runs) in enumerate(zip(sizes, found, strict=True)):
        for first, count in runs:
            assert 0 <= first < first + count <= size
            taken += [(part, row) for row in range(first, first + count)]
    assert len(taken) == len(set(taken)) == rows


def test_runs_are_spread_over_the_log():
    """No tenth of the log has more than twice its share, whether it is one part or many."""
    for sizes in ([100_000], [1000] * 100):
        starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = [
            s + i
            for s, runs in zip(starts, choose_runs(sizes, 2000), strict=False)
            for a, n in runs
            for i in range(a, a + n)
        ]
        shares = np.bincount(np.array(rows) // 10_000, minlength=10) / 2000
        assert shares.min() > 0.04
        assert shares.max() < 0.21
    used = [runs for runs in choose_runs([1000] * 10_000, 200_000) if runs]
    assert len(used) == 800  # four times the sample's share of the parts
    assert len(choose_runs([100_000], 2000)[0]) == RUNS


def events_of(log):
    reader = log.reader(context=True, action=True)
    found = {}
    for part in log.parts(reader.columns):
        for batch in reader.batches(part, Counter()):
            for row, action, reward, p, x in zip(
                batch.numbers, batch.action, batch.reward, batch.propensity, batch.matrix, strict=True
            ):
                found[int(row)] = (int(action), float(reward), float(p), *map(float, x))
    return found


@pytest.mark.parametrize("stored", ["table", "parquet"])
def test_events_are_those_of_the_whole_log(tmp_path, stored):
    """Row numbers, filter and split hold, so the sample's events are events of the log, and as many as expected."""
    table = world().table(30_000)
    source = table
    if stored == "parquet":
        source = tmp_path / "log.parquet"
        pa.parquet.write_table(table, source, row_group_size=1700)
    log = drs.Log(source, filter=pc.field("x0") > 0).split(0.6)[0]
    whole, sample = events_of(log), take_sample(log, 0.1)
    some = events_of(sample.log)
    assert sample.rows == sample.log.source_rows == 3000
    assert some.items() <= whole.items()
    assert sample.whole_events(len(some)) == pytest.approx(len(whole), rel=0.1)
    assert sample.log.labels == log.labels


def test_a_sample_of_everything_is_the_log():
    log = drs.Log(world().table(5000)).split(0.5)[0]
    sample = take_sample(log, 1.0)
    assert events_of(sample.log) == events_of(log)


def test_the_default_sample():
    for rows, wanted in ((3000, 3000), (100_000, 10_000), (1_000_000, 20_000)):
        table = pa.table({"action": np.zeros(rows, np.int32), "reward": np.zeros(rows), "propensity": np.ones(rows)})
        assert take_sample(drs.Log(table)).rows == wanted


def test_most_row_groups_are_not_read(tmp_path):
    """Of 100 row groups, a small sample opens 16, each in one place."""
    table = world().table(40_000)
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(table, path, row_group_size=400)
    sample = take_sample(drs.Log(path), 0.02)
    parts = {part.part.index for part in sample.log.parts(["reward"])}
    assert len(parts) == RUNS


def test_labels_that_the_sample_lacks_are_kept():
    action = np.zeros(50_000, np.int32)
    action[25_000] = 7
    table = pa.table({"action": action, "reward": np.ones(50_000), "propensity": np.full(50_000, 0.5)})
    assert take_sample(drs.Log(table), 0.01).log.labels == [0, 7]


@pytest.mark.parametrize("sample", [0, 0.0, -0.1, 1.5, float("nan"), "2%", True])
def test_a_share_that_is_none(sample):
    with pytest.raises(drs.DrstreamError, match=r"the share of the rows must be in \(0, 1\], e.g. 0.02"):
        drs.plan(world().table(100), drs.policies.Uniform(), sample=sample)


def test_streams_empty_logs_and_empty_samples():
    table = world().table(1000)
    uniform = drs.policies.Uniform()
    with pytest.raises(
        drs.LogError, match=r"record batch reader is not known .* Pass a Parquet path, or a pyarrow Table"
    ):
        drs.plan(drs.Log(pa.RecordBatchReader.from_batches(table.schema, table.to_batches())), uniform)
    with pytest.raises(drs.LogError, match="the log is empty"):
        drs.plan(table.slice(0, 0), uniform)
    with pytest.raises(drs.LogError, match="none of the 20 rows of the sample belongs to the log"):
        drs.plan(drs.Log(table, filter=pc.field("x0") > 100), uniform, sample=0.02)
