"""Batches in the order of their folds: all that belongs to an event moves with it, and blocks have one fold each."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.log.rows import Blocks

ROWS = 701  # odd, so that columns of four bytes are no whole words


def table():
    rng = np.random.default_rng(0)
    numbers = np.arange(ROWS, dtype=float)
    return pa.table(
        {
            "action": np.arange(ROWS) % 3,
            "reward": numbers,
            "more": -numbers,
            "propensity": (1 + numbers) / (ROWS + 1),
            "rate": 1 / (1 + numbers),
            "single": numbers.astype(np.float32),
            "double": 2 * numbers,
            "list": pa.FixedSizeListArray.from_arrays(np.repeat(numbers, 4), 4),
            "indices": [rng.permutation(9)[: i % 5].astype(np.int32) for i in range(ROWS)],
            "user": np.arange(ROWS) // 2,
            "name": [f"row {i}" for i in range(ROWS)],
            "all": [np.full(3, 1 / 3) for _ in range(ROWS)],
        }
    )


CONTEXTS = {"columns": ["single", "double", "single"], "lists": "list", "sparse": drs.Sparse("indices", dim=9)}


def first_batch(context, folds, rows=ROWS):
    given = table().slice(0, rows)
    if context == "columns":
        given = given.append_column("third", given["single"])
    contexts = ["single", "double", "third"] if context == "columns" else CONTEXTS[context]
    log = drs.Log(given, context=contexts, reward=["reward", "more"], propensity="propensity", sample_rate="rate")
    reader = log.reader(
        context=True, action=True, columns=["name", "user"], folds=folds or log.folds(5), cluster="user"
    )
    return next(reader.batches(next(log.parts(reader.columns)), Counter()))


@pytest.mark.parametrize("context", CONTEXTS)
def test_everything_moves_with_its_event(context):
    batch = first_batch(context, None)
    batch.propensities = np.outer(batch.reward, np.ones(3))
    batch.scratch[0] = np.empty(7)
    ordered = batch.by_fold()
    assert len(ordered) == ROWS
    assert len(ordered.scratch) == 0
    places = np.argsort(batch.fold, kind="stable")
    assert ordered.rows.tolist() == places.tolist()
    for name in ("action", "reward", "propensity", "fold", "keys", "row_weight", "propensities"):
        np.testing.assert_array_equal(getattr(ordered, name), getattr(batch, name)[places], err_msg=name)
    np.testing.assert_array_equal(ordered.more_rewards["more"], batch.more_rewards["more"][places])
    assert ordered.columns == batch.columns.take(pa.array(places))
    found, given = (b.matrix for b in (ordered, batch))
    if context != "sparse":
        assert not found.flags.writeable
    else:
        found, given = found.toarray(), given.toarray()
    np.testing.assert_array_equal(found, given[places])
    assert ordered.where(5) == batch.where(int(places[5]))
    if context == "columns":
        assert [column.dtype for column in ordered.context] == [np.float32, np.float64, np.float32]


@pytest.mark.parametrize("rows", [1, 50, 100_000])
def test_blocks_have_one_fold(rows):
    batch = first_batch("lists", None).by_fold()
    blocks = list(batch.blocks(rows))
    assert [blocks[0].start, *(block.stop for block in blocks)] == [*(block.start for block in blocks), ROWS]
    assert all(len(set(block.fold.tolist())) == 1 and 0 < len(block) <= rows for block in blocks)
    assert all((np.diff(block.numbers) > 0).all() for block in blocks)


def test_a_fold_without_events():
    batch = first_batch("lists", None, rows=4).by_fold()
    assert sum(len(block) for block in batch.blocks(100)) == 4


def test_events_in_the_order_of_their_folds_are_not_copied():
    batch = first_batch("columns", Blocks(100, ROWS))
    ordered = batch.by_fold()
    assert ordered.reward is batch.reward
    assert [(block.start, block.stop) for block in ordered.blocks(200)][:3] == [(0, 100), (100, 150), (150, 225)]
    assert [(block.start, block.stop) for block in batch.blocks(200)][:2] == [(0, 200), (200, 400)]


def test_rows_that_are_only_counted_are_numbered():
    log = drs.Log(table(), context="list", propensity="propensity")
    reader = log.reader(context=True)
    batch = next(reader.batches(next(log.parts(reader.columns)), Counter()))
    assert batch.rows == range(ROWS)
    assert not len(batch.action)
    taken = batch.take(np.array([3, 1]))
    assert (taken.rows.tolist(), taken.reward.tolist(), len(taken.action)) == ([3, 1], [3, 1], 0)
