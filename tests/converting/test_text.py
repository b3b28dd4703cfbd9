"""CSV and JSON lines: the rows of the file, the types of its columns, and where a line is wrong."""

import bz2
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from drstream.converting import text
from drstream.converting.csv_quotes import records
from tests.helpers.logs import world

HEAD = "action,reward,propensity,x0\n"


def written(tmp_path, content, name="log.csv", **options):
    """The table that a text becomes."""
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(data)
    drs.convert(tmp_path / name, tmp_path / "out.parquet", **options)
    return pq.read_table(tmp_path / "out.parquet")


def fails(tmp_path, content, message, name="log.csv", **options):
    with pytest.raises(drs.DrstreamError) as caught:
        written(tmp_path, content, name, **options)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("out*"))


@pytest.fixture(params=[None, 64, 1000])
def blocks(request, monkeypatch):
    """Blocks of some bytes: a file has many."""
    if request.param is not None:
        monkeypatch.setattr(text, "BLOCK_BYTES", request.param)


def as_text(table, name):
    if name.startswith("log.csv"):
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        return sink.getvalue().to_pybytes()
    return "\n".join(map(json.dumps, table.to_pylist())).encode()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("log.csv", bytes),
        ("log.jsonl", bytes),
        ("log.ndjson", bytes),
        ("log.json", bytes),
        ("log.csv.gz", gzip.compress),
        ("log.jsonl.bz2", bz2.compress),
        ("LOG.CSV", bytes),
    ],
)
def test_rows_are_those_of_the_file(tmp_path, name, pack, blocks):
    table = world().table(300, seed=4)
    for place in (3, 4, 5):  # text holds float32 in decimals, and is read as float64
        table = table.set_column(place, table.column_names[place], table.column(place).cast(pa.float64()))
    found = written(tmp_path, pack(as_text(table, name.lower())), name)
    assert found.column_names == table.column_names
    for column in table.column_names:
        np.testing.assert_array_equal(found[column].to_numpy(), table[column].to_numpy())
    one, other = (drs.evaluate(log, drs.policies.Constant(1)).rows() for log in (table, tmp_path / "out.parquet"))
    assert [e["value"] for e in one] == [e["value"] for e in other]


def test_tabs(tmp_path):
    found = written(tmp_path, HEAD.replace(",", "\t") + "0\t1\t0.5\t3\n1\t0\t0.5\t4\n", "log.tsv")
    assert found["x0"].to_pylist() == [3, 4]


def test_several_files_folders_and_globs(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.csv").write_text(HEAD + "0,1,0.5,3\n")
    (folder / "b.csv").write_text("reward,action,x0,propensity\n0,1,4.5,0.5\n")  # another order
    (folder / "_c.csv").write_text("unfinished")
    for source in (folder, f"{folder}/[ab].csv", [folder / "a.csv", folder / "b.csv"]):
        drs.convert(source, tmp_path / "out.parquet")
        found = pq.read_table(tmp_path / "out.parquet")
        assert found.to_pylist() == [
            {"action": 0, "reward": 1, "propensity": 0.5, "x0": 3.0},
            {"action": 1, "reward": 0, "propensity": 0.5, "x0": 4.5},
        ]


# Types


@pytest.mark.parametrize(
    ("first", "last", "kind"),
    [
        ("1", "0.5", pa.float64()),
        ("", "0.5", pa.float64()),
        ("1", "x", pa.string()),
        ("007", "x", pa.string()),
        ("true", "x", pa.string()),
        ("2020-01-01", "2020-01-01 10:00:00", pa.timestamp("ms")),  # Parquet has no seconds
        ("2020-01-01 10:00:00", "2020-01-01 10:00:00.5", pa.timestamp("ns")),
        ("1", "", pa.int64()),
    ],
)
def test_a_type_that_shows_late_holds_from_the_first_row_on(tmp_path, monkeypatch, first, last, kind):
    monkeypatch.setattr(text, "BLOCK_BYTES", 40)
    lines = [f"{k % 2},1,0.5,{k},{first if k < 30 else last}\n" for k in range(31)]
    found = written(tmp_path, HEAD[:-1] + ",more\n" + "".join(lines))
    assert found.schema.field("more").type == kind
    assert found.num_rows == 31
    if kind == pa.string():
        assert found["more"].to_pylist() == [first] * 30 + [last]


def test_types_of_json_that_show_late(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 60)
    rows = [{"action": k % 2, "reward": 1, "propensity": 0.5, "x": [k, 1], "day": "2020-01-01"} for k in range(20)]
    rows += [{"action": 1, "reward": 0.5, "propensity": 0.5, "x": [0.5, 1], "day": "soon", "more": 3}]
    found = written(tmp_path, "\n".join(map(json.dumps, rows)), "log.jsonl")
    assert found["reward"].to_pylist() == [1.0] * 20 + [0.5]
    assert found["x"].to_pylist()[-1] == [0.5, 1.0]
    assert found["day"].to_pylist() == ["2020-01-01"] * 20 + ["soon"]
    assert found["more"].to_pylist() == [None] * 20 + [3]


def test_quotes_and_lines_within_them(tmp_path, blocks):
    lines = [f'{k % 2},1,0.5,{k},"say ""{k}"",\nplease"\n' for k in range(40)]
    found = written(tmp_path, HEAD[:-1] + ',"no\nte"\n' + "".join(lines))
    assert found["no\nte"].to_pylist() == [f'say "{k}",\nplease' for k in range(40)]


def test_an_inch_is_no_quote(tmp_path):
    found = written(tmp_path, HEAD[:-1] + ',size\n0,1,0.5,3,5" tv\n1,1,0.5,3,small\n')
    assert found["size"].to_pylist() == ['5" tv', "small"]


def naive_records(text):
    """Where records end, byte by byte, and where a quote is that is never closed."""
    ends, opened, fresh, k = [], None, True, 0
    while k < len(text):
        if opened is not None:
            if text[k] == '"' and text[k + 1 : k + 2] == '"':
                k += 1
            elif text[k] == '"':
                opened = None
        elif text[k] == '"' and fresh:
            opened = k
        elif text[k] == "\n":
            ends.append(k + 1)
        fresh = opened is None and text[k] in ",\n"
        k += 1
    return ends, opened


@given(st.text('a,"\n', max_size=30))
@settings(max_examples=500)
def test_records_are_those_of_a_walk_through_the_bytes(content):
    ends, opened = records(content.encode(), ",")[:2]
    assert (ends.tolist(), opened) == naive_records(content)


@pytest.mark.parametrize("block", [50, 64, 100, 1 << 23])
def test_a_stray_quote_beside_line_breaks_in_quotes(tmp_path, monkeypatch, block):
    """Once, one stray quote turned the others inside out: a block ended within a field, and another line was blamed."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    lines = [f'{k % 2},1,0.5,{k},"two\nlines"\n' for k in range(40)]
    lines[3] = '0,1,0.5,3,5" tv\n'
    found = written(tmp_path, HEAD[:-1] + ",size\n" + "".join(lines))
    assert found["x0"].to_pylist() == list(range(40))
    assert found["size"].to_pylist() == ["two\nlines"] * 3 + ['5" tv'] + ["two\nlines"] * 36
    (tmp_path / "out.parquet").unlink()
    bad = [*lines[:30], "0,1,7,30,x\n", *lines[31:]]
    fails(tmp_path, HEAD[:-1] + ",size\n" + "".join(bad), "got 7.0 at row 30 (line 61 of ")
    bad = [*lines[:30], "0,1,7\n", *lines[31:]]
    fails(tmp_path, HEAD[:-1] + ",size\n" + "".join(bad), "expected 5 fields, but got 3: 0,1,7, at line 61 of ")
    bad = [*lines[:30], '0,1,0.5,30,"open\n', *(line.replace('"', "") for line in lines[31:])]
    fails(tmp_path, HEAD[:-1] + ",size\n" + "".join(bad), "that is never closed, at line 61 of ")


@pytest.mark.parametrize(
    ("name", "content", "left", "wanted"),
    [
        (
            "log.csv",
            HEAD[:-1] + ',size\n0,1,0.5,0,"a\nb"\n0,1\n\n0,1,0.5,1,"c"\n0,1,0.5,1,2,3,4\n1,1,1.5,2,d\n1,1,0.5,3,\n',
            {"malformed line": 2, "propensity is not in (0, 1]": 1},
            "expected 5 fields, but got 2: 0,1, at line 4 of ",
        ),
        (
            "log.jsonl",
            '{"action": 0, "reward": 1, "propensity": 0.5, "x0": 0}\n{"action": 0,\n\n[3]\n'
            '{"action": 0, "reward": 1, "propensity": 0.5, "x0": 1}\n{"reward": NaN}\n'
            '{"action": 0, "reward": 1, "propensity": 1.5, "x0": 2}\n'
            '{"action": 1, "reward": 1, "propensity": 0.5, "x0": 3}\n',
            {"malformed line": 2, "reward is not finite": 1, "propensity is not in (0, 1]": 1},
            'not an object of JSON: {"action": 0,, at line 2 of ',
        ),
    ],
)
@pytest.mark.parametrize("block", [30, 1 << 23])
def test_malformed_lines_are_skipped_and_counted(tmp_path, monkeypatch, name, content, left, wanted, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    (tmp_path / name).write_text(content)
    done = drs.convert(tmp_path / name, tmp_path / "out.parquet", on_bad_row="skip")
    assert (done.rows, done.skipped) == (3, left)
    assert wanted in done.first["malformed line"]
    assert pq.read_table(done.path)["x0"].to_pylist() == [0, 1, 3]
    read = drs.read_csv if name == "log.csv" else drs.read_json
    log = read(tmp_path / name, on_bad_row="skip")
    assert drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"]).skipped == left
    with pytest.raises(drs.LogError, match="or pass on_bad_row="):
        read(tmp_path / name)


def test_two_objects_in_a_line(tmp_path):
    row = '{"action": 0, "reward": 1, "propensity": 0.5, "x0": %d}'
    content = f"{row % 1} {row % 2}\n\n{row % 3}\n{(row % 4).replace('0.5', '7')}\n"
    fails(tmp_path, content, "got 7.0 at row 3 (line 4 of ", "log.jsonl")
    for more, bad in (("", 0), ("{\n", 1)):
        (tmp_path / "log.jsonl").write_text(content + more)
        log = drs.read_json(tmp_path / "log.jsonl", on_bad_row="skip")
        assert log.head()["x0"].to_pylist() == [1, 2, 3, 4]
        assert log.source.dropped == ({"malformed line": 1} if bad else {})


def test_what_cannot_be_skipped(tmp_path):
    fails(
        tmp_path, '{"reward": 0}\n{"reward": "no"}\n', "changed from number to string", "log.jsonl", on_bad_row="skip"
    )
    fails(tmp_path, HEAD + '0,1,0.5,"3\n0,1,0.5,3\n', "that is never closed, at line 2", on_bad_row="skip")
    fails(tmp_path, "oops\n", "holds no row: there is nothing to read, but e.g.", "log.jsonl", on_bad_row="skip")


def test_text_without_a_conversion(tmp_path):
    """The same rows, roles and numbers as from the file that it is converted to, for several passes."""
    table = world().table(300, seed=4)
    table = table.cast(pa.schema([(f.name, pa.float64() if f.type == pa.float32() else f.type) for f in table.schema]))
    (tmp_path / "log.csv").write_bytes(as_text(table, "log.csv"))
    (tmp_path / "log.tsv").write_bytes(as_text(table, "log.csv").replace(b",", b"\t"))
    (tmp_path / "log.jsonl").write_bytes(as_text(table, "log.jsonl"))
    drs.convert(tmp_path / "log.csv", tmp_path / "log.parquet")
    logs = [
        drs.read_csv(tmp_path / "log.csv", threads=1),
        drs.read_csv(tmp_path / "log.tsv", delimiter="\t"),
        drs.read_json(tmp_path / "log.jsonl"),
        drs.Log(tmp_path / "log.parquet"),
    ]
    found = []
    for log in logs:
        train, test = log.split(0.5)
        result = drs.evaluate(test, drs.policies.Constant(1), drs.models.Ridge().fit(train))
        found.append([estimate["value"] for estimate in result.rows()])
    assert found[0] == found[1] == found[2] == found[3]
    with pytest.raises(drs.LogError, match="it must be a comma or a tab"):
        drs.read_csv(tmp_path / "log.csv", delimiter=";")
    with pytest.raises(drs.LogError, match="cannot read JSON lines from Table: pass a path"):
        drs.read_json(table)


def test_one_stray_quote_takes_no_longer(tmp_path, monkeypatch):
    """Once, each line stepped over counted all quotes again: this took minutes."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 21)
    lines = [f"{k % 2},1,0.5,{k},small\n" for k in range(200_000)]
    lines[2] = '0,1,0.5,2,pipe 5" x\n'
    found = written(tmp_path, HEAD[:-1] + ",size\n" + "".join(lines))
    assert found["x0"].to_pylist() == list(range(200_000))
    assert found["size"][2].as_py() == 'pipe 5" x'


@pytest.mark.parametrize("rows", [3, 3000])
def test_an_inch_in_the_name_of_a_column(tmp_path, rows, blocks):
    lines = [f"{k % 2},1,0.5,{k},small\n" for k in range(rows)]
    lines[rows // 2] = '0,1,0.5,0,5" tv\n'
    found = written(tmp_path, HEAD[:-1] + ',size 5"\n' + "".join(lines))
    assert found.num_rows == rows
    assert found.column_names[-1] == 'size 5"'


def test_empty_lines_marks_and_windows(tmp_path):
    content = b"\xef\xbb\xbf" + HEAD.replace("\n", "\r\n").encode() + b"0,1,0.5,3\r\n\r\n1,0,0.5,4\r\n\r\n"
    assert written(tmp_path, content)["x0"].to_pylist() == [3, 4]


@pytest.mark.parametrize("word", ["NA", "null", "NaN", "#N/A", "None"])
def test_only_an_empty_field_is_null(tmp_path, word):
    found = written(tmp_path, HEAD[:-1] + f',city\n0,1,0.5,3,{word}\n1,1,0.5,3,\n1,1,0.5,3,""\n1,1,0.5,3,x\n')
    assert found["city"].to_pylist() == [word, None, None, "x"]


def test_labels_with_leading_zeros_are_numbers(tmp_path):
    found = written(tmp_path, "action,reward,propensity\n001,1,0.5\n000,1,0.5\n")
    assert found["action"].to_pylist() == [1, 0]


# Large whole numbers: float64 would merge ids


IDS = [18446744073709551615, 18446744073709551614, 9007199254740993, 0, 7]


def of_users(name, users):
    """A log with a column of users, given as they are written."""
    if name == "log.csv":
        return "user,action,reward,propensity\n" + "".join(f"{u},{k % 2},1,0.5\n" for k, u in enumerate(users))
    return "".join(
        f'{{"user": {"null" if u == "" else u}, "action": {k % 2}, "reward": 1, "propensity": 0.5}}\n'
        for k, u in enumerate(users)
    )


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
@pytest.mark.parametrize("ids", [IDS, IDS[::-1], [*IDS, ""], [7] * 9 + IDS])
def test_large_ids_stay_different(tmp_path, name, ids, blocks):
    found = written(tmp_path, of_users(name, ids), name)
    assert found["user"].to_pylist() == [None if value == "" else value for value in ids]
    assert found.schema.field("user").type == pa.uint64()


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
@pytest.mark.parametrize(
    ("ids", "row"),
    [
        ([9007199254740993, 0.5], 0),
        ([0.5, 1, 9007199254740993], 2),
        ([1, 18446744073709551615, -1], 1),
        ([-1, 18446744073709551615], 1),
        ([5, 18446744073709551616], 1),
        ([0.5, "", -9007199254740993], 2),
    ],
)
def test_ids_that_would_become_the_same_are_refused(tmp_path, name, ids, row, blocks):
    line = row + (2 if name == "log.csv" else 1)
    message = f"column 'user' holds {ids[row]} at row {row} (line {line} of {tmp_path / name}), but becomes float64"
    fails(tmp_path, of_users(name, ids), message, name)
    assert "user" not in written(tmp_path, of_users(name, ids), name, columns=[]).column_names
    if "" not in ids:  # a context is computed with
        assert written(tmp_path, of_users(name, ids), name, context=["user"]).num_rows == len(ids)


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_large_numbers_that_are_no_ids(tmp_path, name):
    found = written(tmp_path, of_users(name, ["1e20", "9007199254740993.0", "-2.5e300", 9007199254740992]), name)
    assert found["user"].to_pylist() == [1e20, 9007199254740992.0, -2.5e300, 9007199254740992.0]


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_labels_beyond_signed_integers(tmp_path, name):
    (tmp_path / name).write_text(of_users(name, IDS[:2] * 3).replace("action", "side"))
    drs.convert(tmp_path / name, tmp_path / "log.parquet", action="user")
    log = drs.Log(tmp_path / "log.parquet", action="user")
    assert log.labels == sorted(IDS[:2])
    assert drs.evaluate(log, drs.policies.Constant(IDS[0]), estimators="ips").labels == sorted(IDS[:2])


# Mistakes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + "0,1,0.5,3\n0,1,0.5\n", "expected 4 fields, but got 3: 0,1,0.5, at line 3 of "),
        (HEAD + "0,1,0.5,3\n\n\n0,1,0.5,3,4\n", "expected 4 fields, but got 5: 0,1,0.5,3,4, at line 5 of "),
        (HEAD + '0,1,0.5,3\n0,1,0.5,"3\n0,1,0.5,3\n', "that is never closed"),
        (HEAD + "0,1,0.5,3\n0,1,,3\n", "propensity is null at row 1 (line 3 of "),
        (HEAD + "0,1,0.5,3\n1,1,0,3\n", "propensity is not in (0, 1]: got 0.0 at row 1 (line 3 of "),
        (HEAD + "0,1,0.5,3\n\n1,1,2,3\n", "got 2.0 at row 1 (line 4 of "),
        (HEAD + "0,yes,0.5,3\n", "reward must be a number: got 'yes' at row 0"),
        (HEAD + "0,1,0.5,3\n-1,1,0.5,3\n", "runs from -1 to 0"),
        (HEAD, "holds no row"),
        ("", "holds no row"),
        ("action;reward;propensity\n0;1;0.5\n", "fields must be separated by commas, not by semicolons"),
        ("action,action,reward,propensity\n0,0,1,1\n", "has 2 columns named 'action'"),
        ("a,reward,propensiti\n0,1,1\n", "name it with propensity="),
        (HEAD.encode("utf-16"), "write it as UTF-8"),
        ((HEAD[:-1] + ",città\n0,1,0.5,3,x\n").encode("latin1"), "the names of the columns in line 1 of "),
        (
            (HEAD[:-1] + ",city\n0,1,0.5,3,Bern\n0,1,0.5,3,Zürich\n").encode("latin1"),
            "column 'city' holds b'Z\\xfcrich' at row 1 (line 3 of ",
        ),
        ((HEAD[:-1] + ",city\n0,1,0.5,3,Zürich\n").encode("latin1"), "is not UTF-8: write it as UTF-8"),
    ],
)
def test_csv_that_is_wrong(tmp_path, content, message):
    fails(tmp_path, content, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"action": 0, "reward": 1}\n{"action": 0,\n', "at line 2 of "),
        ('{"action": 0}\n\n{"action": 0,}\n', "Missing a name for object member, at line 3 of "),
        ('{"reward": 0}\n{"reward": "no"}\n', "column 'reward' changed from number to string, at line 2 of "),
        ('[{"action": 0}]\n', "it is one JSON array"),
        ('{"action": 0, "city": "Zürich"}\n'.encode("latin1"), "is not UTF-8: write it as UTF-8"),
        (b'{"action": 0}\n\n{"action": "\xfc"}\n', "at line 3 of "),
        ("3\n", "each line must be an object, but this is of type number, at line 1 of "),
        ("", "holds no row"),
    ],
)
def test_json_that_is_wrong(tmp_path, content, message):
    fails(tmp_path, content, message, "log.jsonl")


def test_types_of_json_that_do_not_go_together(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 30)
    message = "column 'reward' holds int64 at first, but string in lines 11 to 11 of "
    fails(tmp_path, '{"reward": 1}\n' * 10 + '{"reward": "a long text, so it is alone"}\n', message, "log.jsonl")


def test_a_wrong_line_in_a_later_block(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    good = HEAD + "0,1,0.5,3\n" * 500
    fails(tmp_path, good + "0,1\n", "expected 4 fields, but got 2: 0,1, at line 502 of ")
    fails(tmp_path, good + "0,1,7,3\n", "got 7.0 at row 500 (line 502 of ")


def test_a_damaged_archive(tmp_path):
    packed = gzip.compress((HEAD + "0,1,0.5,3\n" * 5000).encode())
    fails(tmp_path, packed[: len(packed) // 2], "cannot read", "log.csv.gz")


def test_files_that_do_not_go_together(tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "0,1,0.5,3\n")
    (tmp_path / "b.csv").write_text(HEAD.replace("x0", "x1") + "0,1,0.5,3\n")
    (tmp_path / "c.jsonl").write_text("{}")
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.jsonl")]
    for chosen, message in (
        (paths[:2], "files differ: only one of"),
        ([paths[0], paths[2]], "files of two kinds"),
        ([paths[0], paths[0]], "given twice"),
        (["s3://bucket/a.csv"], "must be on this computer"),
        ([tmp_path / "d.csv"], "did you mean 'b.csv' or 'a.csv'"),
    ):
        with pytest.raises(drs.LogError, match=message):
            drs.convert(chosen, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("out*"))


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "0,1,0.5,3\n")
    log = drs.read_csv(path, actions=2)
    path.write_text(HEAD + "0,1,0.5,3\n" * 2)
    with pytest.raises(drs.LogError, match="changed while it was read"):
        drs.convert(log, tmp_path / "out.parquet")


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_other_commands_say_how_to_convert(tmp_path, name):
    (tmp_path / name).write_text(HEAD + "0,1,0.5,3\n")
    with pytest.raises(drs.LogError, match=r"it holds text.* drstream convert .*log\.\w+ log\.parquet"):
        drs.Log(tmp_path / name)


def test_categories_are_text(tmp_path):
    """As numbers, 01234 and 1234 would be one category."""
    path = tmp_path / "zip.csv"
    path.write_text("zip,action,reward,propensity\n01234,1,1,0.5\n1234,2,0,0.5\n")
    assert drs.read_csv(path, context=["zip"], categorical="zip").categories == {"zip": ["01234", "1234"]}
    assert drs.read_csv(path, context=["zip"]).categories == {}
    hashed = drs.read_csv(path, context=[drs.Hashed("zip", bits=10)])
    assert hashed.source.schema.field("zip").type == pa.string()


def test_text_among_numbers_is_named(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("action,reward,propensity,x\n1,0.5,0.5,1\n2,abc,0.5,2\n1,1,0.5,3\n")
    for on_bad_row in ("error", "skip"):
        with pytest.raises(drs.LogError, match=r"reward must be a number: got 'abc' at row 1 \(line 3 of .*log\.csv\)"):
            drs.read_csv(path, context=["x"], on_bad_row=on_bad_row)
    path.write_text("action,reward,propensity,x\n" + "1,1,0.5,1\n2,0,0.5,1\n" * 100 + "x,1,0.5,1\n")
    with pytest.warns(drs.DrstreamWarning, match=r"integers and 1 other value in 201 rows, the first 'x' at row 200"):
        assert drs.read_csv(path, context=["x"]).labels == ["1", "2", "x"]
    path.write_text("action,reward,propensity,x\na,1,p,1\nb,0,q,1\n")
    assert drs.read_csv(path, propensity=None, context=["x"]).labels == ["a", "b"]
