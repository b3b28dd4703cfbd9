"""Logs of candidates: every form of them gives the same arrays, and everything that can be wrong is named."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.candidate_logs import DZ, FORMS, NAMES, events, items_of, log_of, table_of
from tests.helpers.crossed import meeting
from tests.helpers.cut import cut_log

pytestmark = pytest.mark.covers


def read(log, features=True, **options):
    """All events of a log: sizes, features, positions, ids, propensities."""
    reader = log.reader(context=True, action=True, candidates=features, **options)
    skipped = Counter()
    batches = [batch for part in log.parts(reader.columns) for batch in reader.batches(part, skipped)]
    return batches, skipped


def flat(found):
    order = [i for s in found["sets"] for i in s]
    return found["features"][order], [found["ids"][i] for i in order]


# What is read


@meeting(2, form=FORMS, kind=[np.float32, np.float64], text=[True, False])
def test_every_form_gives_the_same_arrays(form, kind, text):
    found = events(kind=kind, text=text)
    (batch,), _ = read(log_of(found, form))
    offered = batch.candidates
    z, ids = flat(found)
    assert offered.starts.tolist() == np.cumsum([0, *map(len, found["sets"])]).tolist()
    assert offered.features.matrix.dtype == kind
    assert offered.features.matrix.flags.c_contiguous
    assert (offered.features.matrix == z).all()
    assert offered.ids.to_pylist() == ids
    assert batch.action.tolist() == found["position"]


@pytest.mark.parametrize("form", FORMS)
def test_positions_instead_of_ids(form):
    found = events()
    log = log_of(found, form, position=True)
    (batch,), _ = read(log)
    assert batch.action.tolist() == found["position"]
    assert "position of a candidate" in repr(log)


def test_an_action_that_cannot_be_an_id_is_a_position():
    found = events(text=True)
    table, candidates = table_of(found, position=True)
    log = drs.Log(table, candidates=candidates)
    assert "action: the position of a candidate, from 0" in repr(log)
    assert read(log)[0][0].action.tolist() == found["position"]
    without_ids = drs.Log(table, candidates=drs.Candidates(features="z"))
    assert without_ids.candidates.ids_type is None
    (batch,), _ = read(without_ids)
    assert batch.action.tolist() == found["position"]
    assert batch.candidates.ids is None
    assert batch.candidates.shown(0, 1) == "candidate 1"


def test_blocks_and_copies():
    found = events()
    (batch,), _ = read(log_of(found))
    block = batch[7:21]
    z, ids = flat(found)
    first, last = sum(map(len, found["sets"][:7])), sum(map(len, found["sets"][:21]))
    assert (block.candidates.features.matrix == z[first:last]).all()
    assert block.candidates.count == last - first
    assert block.candidates.shown(1, 0) == f"candidate {ids[first + len(found['sets'][7])]!r}"
    order = np.array([3, 0, 9])
    copy = block.take(order)
    sets = [found["sets"][7 + i] for i in order]
    assert (copy.candidates.features.matrix == found["features"][np.concatenate(sets)]).all()
    assert np.diff(copy.candidates.starts).tolist() == list(map(len, sets))
    assert copy.candidates.ids.to_pylist() == [found["ids"][i] for s in sets for i in s]
    assert copy.action.tolist() == [found["position"][7 + i] for i in order]


def test_without_features_only_their_number_is_read():
    found = events()
    log = log_of(found)
    (batch,), _ = read(log, features=False)
    assert batch.candidates.features is None
    assert batch.take(np.array([1, 2])).candidates.features is None
    assert batch.candidates[0:3].features is None
    assert "z" not in log.reader(action=True).columns
    assert len(read(log_of(found, "items"), features=False)[0][0].candidates) == 40


def test_slices_filters_splits_and_streams():
    found = events(rows=60)
    table, candidates = table_of(found)
    whole = drs.Log(table, candidates=candidates)
    expected = dict(enumerate(found["position"]))
    sliced = drs.Log(table.slice(10, 20), candidates=candidates)
    assert read(sliced)[0][0].action.tolist() == found["position"][10:30]
    assert read(sliced)[0][0].candidates.starts[0] == 0
    kept = [i for i, r in enumerate(found["reward"]) if r > 0]
    filtered = drs.Log(table, candidates=candidates, filter="reward > 0")
    assert read(filtered)[0][0].action.tolist() == [expected[i] for i in kept]
    parts = [read(part)[0][0] for part in whole.split(0.5)]
    assert sum(map(len, parts)) == 60
    for part in parts:
        assert part.action.tolist() == [expected[int(i)] for i in part.rows]
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    (batch,), _ = read(drs.Log(stream, candidates=candidates))
    assert batch.action.tolist() == found["position"]


@pytest.mark.parametrize("form", FORMS)
def test_parquet_files(form, tmp_path):
    found = events(rows=60)
    table, candidates = table_of(found, form)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=16)
    batches, _ = read(cut_log(tmp_path / "log.parquet", candidates=candidates, batch_size=5))
    assert [len(batch) for batch in batches] == [16, 16, 16, 12]
    z, _ids = flat(found)
    assert (np.concatenate([batch.candidates.features.matrix for batch in batches]) == z).all()
    assert np.concatenate([batch.action for batch in batches]).tolist() == found["position"]


def test_items_from_anywhere(tmp_path):
    found = events()
    table, _ = table_of(found, "items")
    items = items_of(found)
    pq.write_table(items, tmp_path / "items.parquet")
    z, _ids = flat(found)
    for source in (items, items.to_pandas(), tmp_path / "items.parquet", str(tmp_path / "items.parquet")):
        log = drs.Log(table, candidates=drs.Candidates("items", drs.Items(source)))
        assert log.candidate_features == NAMES
        (batch,), _ = read(log)
        assert (batch.candidates.features.matrix == z).all()
        reader = pickle.loads(pickle.dumps(log.reader(action=True, candidates=True)))
        (again,) = [b for part in log.parts(reader.columns) for b in reader.batches(part, Counter())]
        assert (again.candidates.features.matrix == z).all()


def test_items_with_lists_and_numbers():
    found = events()
    table, _ = table_of(found, "items")
    vectors = pa.table({"item": found["ids"], "v": found["features"][:, :2].tolist(), "w": found["features"][:, 2]})
    log = drs.Log(table, candidates=drs.Candidates("items", drs.Items(vectors, features=["v", "w"])))
    assert log.candidate_features == ["v[0]", "v[1]", "w"]
    assert (read(log)[0][0].candidates.features.matrix == flat(found)[0]).all()
    assert "looked up among 9 items: 3 features each: v[0], v[1], w" in repr(log)
    assert repr(log.roles.candidates.items) == "Items(9 items by 'item', features v[0], v[1], w)"


def test_whole_numbers_and_mixed_types_are_features():
    z = pa.array([[{"a": 1, "b": 0.5}], [{"a": 2, "b": 1.5}, {"a": 3, "b": 2.5}]])
    table = pa.table({"z": z, "action": [0, 1], "reward": [0.0, 1.0]})
    log = drs.Log(table, propensity=None, candidates=drs.Candidates(features="z"))
    assert log.candidate_features == ["z.a", "z.b"]
    assert read(log)[0][0].candidates.features.matrix.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    one = drs.Log(table, propensity=None, candidates=drs.Candidates(features=["z.b"]))
    assert one.candidate_features == ["z.b"]
    assert read(one)[0][0].candidates.features.matrix.tolist() == [[0.5], [1.5], [2.5]]


def test_lists_of_a_fixed_number_of_candidates():
    kind = pa.list_(pa.list_(pa.float32(), 2), 3)
    z = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    table = pa.table({"z": pa.array(z.tolist(), kind), "action": [0, 2, 1, 1], "reward": [0.0, 1.0, 1.0, 0.0]})
    for part, rows in ((table, slice(0, 4)), (table.slice(1, 2), slice(1, 3))):
        log = drs.Log(part, propensity=None, candidates=drs.Candidates(features="z"))
        (batch,), _ = read(log)
        assert (batch.candidates.features.matrix == z[rows].reshape(-1, 2)).all()
        assert batch.candidates.starts.tolist() == (3 * np.arange(len(batch) + 1)).tolist()


def test_uniform_propensities_are_one_over_the_number_of_candidates():
    found = events()
    table, candidates = table_of(found)
    log = drs.Log(table, candidates=candidates, propensity="uniform")
    (batch,), _ = read(log, features=False)
    assert batch.propensity.tolist() == [1 / len(s) for s in found["sets"]]
    assert "1 / the number of candidates" in repr(log)
    assert "items" in log.reader().columns


def test_ids_may_be_dictionaries():
    found = events()
    table, candidates = table_of(found)
    for name, kind in (("action", pa.dictionary(pa.int8(), pa.string())),):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind))
    coded = pa.ListArray.from_arrays(
        table["items"].combine_chunks().offsets, table["items"].combine_chunks().values.dictionary_encode()
    )
    table = table.set_column(table.schema.get_field_index("items"), "items", coded)
    (batch,), _ = read(drs.Log(table, candidates=candidates))
    assert batch.action.tolist() == found["position"]


def test_repr_says_what_was_found():
    assert repr(log_of(events())).splitlines()[1:4] == [
        "  context     2 features: x0, x1",
        "  candidates  items, with 3 features each: z[0], z[1], z[2]",
        "  action      action: the id of a candidate",
    ]
    found = events()
    table, _ = table_of(found)
    assert "  candidates  items, with no features" in repr(drs.Log(table, candidates=drs.Candidates("items")))


def test_columns_of_candidates_are_no_context():
    found = events()
    table, candidates = table_of(found, "columns")
    log = drs.Log(
        table.rename_columns([{"z0": "features"}.get(n, n) for n in table.schema.names]),
        candidates=drs.Candidates("items", ["features", "z1", "z2"]),
    )
    assert log.roles.context == ("x0", "x1")
    with pytest.raises(drs.LogError, match="'z0' is about candidates: it cannot have another role"):
        drs.Log(table, candidates=candidates, context="z0")


# What cannot be opened


def broken(**changes):
    found = events(rows=4)
    table, candidates = table_of(found)
    return drs.Log(table, **{"candidates": candidates, **changes})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": "items"}, r"must be drs\.Candidates\(ids=\.\.\., features=\.\.\.\): got str"),
        ({"candidates": drs.Candidates()}, "name the column with the lists of ids, ids="),
        ({"candidates": drs.Candidates(features=drs.Items(pa.table({"item": [1], "p": [1]})))}, "to look features up"),
        ({"candidates": drs.Candidates("item")}, "no column 'item' for the candidates: did you mean 'items'"),
        ({"candidates": drs.Candidates("reward")}, "'reward' has type double: it must hold a list"),
        ({"candidates": drs.Candidates("z")}, "ids 'z' are list<.*: ids are integers or text"),
        ({"candidates": drs.Candidates("items", "items")}, "features 'items' are string: a candidate has a number"),
        ({"candidates": drs.Candidates("items", ["z", "z"])}, "name each column once"),
        ({"candidates": drs.Candidates("items", "z", "index")}, 'action_is=.index.: it must be "id" or "position"'),
        ({"candidates": drs.Candidates(3, "z")}, "ids=3: it must be the name of a column"),
        ({"candidates": drs.Candidates("items", 3)}, "features=3: they must be names of columns, Items"),
        ({"candidates": drs.Candidates("items", pa.table({"item": [1]}))}, "features=a Table: they must be names"),
        ({"candidates": drs.Candidates("items.id")}, "holds string, which has no field 'id'"),
        ({"candidates": drs.Candidates("items", "z", "position")}, "action column 'action' holds string"),
        ({"candidates": drs.Candidates(features="z", action_is="id")}, 'action_is="id": there are no ids'),
        ({"candidates": drs.Candidates(features="z")}, "'action' holds string: without ids, it is a position"),
        ({"candidates": drs.Candidates("items", drs.Items(pa.table({"item": [1], "p": [1]})))}, "must be of one kind"),
        ({"action": None}, "candidates= needs the actions"),
        ({"actions": 3}, "actions= are labels for all events, and candidates= are a set for each"),
        ({"propensities": "x_all"}, "propensities"),
    ],
)
def test_what_cannot_be_opened(options, message):
    with pytest.raises(drs.LogError, match=message):
        broken(**options)


def test_a_struct_with_text_needs_its_fields_named():
    table = pa.table({"z": [[{"a": 1.0, "b": "x"}]], "action": [0], "reward": [0.0]})
    with pytest.raises(drs.LogError, match=r"features are numbers, and field 'b' of 'z' is string: name the fields"):
        drs.Log(table, propensity=None, candidates=drs.Candidates(features="z"))
    table = pa.table({"z": [[{"id": "x"}]], "action": ["x"], "reward": [0.0]})
    with pytest.raises(drs.LogError, match=r"features are numbers, and 'z' has none"):
        drs.Log(table, propensity=None, candidates=drs.Candidates("z.id", "z"))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (pa.table({"id": [1], "p": [1.0]}), "there is no column 'item': there are: id, p"),
        (pa.table({"item": [1.5], "p": [1.0]}), "'item' has type double: ids are integers or text"),
        (pa.table({"item": [1], "p": ["a"]}), "no column of numbers beside 'item'"),
        (pa.table({"item": [1, 2, 1], "p": [1.0, 2, 3]}), "the id 1 is at row 0 and at row 2, column 'item'"),
        (pa.table({"item": ["a", "a"], "p": [1.0, 2]}), "the id 'a' is at row 0 and at row 1"),
        (pa.table({"item": [1, None], "p": [1.0, 2]}), "the id is null at row 1"),
        (pa.table({"item": [1, 2], "p": [1.0, None]}), "item 2 has None in column 'p': features must be finite"),
        (pa.table({"item": [1, 2], "p": [1.0, np.inf]}), "item 2 has inf in column 'p'"),
        (pa.table({"item": pa.array([], pa.int64()), "p": pa.array([], pa.float64())}), "there are no items"),
    ],
)
def test_tables_of_items_that_cannot_be_used(items, message):
    with pytest.raises(drs.LogError, match=message):
        _ = drs.Items(items).names


@pytest.mark.parametrize("names", [{"id": 3}, {"features": 3}, {"features": ["p", 3]}])
def test_names_of_items_are_text(names):
    with pytest.raises(drs.LogError, match=r"Items: id=.*, features=.*: they must be names of columns"):
        drs.Items(pa.table({"item": [1], "p": [1.0]}), **names)


def test_a_file_of_items_that_was_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "items.parquet"
    for price in (1.0, 2.0):
        pq.write_table(pa.table({"item": [1], "p": [price]}), path)
        assert drs.Items(path).loaded.features.tolist() == [[price]]


def test_features_of_items_that_cannot_be_used():
    items = pa.table({"item": [1, 2], "v": [[1.0, 2.0], [1.0]], "t": ["a", "b"], "w": [[1.0, 2.0], [1.0, np.nan]]})
    for name, message in (
        ("v", "item 2 has .* where the first has 2 numbers"),
        ("t", "has type string: features are"),
        ("w", "item 2 has .*nan.* in column 'w': features must be finite"),
        ("item", "name each column once, and not the id"),
    ):
        with pytest.raises(drs.LogError, match=message):
            _ = drs.Items(items, features=name).names


# Bad rows

BAD = {
    "candidates are null": ({"items": None}, "candidates are null at row 2, column 'items'"),
    "there are no candidates": ({"items": [], "z": []}, r"got \[\] at row 2"),
    "candidates have lists of different lengths": (
        {"z": [[0.0] * DZ]},
        r"got \['a', 'b'\], where 'z' holds \[\[0.0, 0.0, 0.0\]\]",
    ),
    "a candidate has no id": ({"items": [None, "b"]}, "got None in place 0"),
    "a candidate is there twice": ({"items": ["b", "b"]}, "got 'b' in place 1"),
    "a candidate has another number of features": (
        {"z": [[1, 2, 3], [1]]},
        r"got \[1.0\] in place 1 .*Other candidates have 3",
    ),
    "a candidate's features hold a null": ({"z": [[1, 2, 3], [1, None, 2]]}, r"got \[1.0, None, 2.0\] in place 1"),
    "a candidate's features are not finite": ({"z": [[1, 2, np.inf], [1, 1, 2]]}, r"got \[1.0, 2.0, inf\] in place 0"),
    "action is not among its candidates": ({"action": "c"}, r"got 'c', where 'items' holds \['a', 'b'\], at row"),
    "action is null": ({"action": None}, "action is null at row 2"),
}  # fmt: skip


def one_bad(changes, **more):
    good = {"items": ["a", "b"], "z": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], "action": "b", "reward": 1.0}
    rows = [good, {**good, "action": "a"}, {**good, **changes}, good]
    kinds = pa.schema(
        [
            ("items", pa.list_(pa.string())),
            ("z", pa.list_(pa.list_(pa.float32()))),
            ("action", pa.string()),
            ("reward", pa.float64()),
        ]
    )
    return pa.Table.from_pylist(rows, kinds)


@pytest.mark.parametrize("reason", BAD)
def test_bad_rows_are_named_or_skipped_and_counted(reason):
    changes, message = BAD[reason]
    opened = {"propensity": None, "candidates": drs.Candidates("items", "z")}
    with pytest.raises(drs.LogError, match=message) as caught:
        read(drs.Log(one_bad(changes), **opened))
    assert reason in str(caught.value)
    assert "row 2" in str(caught.value)
    (batch,), skipped = read(drs.Log(one_bad(changes), on_bad_row="skip", **opened))
    assert skipped == {reason: 1}
    assert batch.action.tolist() == [1, 0, 1]
    assert batch.candidates.count == 6


@pytest.mark.parametrize("position", [-1, 2])
def test_a_position_outside_of_the_list(position):
    table = one_bad({})
    table = table.set_column(2, "action", pa.array([0, 1, position, 1]))
    opened = {"propensity": None, "candidates": drs.Candidates("items", "z")}
    with pytest.raises(
        drs.LogError, match=rf"got {position}, where 'items' holds \['a', 'b'\], at row 2, column 'action'"
    ):
        read(drs.Log(table, **opened))
    (batch,), skipped = read(drs.Log(table, on_bad_row="skip", **opened))
    assert skipped == {"action is not a position among its candidates": 1}
    assert batch.action.tolist() == [0, 1, 1]


def test_an_item_that_the_table_lacks():
    items = drs.Items(pa.table({"item": ["a", "b"], "p": [1.0, 2.0]}))
    table = one_bad({"items": ["a", "x", "b"]})
    opened = {"propensity": None, "candidates": drs.Candidates("items", items)}
    with pytest.raises(
        drs.LogError, match="a candidate is not among the items: got 'x' in place 1 at row 2, column 'items'"
    ):
        read(drs.Log(table, **opened))
    (batch,), skipped = read(drs.Log(table, on_bad_row="skip", **opened))
    assert skipped == {"a candidate is not among the items": 1}
    assert batch.candidates.features.matrix.ravel().tolist() == [1, 2] * 3


def test_structs_and_numbers_with_nulls():
    kinds = pa.schema(
        [("z", pa.list_(pa.struct([("a", pa.float64())]))), ("action", pa.int8()), ("reward", pa.float64())]
    )
    rows = [[{"a": 1.0}], [None], [{"a": None}], [{"a": np.nan}]]
    table = pa.Table.from_pylist([{"z": z, "action": 0, "reward": 0.0} for z in rows], kinds)
    opened = {"propensity": None, "candidates": drs.Candidates(features="z"), "on_bad_row": "skip"}
    (batch,), skipped = read(drs.Log(table, **opened))
    assert skipped == {"a candidate's features hold a null": 2, "a candidate's features are not finite": 1}
    assert len(batch) == 1
    plain = table.set_column(0, "z", pa.array([[1.0], [None], [np.inf], [2.0]]))
    (batch,), skipped = read(drs.Log(plain, **opened))
    assert skipped == {"a candidate's features hold a null": 1, "a candidate's features are not finite": 1}
    for i, where in ((1, "null"), (2, "null"), (3, "not finite")):
        with pytest.raises(drs.LogError, match=where):
            read(drs.Log(table.slice(i), **{**opened, "on_bad_row": "error"}))


def test_an_action_whose_key_is_that_of_a_candidate_is_still_absent(monkeypatch):
    table = one_bad({"action": "c"})
    monkeypatch.setattr(
        "drstream.log.kinds.candidates.reading.keys_of",
        lambda column: np.array([{"a": 1, "b": 2, "c": 2}[value] for value in column.to_pylist()], np.uint64),
    )
    with pytest.raises(drs.LogError, match=r"got 'c', where 'items' holds \['a', 'b'\], at row"):
        read(drs.Log(table, propensity=None, candidates=drs.Candidates("items", "z")))


def test_positions_of_any_integer_type():
    table = one_bad({})
    for kind in (pa.int8(), pa.uint16(), pa.uint64(), pa.dictionary(pa.int8(), pa.int64())):
        positions = (
            pa.array([0, 1, 1, 0]).cast(kind) if not pa.types.is_dictionary(kind) else pa.array([0, 1, 1, 0], kind)
        )
        log = drs.Log(
            table.set_column(2, "action", positions), propensity=None, candidates=drs.Candidates("items", "z")
        )
        assert read(log)[0][0].action.tolist() == [0, 1, 1, 0]
    huge = table.set_column(2, "action", pa.array([0, 1, 2**64 - 1, 0], pa.uint64()))
    with pytest.raises(drs.LogError, match=f"got {2**64 - 1}, where 'items' holds .*, at row 2"):
        read(drs.Log(huge, propensity=None, candidates=drs.Candidates("items", "z")))


def test_logs_in_which_nothing_tells_the_number_of_features():
    kinds = pa.schema([("z", pa.list_(pa.list_(pa.float32()))), ("action", pa.int8()), ("reward", pa.float64())])
    empty = pa.Table.from_pylist(
        [{"z": [], "action": 0, "reward": 0.0}, {"z": None, "action": 0, "reward": 0.0}], kinds
    )
    with pytest.raises(drs.LogError, match="the log is empty, or no event has candidates"):
        _ = drs.Log(empty, propensity=None, candidates=drs.Candidates(features="z")).candidate_features
    bare = drs.Log(table_of(events())[0].drop_columns(["items", "z"]))
    assert bare.candidate_features == []
    (batch,), skipped = read(
        drs.Log(
            one_bad({"action": None}).slice(0, 2),
            propensity=None,
            on_bad_row="skip",
            candidates=drs.Candidates("items", "z"),
        )
    )
    assert len(batch) == 2
    assert hash(drs.Candidates("items", "z")) == hash(drs.Candidates("items", "z"))
    all_bad = one_bad({"items": None}).slice(2, 1)
    batches, skipped = read(
        drs.Log(all_bad, propensity=None, on_bad_row="skip", candidates=drs.Candidates("items", "z"))
    )
    assert batches == []
    assert skipped == {"candidates are null": 1}


def test_many_candidates_shuffled():
    rng = np.random.default_rng(1)
    sets = [rng.permutation(5000)[:n].tolist() for n in (1, 700, 3, 2500)]
    position = [0, 699, 1, 1234]
    action = [s[p] for s, p in zip(sets, position, strict=True)]
    table = pa.table({"items": sets, "action": action, "reward": [0.0] * 4})
    log = drs.Log(table, propensity=None, candidates=drs.Candidates("items"))
    assert read(log)[0][0].action.tolist() == position
    sets[3][2400] = sets[3][17]
    with pytest.raises(drs.LogError, match=f"a candidate is there twice: got {sets[3][17]} in place .* at row 3"):
        read(
            drs.Log(
                pa.table({"items": sets, "action": action, "reward": [0.0] * 4}),
                propensity=None,
                candidates=drs.Candidates("items"),
            )
        )


def test_no_labels():
    log = log_of(events())
    for look in (lambda: log.labels, lambda: log.n_actions):
        with pytest.raises(drs.LogError, match="this log has candidates=, a set for each event, so it has no labels"):
            look()


def test_a_first_row_of_another_width_is_the_bad_one():
    """The number of features is what most of the first candidates have."""
    items = [[[1.0, 2.0]] * 3 for _ in range(20)]
    items[0] = [[1.0]] * 3
    events = {"action": [0] * 20, "reward": [1.0] * 20, "propensity": [0.5] * 20}
    table = pa.table({"features": pa.array(items), **events})
    candidates = drs.Candidates(features="features")
    result = drs.evaluate(
        drs.Log(table, context=[], candidates=candidates, on_bad_row="skip"),
        drs.policies.Softmax([0.5, 0.5]),
        estimators=["ips"],
    )
    assert (result.n, sum(result.skipped.values())) == (19, 1)
    with pytest.raises(drs.LogError, match=r"at row 0"):
        drs.evaluate(drs.Log(table, context=[], candidates=candidates), drs.policies.Softmax([0.5, 0.5]))


def test_an_index_of_consecutive_numbers_is_no_column():
    frame = pa.table({"item": [0, 1], "p": [1.0, 2.0]}).to_pandas().set_index("item")
    with pytest.raises(
        drs.LogError, match=r"there is no column 'item': .*It is the index: pass table\.reset_index\(\)"
    ):
        _ = drs.Items(frame).names
