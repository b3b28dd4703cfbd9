"""log.describe(): counts, means and the smallest propensity, against NumPy; bad rows are counted."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from tests.helpers.cut import cut_log

rows = st.lists(
    st.tuples(
        st.sampled_from([3, 7, 2**40, None]),
        st.one_of(st.none(), st.sampled_from([0.0, 1.0, float("nan")]), st.floats(-5, 5)),
        st.one_of(st.sampled_from([1.0, 0.0, 2.0, None]), st.floats(0.01, 1)),
    ),
    min_size=1,
    max_size=40,
)


def usable(action, reward, p):
    return None not in (action, reward, p) and np.isfinite(reward) and 0 < p <= 1


@settings(deadline=None, max_examples=50)
@given(rows)
def test_against_numpy(events):
    action, reward, p = (list(column) for column in zip(*events, strict=True))
    kinds = {"action": pa.int64(), "reward": pa.float64(), "propensity": pa.float64()}
    table = pa.table({n: pa.array(c, k) for (n, k), c in zip(kinds.items(), (action, reward, p), strict=True)})
    good = [event for event in events if usable(*event)]
    labels = sorted({a for a in action if a is not None})
    if not labels:
        return
    found = drs.Log(table).describe()
    assert found["labels"] == labels
    assert found["counts"] == [sum(a == label for a, _, _ in good) for label in labels]
    assert sum(found["bad_rows"].values()) == len(events) - len(good)
    assert found["rows"] == len(events)
    if good:
        assert found["reward_mean"] == pytest.approx(np.mean([r for _, r, _ in good]), abs=1e-12)
        assert found["smallest_propensity"] == min(p for _, _, p in good)
        assert found["reward_range"] == (min(r for _, r, _ in good), max(r for _, r, _ in good))
    else:
        assert json.loads(found.to_json())["reward_mean"] is None
    assert found.actions["count"].to_pylist() == found["counts"]


def test_same_bits_for_any_threads_and_batches(tmp_path):
    rng = np.random.default_rng(0)
    n = 5_000
    table = pa.table(
        {"action": rng.integers(0, 40, n) * 3, "reward": rng.random(n), "propensity": rng.random(n) + 1e-9}
    )
    table = table.append_column("site", pa.array(["a"] * n))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=900)
    first = drs.Log(tmp_path / "log.parquet").describe(threads=1)
    for threads, size in ((2, None), (3, 17)):
        found = cut_log(tmp_path / "log.parquet", batch_size=size).describe(threads=threads)
        assert found.to_dict() == first.to_dict()
    assert "and 20 more actions, with fewer rows" in repr(first)
    assert "unused      site" in repr(first)


def test_a_stream_is_left_for_later():
    table = pa.table({"action": [1, 2] * 5, "reward": [1.0] * 10, "propensity": [0.5] * 10, "x": [0.5] * 10})
    log = drs.Log(table.to_reader(), propensity="uniform")
    assert log.describe()["counts"] == [5, 5]
    assert drs.evaluate(log, drs.policies.Uniform(), estimators="ips").n == 10
    assert drs.Log(table, filter="x > 0", context=[]).describe()["unused"] == []
