"""evaluate --compare and --logger, what is held out for models, and provenance, as typed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import drstream, fails
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparisons")
    table = world().table(3000, seed=1)
    who, p = np.where(np.arange(3000) % 3 == 0, "old", "new"), table["propensity"].to_numpy()
    table = table.append_column("who", pa.array(who)).append_column("p_old", pa.array(p))
    table = table.append_column("p_new", pa.array(p)).append_column("spend", table["reward"])
    pq.write_table(table, folder / "log.parquet")
    return folder


ONE, TWO = ["--policy", "one=constant:1"], ["--policy", "two=constant:2"]


def test_differences_between_policies(folder):
    words = "evaluate", "log.parquet", *ONE, *TWO, "--policy", "uniform", "--compare", "one,two"
    done = drstream(*words, "--compare", "two,uniform", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = drs.evaluate(
        drs.Log(folder / "log.parquet"),
        {"one": drs.policies.Constant(1), "two": drs.policies.Constant(2), "uniform": drs.policies.Uniform()},
    )
    wanted = result.difference("one", "two", "snips")
    shown = f"{wanted.value:+.5f} {wanted.low:+.5f} .. {wanted.high:+.5f}"
    assert f"one two snips {shown}" in " ".join(done.stdout.split())
    assert "two uniform ips" in " ".join(done.stdout.split())
    found = json.loads(drstream(*words, "--json", "--reward", "reward,spend", cwd=folder).stdout)
    row = found["differences"][1]
    assert (row["policy"], row["other"], row["estimator"]) == ("one", "two", "snips")
    assert (row["value"], row["low"], row["high"]) == (wanted.value, wanted.low, wanted.high)
    assert found["rewards"]["spend"]["differences"][1]["value"] == wanted.value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "one,tow"], "--compare 'one,tow': no policy is called 'tow': did you mean 'two'?"),
        (["--compare", "one"], "--compare 'one': write two policies, as NEW,OLD"),
        (["--compare", "one,one"], "--compare 'one,one' names the same policy twice"),
        (["--logger", "whoo"], "the log has no column 'whoo' for the logger: did you mean 'who'?"),
        (["--logger-propensities", "p_a"], "with --logger"),
        (["--logger", "who", "--logger-propensities", "old=p_old,new"], "write LOGGER=COLUMN for each logger"),
        (["--logger", "who", "--logger-propensities", "old=p_old"], "logger has no propensities: got 'new' at row 1"),
    ],
)
def test_wrong_words(folder, words, message):
    fails(message, "evaluate", "log.parquet", *ONE, *TWO, *words, cwd=folder)


@pytest.mark.parametrize("columns", ["old=p_old,new=p_new", "p_new,p_old"])
def test_loggers(folder, columns):
    words = "evaluate", "log.parquet", *ONE, "--logger", "who", "--logger-propensities", columns
    done = drstream(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "one new 2,000 66.7%" in text
    assert "balanced-ips" in text
    found = json.loads(drstream(*words, "--json", "--estimator", "balanced-ips", cwd=folder).stdout)
    assert [row["logger"] for row in found["loggers"]] == ["new", "old"]
    assert found["provenance"]["columns"]["logger"] == "who"


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "--policy", "constant:1", "--fit", "0.25", "--seed", "3"],
        ["replay", "--policy", "epsilon-greedy", "--horizon", "20", "--q", "0.1", "--fit", "0.25", "--fit-seed", "3"],
        ["plan", "--policy", "constant:1", "--sample", "0.5", "--fit", "0.25", "--fit-seed", "3"],
    ],
    ids=["evaluate", "replay", "plan"],
)
def test_what_is_held_out_is_said(folder, words):
    command, *options = words
    done = drstream(command, "log.parquet", *options, "--model", "ridge", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = "models were fitted on 25 % of the rows (split with seed 3): the result is about the other 75 %"
    assert told in done.stdout
    found = json.loads(drstream(command, "log.parquet", *options, "--model", "ridge", "--json", cwd=folder).stdout)
    assert found["provenance"]["fit"] == {"share": 0.25, "seed": 3, "cluster": None}
    assert found["provenance"]["held_out"] == 0.25
    assert found["provenance"]["run"] == command
    assert found["provenance"]["models"]["reward"].startswith("Ridge(), fitted on ")


def test_nothing_is_said_where_nothing_is_held_out(folder):
    for model in (["--model", "constant:0.1"], ["--model", "ridge", "--crossfit", "2"]):
        done = drstream("evaluate", "log.parquet", *ONE, *model, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "the other" not in done.stdout


def test_rows_of_files_are_held_out_and_it_is_said(folder):
    drstream("fit", "log.parquet", "--model", "ridge", "--share", "0.4", "--output", "model.npz", cwd=folder)
    done = drstream("evaluate", "log.parquet", *ONE, "--model", "model.npz", cwd=folder)
    assert (
        "40 % of the rows are held out, as models or policies from files were fitted on them: the result is"
        in done.stdout
    )


def test_tables_in_files_have_it(folder):
    drstream("evaluate", "log.parquet", *ONE, "--model", "ridge", "--output", "out.parquet", cwd=folder)
    found = json.loads(pq.read_schema(folder / "out.parquet").metadata[b"drstream"])
    assert found["fit"]["share"] == 0.5
    assert found["version"] == drs.__version__
