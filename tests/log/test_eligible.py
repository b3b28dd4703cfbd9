"""Eligible sets in a log: which labels there are, what a batch and a block hold, and what is bad."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log
from tests.helpers.eligible import lists_of, random_mask

pytestmark = pytest.mark.covers

ROWS, ACTIONS = 150, 5
WORDS = ["b", "a", "e", "c", "d"]
KINDS = {
    "integers": (list(range(ACTIONS)), pa.int64(), pa.list_(pa.int64())),
    "small integers": (list(range(ACTIONS)), pa.int16(), pa.list_(pa.int32())),
    "other integers": ([7, -3, 2**40, 11, 5], pa.int64(), pa.large_list(pa.int64())),
    "strings": (WORDS, pa.string(), pa.list_(pa.string())),
    "large strings": (WORDS, pa.large_string(), pa.large_list(pa.large_string())),
    "dictionaries": (WORDS, pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "both": (WORDS, pa.string(), pa.list_(pa.dictionary(pa.int32(), pa.string()))),
}


def made(kind="integers", seed=0, rows=ROWS, share=0.5):
    """A table, its mask and the logged actions, by place in `labels`."""
    labels, of_action, of_set = KINDS[kind]
    rng = np.random.default_rng(seed)
    mask = random_mask(rng, rows, ACTIONS, share)
    action = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
    table = pa.table(
        {
            "action": pa.array([labels[a] for a in action], of_action),
            "reward": rng.random(rows),
            "propensity": 1 / mask.sum(axis=1),
            "items": lists_of(mask, labels, rng, of_set),
            "x0": rng.normal(size=rows),
        }
    )
    return table, mask, action


def everything(log, **options):
    """The mask and the actions of a log's events, in the order of its labels, and the propensities."""
    reader = log.reader(action=True, **options)
    from collections import Counter

    skipped = Counter()
    batches = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, skipped)]
    mask = np.concatenate([batch.eligible.mask() for batch in batches])
    return mask, np.concatenate([b.action for b in batches]), np.concatenate([b.propensity for b in batches]), skipped


def places(log, labels):
    """The places of a log's labels in other ones."""
    return [labels.index(label) for label in log.labels]


@meeting(1, kind=KINDS, stored=["table", "parquet", "chunks", "polars", "ipc", "stream"])
def test_sets_are_read_from_all_sources(kind, stored, tmp_path):
    table, mask, action = made(kind)
    labels = KINDS[kind][0]
    given = {"actions": labels} if kind == "other integers" else {}
    source = table
    if stored == "parquet":
        source = str(tmp_path / "log.parquet")
        pq.write_table(table, source, row_group_size=40)
    elif stored == "chunks":
        source = pa.concat_tables([table.slice(0, 17), table.slice(17, 60), table.slice(77)])
    elif stored == "polars":
        source = pytest.importorskip("polars").from_arrow(table)
    elif stored == "stream":
        source = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=29))
    elif stored == "ipc":
        source = str(tmp_path / "log.arrow")
        with pa.ipc.new_file(source, table.schema) as file:
            file.write_table(table, max_chunksize=33)
    log = cut_log(source, eligible="items", batch_size=25 if stored == "parquet" else None, **given)
    assert list(log.labels) == (labels if given else sorted(labels))
    found, logged, _, _ = everything(log)
    order = places(log, labels)
    assert np.array_equal(found, mask[:, order])
    assert [order[a] for a in logged] == action.tolist()


def test_an_action_that_was_eligible_but_never_logged_is_an_action(tmp_path):
    table, _, _ = made()
    rare = table.set_column(3, "items", pa.array([[*row, 9] for row in table["items"].to_pylist()]))
    path = str(tmp_path / "log.parquet")
    pq.write_table(rare, path, row_group_size=40)
    for source in (rare, path):
        assert list(drs.Log(source, eligible="items").labels) == [0, 1, 2, 3, 4, 9]
        assert list(drs.Log(source).labels) == [0, 1, 2, 3, 4]
    words = pa.table({"action": ["a", "b"], "reward": [1.0, 0.0], "items": [["a", "z"], ["b", "a"]]})
    assert list(drs.Log(words, propensity="uniform", eligible="items").labels) == ["a", "b", "z"]


def test_parts_whose_statistics_show_no_new_label_are_not_read(tmp_path):
    table, _, _ = made(rows=400)
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=100)
    log = drs.Log(str(path), eligible="items")
    assert log.source.ranges("items") == dict.fromkeys((0, 100, 200, 300), (0, 4))
    pq.write_table(table, path, row_group_size=100, write_statistics=False)
    assert drs.Log(str(path), eligible="items").source.ranges("items") == {}
    assert list(drs.Log(str(path), eligible="items").labels) == list(range(ACTIONS))


def test_a_column_whose_name_goes_on_after_a_dot(tmp_path):
    table, mask, _ = made("strings")
    path = tmp_path / "log.parquet"
    pq.write_table(table.append_column("items.more", table["items"]).append_column("items.x", table["x0"]), path)
    log = drs.Log(str(path), eligible="items", actions=WORDS)
    assert np.array_equal(everything(log)[0], mask)


def test_uniform_propensities_are_those_of_the_set():
    table, mask, _ = made()
    log = drs.Log(table, propensity="uniform", eligible="items")
    assert everything(log)[2].tolist() == (1 / mask.sum(axis=1)).tolist()
    assert log.constant_propensity is None
    reader = log.reader()
    (batch,) = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, None or {})]
    assert batch.propensity.tolist() == (1 / mask.sum(axis=1)).tolist()
    assert "propensity  1 / the size of the eligible set: uniform" in repr(log)
    assert list(log.with_actions_of(drs.policies.Uniform(8)).labels) == list(
        range(8)
    )  # propensities do not depend on the number


def test_blocks_and_copies_have_the_sets_of_their_events():
    table, mask, _ = made()
    log = drs.Log(table, eligible="items")
    reader = log.reader(action=True)
    (batch,) = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, {})]
    events = np.array([140, 3, 77, 3])
    copies = [(batch, mask), (batch.take(events), mask[events]), (pickle.loads(pickle.dumps(batch)), mask)]
    for found, wanted in copies:
        blocks = list(found.blocks(40))
        assert np.array_equal(np.concatenate([block.eligible_mask for block in blocks]), wanted)
        for block in blocks:
            bits = block.eligible_bits
            assert bits.shape == (1, len(block))
            assert np.array_equal(
                bits[0][:, None] >> np.arange(ACTIONS, dtype=np.uint32) & np.uint32(1) == 1, block.eligible_mask
            )
            assert block.eligible.sizes.tolist() == block.eligible_mask.sum(axis=1).tolist()
    with pytest.raises(ValueError, match="read-only"):
        blocks[0].eligible_mask[0, 0] = True


def test_a_log_without_sets_has_none():
    log = drs.Log(made()[0])
    reader = log.reader(action=True)
    (batch,) = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, {})]
    block = next(batch.blocks(10))
    assert (block.eligible, block.eligible_mask, block.eligible_bits) == (None, None, None)


def test_sets_of_parts_of_a_log(tmp_path):
    table, mask, _ = made(rows=300)
    log = drs.Log(table, eligible="items", filter="x0 > 0")
    kept = table["x0"].to_numpy() > 0
    assert np.array_equal(everything(log)[0], mask[kept])
    parts = log.split(0.5)
    assert sum(len(everything(part)[0]) for part in parts) == kept.sum()


def test_repr_and_the_columns_that_are_left():
    table, _, _ = made()
    log = drs.Log(table, context="*", eligible="items")
    assert "  eligible    items: the actions that an event could choose from" in repr(log)
    assert log.roles.context == ("x0",)
    assert log.to_arrow()["items"].to_pylist() == table["items"].to_pylist()


def test_rows_come_out_as_they_were(tmp_path):
    table, _, _ = made("strings")
    path = str(tmp_path / "log.parquet")
    pq.write_table(table, path, row_group_size=50)
    assert drs.Log(path, eligible="items").to_arrow().equals(table)  # read as dictionaries, written as text


BAD = {
    "null": (None, "eligible set is null", "eligible set is null at row 3, column 'items'"),
    "empty": ([], "eligible set is empty", r"eligible set is empty: got \[\], where 'action' holds 1, at row 3"),
    "null item": ([1, None], "eligible set holds a null", r"holds a null: got \[1, None\].* at row 3"),
    "unknown": (
        [1, 99],
        "eligible set holds an action that is not among the labels",
        r"not among the labels: got \[1, 99\].* at row 3, column 'items'",
    ),
    "negative": (
        [1, -1],
        "eligible set holds an action that is not among the labels",
        r"not among the labels: got \[1, -1\].* at row 3",
    ),
    "twice": (
        [1, 0, 1, 2, 3, 4, 4],
        "eligible set holds an action twice",
        r"an action twice: got \[1, 0, 1, 2, 3, 4, 4\].* at row 3",
    ),
    "without the action": (
        [0, 2],
        "action is not in its eligible set",
        r"action is not in its eligible set: got \[0, 2\], where 'action' holds 1, at row 3, column 'items'",
    ),
}


def bad_table(value):
    table, mask, _ = made(share=1.0)
    lists, action = table["items"].to_pylist(), table["action"].to_pylist()
    lists[3], action[3] = value, 1
    return table.set_column(0, "action", pa.array(action)).set_column(3, "items", pa.array(lists)), mask


@pytest.mark.parametrize("case", BAD)
def test_a_bad_set_is_an_error_with_its_place_and_value(case):
    value, _, message = BAD[case]
    with pytest.raises(LogError, match=message):
        everything(drs.Log(bad_table(value)[0], eligible="items", actions=ACTIONS))


@pytest.mark.parametrize("case", BAD)
def test_bad_sets_are_skipped_and_counted(case, tmp_path):
    value, reason, _ = BAD[case]
    table, mask = bad_table(value)
    path = str(tmp_path / "log.parquet")
    pq.write_table(table, path, row_group_size=40)
    for source in (table, path):
        log = drs.Log(source, eligible="items", actions=ACTIONS, on_bad_row="skip")
        found, _, _, skipped = everything(log)
        assert np.array_equal(found, np.delete(mask, 3, axis=0))
        assert dict(skipped) == {reason: 1}


def test_bad_sets_of_a_fixed_size_are_skipped():
    lists = pa.array([[0, 1], None, [1, 1], [1, 0]], pa.list_(pa.int64(), 2))
    table = pa.table({"action": [0, 1, 1, 1], "reward": [1.0] * 4, "propensity": [0.5] * 4, "items": lists})
    _, action, _, skipped = everything(drs.Log(table, eligible="items", on_bad_row="skip"))
    assert action.tolist() == [0, 1]
    assert dict(skipped) == {"eligible set is null": 1, "eligible set holds an action twice": 1}


def test_propensities_of_all_actions_keep_to_the_sets():
    lists = [[0, 1], [1], [2, 0]]
    mu = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    table = pa.table({"action": [0, 1, 2], "reward": [1.0] * 3, "propensity": [0.5] * 3, "items": lists, "mu": mu})
    message = r"do not sum to 1 over the eligible set: got \[0.5, 0.5, 0.0\] at row 1, column 'mu'"
    with pytest.raises(LogError, match=message):
        everything(drs.Log(table, eligible="items", propensities="mu"), propensities=True)
    _, action, _, skipped = everything(
        drs.Log(table, eligible="items", propensities="mu", on_bad_row="skip"), propensities=True
    )
    assert action.tolist() == [0]
    assert dict(skipped) == {"propensities do not sum to 1 over the eligible set": 2}


def test_a_bad_set_in_parquet_names_file_and_row_group(tmp_path):
    table, _ = bad_table([0, 2])
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.concat_tables([table.slice(100), table.slice(0, 100)]), path, row_group_size=50)
    with pytest.raises(LogError, match=r"at row 53 \(row 3 of row group 1 of .*log.parquet\), column 'items'"):
        everything(drs.Log(path, eligible="items"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eligible": "itens"}, "the log has no column 'itens' for the eligible sets: .*items"),
        ({"eligible": "x0"}, "eligible column 'x0' has type double: it must hold lists of the actions"),
        ({"eligible": "words"}, "both must hold the same labels"),
        ({"eligible": "numbers"}, "both must hold the same labels"),
        ({"eligible": "items", "action": None}, "eligible sets are sets of actions, .* Name the column of actions"),
        ({"eligible": "items", "context": ["items"]}, "column 'items' is the eligible sets: it cannot have another"),
        ({"eligible": "action"}, "column 'action' is the eligible sets: it cannot have another role"),
    ],
)
def test_a_column_that_cannot_hold_sets(options, message):
    table, _, _ = made(rows=3)
    table = table.append_column("words", pa.array([["a"], ["b"], ["c"]])).append_column(
        "numbers", pa.array([[0.5]] * 3)
    )
    with pytest.raises(LogError, match=message):
        drs.Log(table, **options)


def test_a_mask_is_no_list_of_labels():
    table = pa.table({"action": [0, 1], "reward": [0.0, 1.0], "mask": [[True, False], [True, True]]})
    with pytest.raises(drs.LogError, match=r"a mask: it must hold lists of the actions .* e\.g\. \[2, 5\]"):
        drs.Log(table, eligible="mask", propensity=0.5, context=[])
    table = table.set_column(0, "action", pa.array([True, False]))
    assert drs.Log(table, eligible="mask", propensity=0.5, context=[]).n_actions == 2  # labels are booleans
