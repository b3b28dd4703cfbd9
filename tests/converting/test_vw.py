"""Vowpal Wabbit's text: values, features, lines that are left out; and VW's own estimates on the same files."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from drstream.converting import events as lines_of_text
from drstream.converting.events import index_of
from drstream.converting.vw import VW
from tests.helpers.systems import dsjson_lines, events, naive_index, read_lines, vw_lines, write


def read(*lines, bits=18, skip=False):
    return read_lines(VW, "\n".join(lines).encode(), bits, skip)


def hashed(bits=18, **features):
    return {naive_index(name, bits): value for name, value in features.items()}


def test_a_line_becomes_an_event(tmp_path):
    write(
        tmp_path / "log.vw",
        ["3:0.5:0.2 |u age:3 city:Bern new |", "1:-2:.25 'seen | age:-1e-3", "2:0:1 day7|u:2 age:3"],
    )
    log = drs.read_vw(tmp_path / "log.vw", bits=10)
    rows = log.head().to_pylist()
    assert [row["action"] for row in rows] == [3, 1, 2]
    assert [row["reward"] for row in rows] == [-0.5, 2.0, 0.0]
    assert [str(row["reward"]) for row in rows][2] == "0.0"  # not -0.0
    assert [row["propensity"] for row in rows] == [0.2, 0.25, 1.0]
    assert [row["tag"] for row in rows] == [None, "seen", "day7"]
    found = [dict(zip(row["indices"], row["values"], strict=True)) for row in rows]
    names = {"u^age": 3.0, "u^city:Bern": 1.0, "u^new": 1.0}
    assert found == [hashed(10, **names), hashed(10, **{"^age": -0.001}), hashed(10, **{"u^age": 6.0})]
    assert (log.n_features, list(log.labels), log.rows) == (1024, [1, 2, 3], 3)
    assert str(log).splitlines()[1] == "  context     sparse, 1,024 features: indices, values"


@given(st.lists(st.text(), max_size=5), st.integers(1, 30))
def test_the_hash(names, bits):
    assert index_of(names, bits).tolist() == [naive_index(name, bits) for name in names]


WORDS = st.text("abé=^'", min_size=1, max_size=3)
NUMBERS = st.floats(-1e300, 1e300) | st.integers(-9, 9) | st.sampled_from(["+1", "1.", ".5", "1E+5", "nan"])
FEATURES = st.lists(st.tuples(WORDS, st.none() | NUMBERS | WORDS), max_size=3)
SPACES = st.lists(
    st.tuples(st.just("") | st.text("uv", min_size=1, max_size=2), st.none() | st.integers(1, 3), FEATURES)
)
LINES = st.lists(
    st.tuples(st.integers(1, 12), st.floats(-9, 9), st.floats(0.1, 1), st.none() | WORDS, SPACES), min_size=1
)


@given(LINES, st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_line_is_what_was_written(written, windows):
    lines, wanted = [], []
    for action, cost, probability, tag, spaces in written:
        line, entries = f"{action}:{cost}:{probability} {'' if tag is None else chr(39) + tag}|", []
        for name, weight, features in spaces:
            line += name + (f":{weight}" if name and weight else "")
            for feature, value in features:
                line += f"  {feature}" + ("" if value is None else f":{value}")
                words = isinstance(value, str) and value not in ("+1", "1.", ".5", "1E+5", "nan")
                full = f"{name}^{feature}:{value}" if words else f"{name}^{feature}"
                times = weight if name and weight else 1
                entries.append((naive_index(full, 18), times * (1.0 if words or value is None else float(value))))
            line += " |"
        lines.append(line)
        wanted.append((action, 0.0 - cost, probability, tag, entries))
    table = read(*(line + "\r" * windows for line in lines))[0]
    tags = table["tag"].to_pylist() if "tag" in table.column_names else [None] * len(lines)
    for k, (action, reward, probability, tag, entries) in enumerate(wanted):
        assert (table["action"][k].as_py(), table["reward"][k].as_py(), table["propensity"][k].as_py()) == (
            action, reward, probability)  # fmt: skip
        assert tags[k] == tag
        assert table["indices"][k].as_py() == [index for index, _ in entries]
        np.testing.assert_array_equal(table["values"][k].as_py(), [value for _, value in entries])


BAD = {
    "1:1:0.5 2:1:0.5 | a": "there are 2 labels in '1:1:0.5 2:1:0.5': a log has one",
    "1 2:1:0.5 | a": "there are 2 labels in '1 2:1:0.5'",
    "1:1:0.5| a": "the label '1:1:0.5' touches the bar, which makes it a tag",
    "1:1 | a": "but got '1:1'",
    "1 | a": "but got '1'",
    "0:1:0.5 | a": "with actions from 1 on, but got '0:1:0.5'",
    "x:1:0.5 | a": "but got 'x:1:0.5'",
    "1:1:0.5:3 | a": "but got '1:1:0.5:3'",
    "1:1_0:0.5 | a": "but got '1:1_0:0.5'",
    "1:1:0.5": "there is no bar (|) in '1:1:0.5'",
    "1:1:0.5 | :3": "a feature has no name: ':3'",
    "1:1:0.5 | a:1:2": "a feature is name:value, but got 'a:1:2'",
    "1:1:0.5 | a:": "a feature is name:value, but got 'a:'",
    "1:1:0.5 |n:w a": "a namespace is name:weight, but got 'n:w'",
    "1:1:0.5 |:2 a": "a namespace is name:weight, but got ':2'",
    "shared | a": "'shared' begins an event of several lines (adf)",
}


@pytest.mark.parametrize("line", BAD)
def test_malformed_lines(line):
    with pytest.raises(drs.LogError, match=r", at line 3 of .*\. Repair the line, or remove it") as caught:
        read("1:1:0.5 | a", "", line, "2:1:0.5 | a")
    assert BAD[line] in str(caught.value)
    if "shared" in line:
        with pytest.raises(drs.LogError, match="shared"):
            read("1:1:0.5 | a", line, skip=True)
        return
    table, lines, source = read("1:1:0.5 | a", "", line, "2:1:0.5 | b", line, skip=True)
    assert table["action"].to_pylist() == [1, 2]
    assert table["indices"].to_pylist() == [[naive_index("^a", 18)], [naive_index("^b", 18)]]
    assert lines == [1, 4]
    assert source.dropped == {"malformed line": 2}
    assert ", at line 3 of " in source.left_out["malformed line"]


@pytest.mark.parametrize("rows", [3, 1 << 17])
def test_bad_rows_are_named_or_counted(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(lines_of_text, "PIECE", rows)
    monkeypatch.setattr(lines_of_text, "AT_ONCE", 2)
    lines = vw_lines(events(50))
    lines[7], lines[20], lines[21], lines[33] = "1:oops:0.5 | a", " | only:1 features", "", "1:0.5:1.5 | a"
    lines[40] = "broken"
    path = write(tmp_path / "log.vw", lines)
    with pytest.raises(
        drs.LogError, match=rf"but got '1:oops:0.5', at line 8 of {path}\. Repair the line, or remove it, or"
    ):
        drs.read_vw(path)
    log = drs.read_vw(path, on_bad_row="skip")
    result = drs.evaluate(log, drs.policies.Constant(2), estimators=["ips"])
    assert result.skipped == {"malformed line": 2, "no label": 1, "propensity is not in (0, 1]": 1}
    assert "  left out    2 (malformed line); the first: a label is action:cost:probability, e.g." in str(log)
    assert f"but got '1:oops:0.5', at line 8 of {path}" in str(log)
    done = drs.convert(path, tmp_path / "out.parquet", on_bad_row="skip")
    assert (done.rows, done.skipped) == (45, result.skipped)
    assert done.first["no label"] == f"there is no label in '| only:1 features', at line 21 of {path}"
    for k in (7, 40):
        lines[k] = ""
    with pytest.raises(drs.LogError, match=rf"propensity is not in \(0, 1\]: got 1.5 at row 30 \(line 34 of {path}\)"):
        drs.evaluate(drs.read_vw(write(path, lines)), drs.policies.Uniform(), estimators=["ips"])


def test_unlabelled_lines_are_counted_without_asking(tmp_path):
    path = write(tmp_path / "log.vw", [" | a", *vw_lines(events(10)), "'tag | b"])
    assert drs.convert(path, tmp_path / "out.parquet").skipped == {"no label": 2}
    with pytest.raises(
        drs.LogError, match=r"holds no row: there is nothing to read, but e\.g\. there is no label in '\| a'"
    ):
        drs.read_vw(write(path, [" | a"]))


def test_lines_that_are_not_utf8(tmp_path):
    (tmp_path / "log.vw").write_bytes("1:1:0.5 | a\n2:1:0.5 | Zürich\n".encode("latin1"))
    with pytest.raises(drs.LogError, match=r"is not UTF-8: write it as UTF-8.* at line 2 of"):
        drs.read_vw(tmp_path / "log.vw")
    assert drs.read_vw(tmp_path / "log.vw", on_bad_row="skip").rows == 1


def test_results_do_not_depend_on_the_file(tmp_path):
    path = write(tmp_path / "log.vw", vw_lines(events(400)))
    (tmp_path / "log.vw.gz").write_bytes(gzip.compress(path.read_bytes()))
    drs.convert(tmp_path / "log.vw.gz", tmp_path / "log.parquet", bits=8)
    logs = [
        drs.read_vw(path, bits=8),
        drs.read_vw(tmp_path / "log.vw.gz", bits=8),
        drs.Log(tmp_path / "log.parquet", actions=[1, 2, 3]),  # its metadata says how contexts are stored
    ]
    weights = np.random.default_rng(0).normal(size=(3, 2**8))
    policy = drs.policies.Softmax(weights)
    found = []
    for train, test in (log.split(0.5) for log in logs):
        model = drs.models.Ridge().fit(train)
        found.append([estimate["value"] for estimate in drs.evaluate(test, policy, model).rows()])
    assert found[0] == found[1] == found[2]


def test_labels(tmp_path):
    path = write(tmp_path / "log.vw", ["2:1:0.5 | a", "5:1:0.5 | a"])
    assert list(drs.read_vw(path).labels) == [1, 2, 3, 4, 5]
    assert list(drs.read_vw(path, actions=7).labels) == [1, 2, 3, 4, 5, 6, 7]
    assert list(drs.read_vw(path, actions=[5, 2]).labels) == [5, 2]
    with pytest.raises(drs.LogError, match="the largest action is 99,999,999"):
        drs.read_vw(write(path, ["99999999:1:0.5 | a"]))


@pytest.mark.parametrize("bits", [0, 31, True, "18"])
def test_bits(tmp_path, bits):
    with pytest.raises(drs.LogError, match="give 1 to 30"):
        drs.read_vw(write(tmp_path / "log.vw", ["2:1:0.5 | a"]), bits=bits)


def test_near_names_of_parameters(tmp_path):
    with pytest.raises(drs.DrstreamError, match="did you mean 'propensity'"):
        drs.read_vw(write(tmp_path / "log.vw", ["2:1:0.5 | a"]), propensty="p")


# Vowpal Wabbit's own numbers


def vw(words):
    """Run Vowpal Wabbit, and return the average loss."""
    workspace = pytest.importorskip("vowpalwabbit").Workspace(f"{words} --quiet")
    loss = workspace.get_sum_loss() / workspace.get_weighted_examples()
    workspace.finish()
    return loss


def predictions(path):
    return [line for line in path.read_text().splitlines() if line]


def with_column(path, name, values):
    """The same log with one more column."""
    table = pq.read_table(path)
    pq.write_table(table.append_column(name, pa.array(values)), path)
    return path


@pytest.mark.slow
def test_ips_of_a_constant_policy_is_that_of_vw(tmp_path):
    found = events(500)
    path = write(tmp_path / "log.vw", vw_lines(found))
    write(tmp_path / "eval.vw", vw_lines(found, before="2 "))  # VW's --eval takes the policy's action first
    loss = vw(f"--cb 3 --eval --cb_type ips -d {tmp_path}/eval.vw")
    ours = drs.evaluate(drs.read_vw(path), drs.policies.Constant(2), estimators=["ips"])
    assert abs(ours["ips"].value + loss) < 1e-6


@pytest.mark.slow
def test_ips_of_a_model_of_vw_on_the_same_file(tmp_path):
    path = write(tmp_path / "log.vw", vw_lines(events(500, seed=1)))
    vw(f"--cb 3 --cb_type ips -d {path} -f {tmp_path}/model")
    loss = vw(f"-t -i {tmp_path}/model --cb_type ips -d {path} -p {tmp_path}/chosen")
    drs.convert(path, tmp_path / "log.parquet")
    chosen = [int(line) + 1 for line in predictions(tmp_path / "chosen")]  # VW writes them from 0 on
    assert len(set(chosen)) > 1
    log = drs.Log(with_column(tmp_path / "log.parquet", "vw", chosen), actions=[1, 2, 3])
    ours = drs.evaluate(log, drs.policies.Column("vw"), estimators=["ips"])
    assert abs(ours["ips"].value + loss) < 1e-6


@pytest.mark.slow
def test_ips_of_an_exploring_model_on_dsjson(tmp_path):
    path = write(tmp_path / "log.dsjson", dsjson_lines(events(500, seed=2)))
    vw(f"--cb_explore_adf --epsilon 0.3 --cb_type ips -q ui --dsjson -d {path} -f {tmp_path}/model")
    loss = vw(f"-t -i {tmp_path}/model --dsjson -d {path} -p {tmp_path}/chosen")
    drs.convert(path, tmp_path / "log.parquet")
    chances = []
    for line in predictions(tmp_path / "chosen"):
        pairs = dict(pair.split(":") for pair in line.split(","))
        chances.append([float(pairs[str(k)]) for k in range(3)])
    log = drs.Log(with_column(tmp_path / "log.parquet", "vw", chances))
    ours = drs.evaluate(log, drs.policies.Column("vw"), estimators=["ips"])
    assert abs(ours["ips"].value + loss) < 1e-6
