"""dsjson: labels, candidates, propensities, features, and lines that are left out."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.converting import events as lines_of_text
from drstream.converting.dsjson import DSJSON
from tests.helpers.systems import dsjson_lines, events, naive_index, read_lines, vw_lines, write

EVENT = {
    "_label_cost": -1.5,
    "_label_probability": 0.25,
    "_label_Action": 2,
    "_labelIndex": 1,
    "o": [{"v": 1.5}],
    "Timestamp": "2026-11-15T17:09:31.8350000Z",
    "EventId": "one",
    "a": [2, 3, 1],
    "c": {
        "user": {"id": "p5", "age": 3.5, "new": True, "old": False, "none": None, "_hidden": 3},
        "size": [4, 5.5],
        "url": [{"day": "Mon"}, {"_text": "red shoes"}],
        "words": ["a", "b"],
        "deep": {"er": {"x": 1}},
        "_multi": [{"item": {"id": "A"}}, {"item": {"id": "B"}, "price": 2}, {}],
    },
    "p": [0.25, 0.6, 0.15],
    "pdrop": 0.2,
    "VWState": {"m": "N/A"},
}
SHARED = {
    "user^id=p5": 1.0,
    "user^age": 3.5,
    "user^new": 1.0,
    "^size[0]": 4.0,
    "^size[1]": 5.5,
    "url^day=Mon": 1.0,
    "url^red": 1.0,
    "url^shoes": 1.0,
    "^words=a": 1.0,
    "^words=b": 1.0,
    "deep.er^x": 1.0,
}


def parse(*found, skip=False, bits=18):
    lines = [line if isinstance(line, str) else json.dumps(line) for line in found]
    return read_lines(DSJSON, "\n".join(lines).encode(), bits, skip)


def but(**changes):
    """The event with some members changed, or left out if None."""
    return {name: value for name, value in {**EVENT, **changes}.items() if value is not None}


def test_an_event_with_candidates():
    (row,) = parse(EVENT, bits=20)[0].to_pylist()
    assert (row["action"], row["reward"], row["propensity"]) == (1, 1.5, 0.25)
    assert row["propensities"] == [0.15, 0.25, 0.6]  # p is in the order of a
    assert row["sample_rate"] == 0.8
    assert row["items"] == [0, 1, 2]
    assert row["event_id"] == "one"
    assert str(row["timestamp"]) == "2026-11-15 17:09:31.835000+00:00"
    found = dict(zip(row["indices"], row["values"], strict=True))
    assert found == {naive_index(name, 20): value for name, value in SHARED.items()}
    wanted = [{"item^id=A": 1.0}, {"item^id=B": 1.0, "^price": 2.0}, {}]
    items = [[(naive_index(name, 20), value) for name, value in item.items()] for item in wanted]
    assert [[(entry["index"], entry["value"]) for entry in item] for item in row["item_features"]] == items


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"_label_Action": None}, {}),
        ({"_labelIndex": None}, {}),
        ({"_label_Action": None, "_label_cost": None, "_label": {"Action": 2, "Cost": -1.5, "Probability": 0.25}}, {}),
        ({"_label_cost": None, "_label_Cost": -1.5}, {}),
        ({"p": None}, {"propensities": None}),
        ({"a": None}, {"propensities": [0.25, 0.6, 0.15]}),
        ({"p": None, "_p": EVENT["p"]}, {}),
        ({"pdrop": None}, {"sample_rate": 1.0}),
        ({"EventId": None, "Timestamp": None}, {"event_id": None, "timestamp": None}),
    ],
)
def test_other_ways_to_write_it(changes, wanted):
    first, other = parse(EVENT, but(**changes))[0].to_pylist()
    assert other == {**first, **wanted}


def test_an_event_without_candidates():
    plain = but(c={"user": {"age": 3}}, p=None, a=None, pdrop=None)
    table = parse(plain)[0]
    assert table.column_names == ["event_id", "timestamp", "action", "reward", "propensity", "indices", "values"]
    assert table["indices"].to_pylist() == [[naive_index("user^age", 18)]]
    both = parse(plain, EVENT)[0]
    assert both["items"].to_pylist() == [None, [0, 1, 2]]
    assert both["item_features"].to_pylist()[0] is None


LEFT_OUT = [
    (but(_label_cost=None), "no label", "there is no _label_cost in '{"),
    ({"RewardValue": 1.0, "EventId": "one"}, "no label", "there is no _label_cost"),
    (but(_skipLearn=True), "marked _skipLearn", "_skipLearn is true"),
    ('{"_label_cost": 1,', "malformed line", "Expecting property name"),
    ("[1]", "malformed line", "each line must be an object, but this is of type list"),
    (but(_label_cost="dear"), "malformed line", '_label_cost must be a number, but is "dear"'),
    (but(_label_probability=None), "malformed line", "_label_probability must be a number, but is missing"),
    (but(_labelIndex=None, _label_Action=None), "malformed line", "neither _labelIndex nor _label_Action"),
    (but(_labelIndex=0), "malformed line", "_labelIndex is 0, but _label_Action is 2"),
    (
        but(_labelIndex=-1, _label_Action=None),
        "malformed line",
        "_labelIndex must be a whole number from 0 on, but is -1",
    ),
    (but(_labelIndex=1.5), "malformed line", "must be a whole number from 0 on, but is 1.5"),
    (but(_labelIndex=3, _label_Action=4), "malformed line", "_labelIndex is 3, but there are 3 candidates"),
    (but(c=None), "malformed line", "the context 'c' must be an object, but is missing"),
    (but(c={"_multi": []}), "malformed line", "'_multi' must be a list of objects, but is []"),
    (but(c={"_multi": [{}], "_slots": [{}]}), "malformed line", "several actions"),
    (but(p=[0.5, 0.5]), "malformed line", "'p' must hold 3 probabilities, a candidate each, but is [0.5, 0.5]"),
    (but(a=[1, 1, 2]), "malformed line", "'a' must hold the candidates 1 to 3, each once, but is [1, 1, 2]"),
]


@pytest.mark.parametrize(("line", "reason", "what"), LEFT_OUT, ids=[what[:20] for _, _, what in LEFT_OUT])
def test_lines_that_are_left_out(line, reason, what):
    table, lines, source = parse(EVENT, "", line, EVENT, line, skip=True)
    assert table.num_rows == 2
    assert lines == [1, 4]
    assert source.dropped == {reason: 2}
    assert what in source.left_out[reason]
    assert ", at line 3 of " in source.left_out[reason]
    if reason == "malformed line":
        with pytest.raises(drs.LogError, match=", at line 3 of ") as caught:
            parse(EVENT, "", line, EVENT)
        assert what in str(caught.value)
    else:
        assert parse(EVENT, line)[2].dropped == {reason: 1}


def test_crafted_lines_are_malformed():
    """Not an error of Python: numbers beyond all types, half characters, and objects in objects in objects."""
    deep = json.dumps(EVENT).replace('"_hidden": 3', '"x": ' + '{"y": ' * 990 + "1" + "}" * 990)
    for line, what in {
        json.dumps(but(_labelIndex=10**30, _label_Action=None)): "must be a whole number",
        json.dumps(but(c={"user": "\ud800"})): "cannot be named",
        deep: "recursion",
    }.items():
        table, _, source = parse(EVENT, line, skip=True)
        assert table.num_rows + source.dropped["malformed line"] == 2
        assert what in source.left_out.get("malformed line", "")
    table, _, _ = parse(but(EventId="\ud800"))
    assert table["event_id"].to_pylist() == ["?"]


@pytest.mark.parametrize("rows", [7, 1 << 17])
def test_from_the_file_to_the_estimate(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(lines_of_text, "PIECE", rows)
    found = events(200)
    lines = dsjson_lines(found)
    lines[3], lines[50] = "{broken", '{"RewardValue": 1}'
    path = write(tmp_path / "log.dsjson", lines)
    with pytest.raises(drs.LogError, match=f"cannot read dsjson: Expecting .* at line 4 of {path}"):
        drs.read_dsjson(path)
    log = drs.read_dsjson(path, on_bad_row="skip", propensities="propensities", actions=3)
    assert (log.rows, list(log.labels)) == (198, [0, 1, 2])
    kept = [event for k, event in enumerate(found) if k not in (3, 50)]
    result = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])
    assert result["ips"].value == pytest.approx(np.mean([-c / 3 / round(p[a], 6) for a, c, p, _ in kept]), abs=1e-9)
    assert result.skipped == {"malformed line": 1, "no label": 1}
    done = drs.convert(path, tmp_path / "log.parquet", on_bad_row="skip")
    assert pq.read_table(done.path).num_rows == 198
    again = drs.evaluate(drs.Log(done.path), drs.policies.Column("propensities"), estimators=["ips"])
    assert again["ips"].value == pytest.approx(np.mean([-c for _, c, _, _ in kept]), abs=1e-9)


def test_plain_events_are_those_of_the_text(tmp_path):
    found = events(100)
    one = drs.read_vw(write(tmp_path / "log.vw", vw_lines(found)))
    other = drs.read_dsjson(write(tmp_path / "log.dsjson", dsjson_lines(found, candidates=False)))
    values = [drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])["ips"].value for log in (one, other)]
    assert values[0] == values[1]
    tables = [log.head(100) for log in (one, other)]
    assert tables[0]["reward"].to_pylist() == tables[1]["reward"].to_pylist()
    assert tables[0]["action"].to_pylist() == [action + 1 for action in tables[1]["action"].to_pylist()]


def test_a_down_sampled_log(tmp_path):
    path = write(tmp_path / "log.dsjson", dsjson_lines(events(20), pdrop=0.5) + dsjson_lines(events(20)))
    log = drs.read_dsjson(path)
    assert log.roles.sample_rate == "sample_rate"
    assert log.head(40)["sample_rate"].to_pylist() == [0.5] * 20 + [1.0] * 20


def test_json_is_dsjson_if_it_has_a_label(tmp_path):
    path = write(tmp_path / "log.json", dsjson_lines(events(20)))
    drs.convert(path, tmp_path / "log.parquet")
    assert pq.read_schema(tmp_path / "log.parquet").field("items").type == pa.list_(
        pa.field("element", pa.int32(), nullable=False)
    )
    with pytest.raises(drs.LogError, match="no column of the log has a usual name for the reward"):
        drs.convert(path, tmp_path / "log.parquet", format="json")


def test_times_that_are_none_stay_text(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_of_text, "AT_ONCE", 2)
    lines = dsjson_lines(events(5)) + dsjson_lines(events(5), Timestamp="yesterday")
    found = drs.read_dsjson(write(tmp_path / "log.dsjson", lines)).head(10)["timestamp"].to_pylist()
    assert found == ["2026-11-15T17:09:31.8350000Z"] * 5 + ["yesterday"] * 5
