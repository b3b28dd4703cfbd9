"""`drstream replay`, as typed."""

import json
import os
import signal
import subprocess

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import PROGRAM, drstream, fails, on_a_terminal
from tests.helpers.logs import world

LEARNER = """
import sys
import time
import numpy as np

class Even:
    version = 0
    def reset(self):
        pass
    def probabilities(self, X):
        return np.full((len(X), 4), 0.25)
    def update(self, x, action, reward):
        pass

class Slow(Even):
    def update(self, x, action, reward):
        time.sleep(0.02)
        sys.stdout.write("working\\n")  # in one piece: lanes run on threads
        sys.stdout.flush()

class Broken(Even):
    def update(self, x, action, reward):
        raise ZeroDivisionError("my own mistake")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    world().write(folder / "log.parquet", 6000, seed=1, row_group_rows=1500)
    (folder / "mine.py").write_text(LEARNER)
    return folder


def test_table_json_and_files(folder):
    words = ["replay", "log.parquet", "--policy", "epsilon-greedy", "--epsilon", "0.2", "--horizon", "30"]
    words += ["--q", "0,0.1", "--policy", "b=linucb:alpha=0.5", "--alpha", "3", "--model", "ridge:5", "--fit", "0.3"]
    done = drstream(*words, "--output", "out.parquet", "--curve", "curve.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    for text in ("epsilon-greedy", " b ", "T = 30 steps", "replicates", "left over", "replayed by dr-ns"):
        assert text in done.stdout
    assert " events/s" in done.stderr
    train, test = drs.Log(folder / "log.parquet").split(0.3, seed=0)
    policies = {"epsilon-greedy": drs.policies.EpsilonGreedy(0.2), "b": drs.policies.LinUCB(0.5)}
    wanted = drs.replay(test, policies, 30, drs.models.Ridge(5).fit(train), q=[0.0, 0.1])
    written = pq.read_table(folder / "out.parquet").to_pylist()
    assert repr(written) == repr(wanted.to_arrow().to_pylist())  # NaN is not NaN
    curve = pa.csv.read_csv(folder / "curve.csv")
    assert curve.num_rows == 4 * 30
    assert set(curve.column_names) >= {"policy", "q", "seed", "t", "reward", "average", "c"}
    as_json = json.loads(drstream(*words, "--json", cwd=folder).stdout)
    assert [run["value"] for run in as_json["runs"]] == [run.value for run in wanted]


def test_targets_of_the_bias_mass(folder):
    words = ["replay", "log.parquet", "--policy", "epsilon-greedy", "--horizon", "30", "--json"]
    for more, options in (([], {}), (["--bias", "0.02,0.1"], {"bias": [0.02, 0.1]})):
        done = drstream(*words, *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        policies = {"epsilon-greedy": drs.policies.EpsilonGreedy()}
        wanted = drs.replay(folder / "log.parquet", policies, 30, **options)
        assert json.loads(done.stdout)["runs"] == json.loads(wanted.to_json())["runs"]
    table = drstream(*words[:-1], "--bias", "0.02,0.1", cwd=folder).stdout
    assert "bias" in table
    assert "0.02" in table


def test_other_methods_and_options(folder):
    words = ["replay", "log.parquet", "--horizon", "15", "--policy", "ucb1", "--policy", "uniform"]
    words += ["--policy", "python:mine:Even", "--method", "rs", "--seed", "1,2", "--shards", "2", "--replicates", "6"]
    done = drstream(*words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(r["policy"], r["seed"]) for r in runs] == [
        (p, s) for p in ("ucb1", "uniform", "python:mine:Even") for s in (1, 2)
    ]
    assert {r["replicates"] for r in runs} == {6}
    assert runs[0]["q"] is None
    assert runs[0]["c_max"] == pytest.approx(min(pq.read_table(folder / "log.parquet")["propensity"].to_pylist()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "epsilon-gredy", "--horizon", "5"), "did you mean 'epsilon-greedy'"),
        (("--policy", "linucb:alhpa=1", "--horizon", "5"), "'alhpa' is not a parameter of it: did you mean 'alpha'"),
        (("--policy", "linucb:alpha=x", "--horizon", "5"), "alpha='x' is not a number"),
        (("--policy", "linucb:alpha=1,alpha=2", "--horizon", "5"), "alpha is given twice"),
        (("--policy", "linucb:ridge=0", "--horizon", "5"), "LinUCB: ridge=0 must be a number above 0"),  # no --ridge
        (("--policy", "ucb1", "--epsilon", "0.1", "--horizon", "5"), "--epsilon is a parameter of none of"),
        (("--policy", "ucb1", "--policy", "ucb1", "--horizon", "5"), "two policies are called 'ucb1'"),
        (("--policy", "ucb1", "--horizon", "0"), "--horizon 0 must be a whole number of at least 1"),
        (("--policy", "ucb1", "--horizon", "5", "--q", "1.5"), "--q 1.5: the quantile level must be in [0, 1]"),
        (("--policy", "ucb1", "--horizon", "5", "--q", "a"), "--q 'a': write numbers, separated by commas"),
        (("--policy", "ucb1", "--horizon", "5", "--c-max", "2"), "--c-max 2.0"),
        (("--policy", "ucb1", "--horizon", "5", "--bias", "1.5"), "--bias 1.5: the target of the bias mass must be in"),
        (
            ("--policy", "ucb1", "--horizon", "5", "--bias", "a"),
            "write numbers, separated by commas, or auto",
        ),
        (("--policy", "ucb1", "--horizon", "5", "--bias", "0.1,0.1"), "--bias 0.1,0.1: give at least one value, and"),
        (("--policy", "ucb1", "--horizon", "5", "--bias", "0.1", "--q", "0.1"), "--q [0.1]: give one of them"),
        (("--policy", "ucb1", "--horizon", "5", "--carry"), "--carry True is for --q: with --bias"),
        (("--policy", "ucb1", "--horizon", "5", "--method", "rs", "--bias", "0.1"), "rs has a constant multiplier"),
        (("--policy", "ucb1", "--horizon", "5", "--method", "dm"), "--method dm is r̂ alone: pass a reward model"),
        (("--policy", "ucb1", "--horizon", "5", "--shards", "9"), "--shards 9: the log has 4 row groups"),
        (("--policy", "ucb1", "--horizon", "50000"), "5,850 events simulated"),
        (("--policy", "ucb1"), "Missing option '--horizon'"),
        (("--policy", "epsilon-greedy", "--epsilon", "3", "--horizon", "5"), "epsilon=3.0 must be a number"),
        (("--policy", "ucb1", "--horizon", "5", "--output", "log.parquet"), "is a file of the log itself"),
        (("--policy", "ucb1", "--horizon", "5", "--output", "a.csv", "--curve", "a.csv"), "are both a.csv: give two"),
        (
            ("--policy", "ucb1", "--horizon", "100000000000000000000"),
            "--horizon 100000000000000000000 must be a whole number",
        ),
        (("--policy", "ucb1", "--horizon", "5", "--method", "rs", "--q", "0,0.1"), "rs does not use q"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_bad_input_is_exit_code_2(words, message, folder):
    fails(message, "replay", "log.parquet", *words, cwd=folder)


def test_a_policy_that_raises_shows_its_own_traceback_with_t_and_row(folder):
    done = drstream("replay", "log.parquet", "--policy", "python:mine:Broken", "--horizon", "5", cwd=folder)
    assert done.returncode == 1
    assert "my own mistake" in done.stderr
    assert "raised by update of policy 'python:mine:Broken' at t = 1, row " in done.stderr


def test_progress_on_a_terminal_shows_replicates_and_acceptance(folder):
    words = ["replay", "log.parquet", "--policy", "ucb1", "--horizon", "10", "--json"]
    out, shown = on_a_terminal(*words, cwd=folder, columns=100)
    for text in (b"6,000 events", b"replicates", b"% accepted"):
        assert text in shown
    assert json.loads(out)["runs"]


def test_the_table_fits_80_columns(folder):
    words = ["replay", "log.parquet", "--policy", "epsilon-greedy", "--horizon", "10", "--q", "0.01,0.1"]
    done = drstream(*words, cwd=folder, env={**os.environ, "COLUMNS": "80", "TTY_COMPATIBLE": "1", "NO_COLOR": "1"})
    table = [line for line in done.stdout.splitlines() if not line.startswith("note")]
    assert "…" not in done.stdout
    assert any("epsilon-greedy" in line and "0.01" in line and ".." in line for line in table)


@pytest.mark.parametrize(("horizon", "after"), [(3, 60), (5000, 2)])
def test_ctrl_c_shows_what_is_complete(folder, horizon, after):
    """Exit code 130; the replicates that were complete are shown, or that there is none."""
    process = subprocess.Popen(
        [*PROGRAM, "replay", "log.parquet", "--policy", "python:mine:Slow", "--horizon", str(horizon)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(after):
        assert process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error
    if horizon == 3:
        assert "note: interrupted after" in out
        assert "python:mine:Slow" in out
    else:
        assert "before any replicate of 5000 steps was complete" in error
