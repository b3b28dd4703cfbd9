"""CSV and JSON lines: the rows of the file, the types of its columns, and where a line is wrong."""

import bz2
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.sources import text
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


@pytest.fixture(params=[None, 200, 1000])
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


def test_quotes_and_lines_within_them(tmp_path, blocks):
    lines = [f'{k % 2},1,0.5,{k},"say ""{k}"",\nplease"\n' for k in range(40)]
    found = written(tmp_path, HEAD[:-1] + ',"no\nte"\n' + "".join(lines))
    assert found["no\nte"].to_pylist() == [f'say "{k}",\nplease' for k in range(40)]


def test_an_inch_is_no_quote(tmp_path):
    found = written(tmp_path, HEAD[:-1] + ',size\n0,1,0.5,3,5" tv\n1,1,0.5,3,small\n')
    assert found["size"].to_pylist() == ['5" tv', "small"]


def test_text_without_a_conversion(tmp_path):
    """The same rows, roles and numbers as from the file that it is converted to, for several passes."""
    table = world().table(300, seed=4)
    table = table.cast(pa.schema([(f.name, pa.float64() if f.type == pa.float32() else f.type) for f in table.schema]))
    (tmp_path / "log.csv").write_bytes(as_text(table, "log.csv"))
    (tmp_path / "log.tsv").write_bytes(as_text(table, "log.csv").replace(b",", b"\t"))
    (tmp_path / "log.jsonl").write_bytes(as_text(table, "log.jsonl"))
    drs.convert(tmp_path / "log.csv", tmp_path / "log.parquet")
    logs = [
        drs.read_csv(tmp_path / "log.csv"),
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


# Mistakes


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + "0,1,0.5,3\n0,1,0.5\n", "expected 4 fields, but got 3: 0,1,0.5, in "),
        (HEAD + '0,1,0.5,3\n0,1,0.5,"a\n0,1,0.5,3\n', "is never closed"),
        (HEAD + "0,1,0.5,3\n0,1,,3\n", "propensity is null at row 1 of "),
        (HEAD + "0,1,0.5,3\n1,1,0,3\n", "propensity is not in (0, 1]: got 0.0 at row 1 of "),
        (HEAD + "0,yes,0.5,3\n", "conversion error to double: invalid value 'yes', in "),
        (HEAD + "0,1,0.5,3\n-1,1,0.5,3\n", "runs from -1 to 0"),
        (HEAD, "holds no row"),
        ("", "cannot read CSV: Empty CSV file"),
        ("action;reward;propensity\n0;1;0.5\n", "fields must be separated by commas, not by semicolons"),
        ("action,action,reward,propensity\n0,0,1,1\n", "multiple columns named action"),
        ("a,reward,propensiti\n0,1,1\n", "name it with propensity="),
        (HEAD.encode("utf-16"), "holds bytes that are no text"),
        ((HEAD[:-1] + ",città\n0,1,0.5,3,x\n").encode("latin1"), "UTF-8"),
        ((HEAD[:-1] + ",city\n0,1,0.5,3,Zürich\n").encode("latin1"), "column 'city' of "),
        ((HEAD + "0,1,0.5,3\n" * 200).encode() + "0,1,0.5,Zürich\n".encode("latin1"), "UTF-8"),
    ],
)
def test_csv_that_is_wrong(tmp_path, content, message):
    fails(tmp_path, content, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"action": 0, "reward": 1}\n{"action": 0,\n', "cannot read JSON lines: "),
        ('{"reward": 0}\n{"reward": "no"}\n', "column 'reward' changed from number to string"),
        ('[{"action": 0}]\n', "If the file is one array: jq -c"),
        ('{"action": 0, "reward": 1, "propensity": 0.5, "city": "Zürich"}\n'.encode("latin1"), "UTF"),
        ("3\n", "Each line must be an object"),
        ("", "cannot read JSON lines: Empty JSON"),
    ],
)
def test_json_that_is_wrong(tmp_path, content, message):
    fails(tmp_path, content, message, "log.jsonl")


def test_types_that_show_late_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", 200)
    content = HEAD[:-1] + ",more\n" + "".join(f"{k % 2},1,0.5,{k},{k}\n" for k in range(60)) + "1,0.5,0.5,1,2.5\n"
    fails(tmp_path, content, "column 'more': record 62: CSV conversion error to int64: invalid value '2.5'")
    log = drs.read_csv(tmp_path / "log.csv", types={"more": "float64"}, context=["more"])
    assert log.to_arrow(["more"])["more"].to_pylist() == [*range(60), 2.5]
    assert log.to_arrow()["reward"].to_pylist()[-1] == 0.5  # rewards are read as numbers with fractions
    with pytest.raises(drs.LogError, match="no such type; give one of Arrow"):
        drs.read_csv(tmp_path / "log.csv", types={"more": "number"})


def test_numbers_of_files_have_the_type_that_holds_all(tmp_path):
    (tmp_path / "a.csv").write_text(HEAD + "0,1,0.5,3\n")
    (tmp_path / "b.csv").write_text(HEAD + "1,1,0.5,\n0,1,0.5,4.5\n")
    log = drs.read_csv([tmp_path / "b.csv", tmp_path / "a.csv"])
    assert log.source.schema.field("x0").type == pa.float64()
    (tmp_path / "c.csv").write_text(HEAD + "1,1,0.5,many\n")
    with pytest.raises(drs.LogError, match=r"files of 2 paths differ: .*x0.*sample_size=-1"):
        drs.read_csv([tmp_path / "a.csv", tmp_path / "c.csv"])


@pytest.mark.parametrize("block", [100, 1 << 23])
def test_malformed_lines_are_skipped_and_counted(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    good = "".join(f"{k % 2},1,0.5,{k}\n" for k in range(50))
    (tmp_path / "log.csv").write_text(HEAD + "0,1\n" + good + "0,1,0.5,1,2\n1,1,1.5,2\n" + good + "1\n")
    left = {"malformed line": 3, "propensity is not in (0, 1]": 1}
    done = drs.convert(tmp_path / "log.csv", tmp_path / "out.parquet", on_bad_row="skip")
    assert (done.rows, done.skipped) == (100, left)
    assert "expected 4 fields, but got 2: 0,1, in " in done.first["malformed line"]
    log = drs.read_csv(tmp_path / "log.csv", on_bad_row="skip")
    for _ in range(2):
        assert drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"]).skipped == left
    with pytest.raises(drs.LogError, match="or pass on_bad_row="):
        drs.read_csv(tmp_path / "log.csv")


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_ids_that_would_become_the_same_are_refused(tmp_path, name):
    """Arrow reads whole numbers from 2^63 on as float64, which rounds beyond 2^53."""
    ids = [18446744073709551615, 18446744073709551614, 7]
    if name == "log.csv":
        content = "user,action,reward,propensity\n" + "".join(f"{u},{k % 2},1,0.5\n" for k, u in enumerate(ids))
    else:
        rows = ({"user": u, "action": k % 2, "reward": 1, "propensity": 0.5} for k, u in enumerate(ids))
        content = "\n".join(map(json.dumps, rows))
    (tmp_path / name).write_text(content)
    read = drs.read_csv if name == "log.csv" else drs.read_json
    with pytest.raises(drs.LogError, match=r"column 'user' has type double: .* different ones may be the same"):
        drs.evaluate(read(tmp_path / name), drs.policies.Uniform(), estimators=["ips"], cluster="user")
    with pytest.raises(drs.LogError, match=r"'user' .*double"):
        read(tmp_path / name, action="user")
    exact = read(tmp_path / name, types={"user": "uint64"})
    assert exact.to_arrow(["user"])["user"].to_pylist() == ids
    assert drs.evaluate(exact, drs.policies.Uniform(), estimators=["ips"], cluster="user").n == 3


def test_a_file_that_changes_between_passes_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(HEAD + "0,1,0.5,3\n")
    log = drs.read_csv(path, actions=2)
    assert log.to_arrow().num_rows == log.source.rows == 1
    path.write_text(HEAD + "0,1,0.5,3\n" * 2)
    with pytest.raises(drs.LogError, match="changed while it was read: it had 1 rows, and has 2"):
        drs.convert(log, tmp_path / "out.parquet")


@pytest.mark.parametrize("place", ["last", "other"])
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
@pytest.mark.parametrize("block", [200, 1 << 23])
def test_a_quote_that_is_never_closed_swallows_no_rows(tmp_path, monkeypatch, place, on_bad_row, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    lines = [f"{k % 2},1,0.5,{k},x,y\n" for k in range(30)]
    lines[20] = '0,1,0.5,20,x,"y\n' if place == "last" else '0,1,0.5,20,"x,y\n'
    (tmp_path / "log.csv").write_text(HEAD[:-1] + ",one,two\n" + "".join(lines))
    with pytest.raises(drs.LogError, match=r"never closed|straddling|blocks"):
        drs.read_csv(tmp_path / "log.csv", on_bad_row=on_bad_row, context=["x0"]).to_arrow(["x0"])
