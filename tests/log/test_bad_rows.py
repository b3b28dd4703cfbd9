"""Rows that cannot be used, for several reasons at once: which one is named, and what is counted."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drstream as drs
from drstream.log.ragged import repeats

NAN = float("nan")


def table(**changes):
    columns = {"x0": [1.0, 2.0, 3.0, 4.0, 5.0], "action": [0, 1, 0, 1, 0], "reward": [1.0] * 5, "propensity": [0.5] * 5}
    return pa.table({**columns, **changes})


def read(log):
    reader, skipped = log.reader(context=True, action=True), Counter()
    return [b for part in log.parts(reader.columns) for b in reader.batches(part, skipped)], skipped


def test_the_first_bad_row_is_named_whichever_check_it_fails():
    """Rewards are looked at first, contexts last."""
    found = table(x0=[1.0, NAN, 3.0, 4.0, 5.0], propensity=[0.5, 0.5, 2.0, 0.5, 0.5], reward=[1.0, 1.0, 1.0, None, 1.0])
    with pytest.raises(drs.LogError, match="context is not finite: got nan at row 1, column 'x0'"):
        read(drs.Log(found))
    with pytest.raises(drs.LogError, match=r"propensity is not in \(0, 1\]: got 2.0 at row 0, column 'propensity'"):
        read(drs.Log(found.slice(2)))


def test_a_row_is_counted_once_by_the_first_check_that_it_fails():
    found = table(
        x0=[1.0, NAN, NAN, 4.0, None], reward=[1.0, None, 1.0, NAN, 1.0], propensity=[0.5, 7.0, 0.5, 7.0, 7.0]
    )
    log = drs.Log(found, on_bad_row="skip")
    (batch,), skipped = read(log)
    wanted = {
        "reward is null": 1,
        "reward is not finite": 1,
        "propensity is not in (0, 1]": 1,
        "context is not finite": 1,
    }
    assert skipped == wanted
    assert batch.numbers.tolist() == [0]
    bad = drs.Log(found).audit().bad
    assert {reason: one["count"] for reason, one in bad.items()} == wanted
    assert [bad[reason]["row"] for reason in wanted] == [1, 3, 4, 2]


def test_where_no_row_is_good_there_is_no_batch():
    batches, skipped = read(drs.Log(table(reward=pa.nulls(5, pa.float64())), actions=2, on_bad_row="skip"))
    assert (batches, skipped) == ([], {"reward is null": 5})


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=6))
def test_repeats_are_items_that_were_there_before(lists):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    flat = np.array([item for one in lists for item in one], np.int64)
    assert repeats(starts, flat).tolist() == [x in one[:i] for one in lists for i, x in enumerate(one)]
