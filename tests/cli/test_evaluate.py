"""The command line, as typed."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.evaluation import estimators
from drstream.replaying.options import METHODS
from tests.helpers.command import PROGRAM, drstream, fails, on_a_terminal
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    w = world()
    w.write(folder / "log.parquet", 3000, seed=1)
    np.savez(folder / "w.npz", weights=w.taste, intercept=w.appeal)
    np.savez(folder / "hot.npz", weights=w.taste, temperature=2.0)
    np.savez(folder / "wrong.npz", wieghts=w.taste)
    np.savez(folder / "text.npz", weights=np.array([["a"]]))
    np.savez(folder / "hotter.npz", weights=w.taste, temperature=[1.0, 2.0])
    np.savez(folder / "small.npz", weights=np.zeros((2, 2)))
    (folder / "mine.py").write_text(
        "import numpy as np\n"
        "def even(X):\n    return np.full((len(X), 4), 0.25)\n"
        "class Even:\n    def probabilities(self, X):\n        return even(X)\n"
        "class Needy:\n    def __init__(self, x):\n        pass\n"
        "def broken(X):\n    raise ZeroDivisionError('my own mistake')\n"
        "def rhat(X):\n    return np.zeros((len(X), 4))\n"
        "from drstream.models import from_function\n"
        "model = from_function(rhat)\n"
    )
    names = np.array(["ad", "news", "shop", "video"])
    table = pq.read_table(folder / "log.parquet")
    pq.write_table(table.set_column(0, "action", pa.array(names[table["action"].to_numpy()])), folder / "named.parquet")
    bad = table["propensity"].to_numpy().copy()
    bad[17] = 0.0
    pq.write_table(table.set_column(2, "propensity", pa.array(bad)), folder / "bad.parquet")
    return folder


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], ["describe", "evaluate", "fit", "optimize", "replay", "demo", "--version"]),
        (["evaluate", "--help"], ["--estimator", "--policy", *estimators.ALL]),
        (["replay", "--help"], ["--horizon", "epsilon-greedy", *METHODS]),
        (["optimize", "--help"], ["--learner", "dlm", "filter-tree", "offset-tree"]),
        (["fit", "--help"], ["--model", "ridge", "logistic", "propensity"]),
        (["describe", "--help"], ["--json"]),
        (["demo", "--help"], ["--rows"]),
        (["--version"], [drs.__version__]),
    ],
    ids=lambda x: " ".join(x[:2]),
)
def test_help_and_version_import_nothing_heavy(words, shown):
    code = (
        f"import sys\nsys.argv = ['drstream', *{words}]\n"
        "from drstream.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numba', 'pyarrow', 'numpy', 'scipy', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    said = set(re.findall(r"[\w.-]*\w", done.stdout))
    assert set(shown) <= said


def test_version():
    assert drstream("--version").stdout.strip() == f"drstream {drs.__version__}"


def test_describe(folder):
    done = drstream("describe", "log.parquet", cwd=folder)
    assert done.returncode == 0
    for text in ("3,000 rows", "3 features: x0, x1, x2", "4 actions 0, 1, 2, 3", "propensity  propensity"):
        assert text in done.stdout
    about = json.loads(drstream("describe", "named.parquet", "--json", cwd=folder).stdout)
    assert about["labels"] == ["ad", "news", "shop", "video"]
    assert about["rows"] == 3000


def test_evaluate_every_kind_of_policy(folder):
    policies = [
        "uniform",
        "constant:2",
        "soft=softmax:w.npz",
        "softmax:hot.npz",
        "linear:w.npz",
        "python:mine:even",
        "python:mine:Even",
    ]
    words = [word for policy in policies for word in ("--policy", policy)]
    done = drstream("evaluate", "log.parquet", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = {(row["policy"], row["estimator"]): row for row in json.loads(done.stdout)["estimates"]}
    w = world()
    ref = drs.evaluate(
        folder / "log.parquet",
        {
            "uniform": drs.policies.Uniform(),
            "constant:2": drs.policies.Constant(2),
            "soft": drs.policies.Softmax(w.taste, w.appeal),
            "softmax:hot.npz": drs.policies.Softmax(w.taste, temperature=2),
            "linear:w.npz": drs.policies.Linear(w.taste, w.appeal),
            "python:mine:even": drs.policies.Uniform(),
            "python:mine:Even": drs.policies.Uniform(),
        },
    )
    assert len(found) == 14
    for key, row in found.items():
        assert row["value"] == pytest.approx(ref[key].value, rel=1e-12)
        assert row["low"] == pytest.approx(ref[key].low, rel=1e-12)


def test_evaluate_with_models(folder):
    for model in ("ridge", "ridge:10", "constant:0.2", "python:mine:model", "column:x0,x1,x2,x0"):
        done = drstream("evaluate", "log.parquet", "--policy", "uniform", "--model", model, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert [row["estimator"] for row in result["estimates"]] == ["ips", "snips", "dr", "dm"]
        assert result["events"] == (
            3000
            if "ridge" not in model
            else drs.evaluate(drs.Log(folder / "log.parquet").split(0.5)[1], drs.policies.Uniform()).n
        )


def test_table_options_and_outputs(folder, tmp_path):
    words = (
        "evaluate",
        folder / "named.parquet",
        "--policy",
        "constant:news",
        "--estimator",
        "ips,ips-capped",
        "--cap",
        "2",
        "--confidence",
        "0.9",
    )
    for name, read in (("out.parquet", pq.read_table), ("out.csv", pyarrow.csv.read_csv)):
        done = drstream(*words, "--output", tmp_path / name)
        assert done.returncode == 0, done.stderr
        for text in ("90 % interval", "constant:news", "ips-capped", "capped", "vs logging", "3,000 events"):
            assert text in done.stdout
        assert "events/s" in done.stderr
        table = read(tmp_path / name)
        assert table["estimator"].to_pylist() == ["ips", "ips-capped"]
        assert table["max_weight"].to_pylist()[1] <= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.parquet"]


def test_output_never_overwrites_the_log(folder):
    before = (folder / "log.parquet").read_bytes()
    for path in ("log.parquet", "../" + folder.name + "/log.parquet"):
        fails(
            "is a file of the log itself",
            "evaluate",
            "log.parquet",
            "--policy",
            "uniform",
            "--output",
            path,
            cwd=folder,
        )
    assert (folder / "log.parquet").read_bytes() == before


def test_full_disk(folder):
    words = " ".join(map(str, ("evaluate", folder / "log.parquet", "--policy", "uniform", "--json")))
    command = f"{sys.executable} -c 'from drstream.cli import main; main()' {words} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: cannot write the result: No space left on device"
    assert "Traceback" not in done.stderr


def test_labels_like_markup_are_shown_as_they_are(tmp_path):
    table = pa.table({"action": ["[red]x", "a[/b]"], "reward": [1.0, 0.0], "propensity": [0.5, 0.5]})
    pq.write_table(table, tmp_path / "log.parquet")
    assert "a[/b]" in drstream("describe", "log.parquet", cwd=tmp_path).stdout
    done = drstream("evaluate", "log.parquet", "--policy", "constant:[red]x", cwd=tmp_path)
    assert "constant:[red]x" in done.stdout


def test_describe_shows_columns_where_roles_are_not_found(tmp_path):
    pq.write_table(pa.table({"who": ["a"], "paid": [1.5]}), tmp_path / "log.parquet")
    done = drstream("describe", "log.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "paid: double" in done.stdout
    assert "name it with --action" in done.stderr


def test_skipped_rows_are_shown(folder):
    done = drstream("evaluate", "bad.parquet", "--policy", "uniform", "--on-bad-row", "skip", cwd=folder)
    assert done.returncode == 0
    assert "rows skipped: 1 (propensity is not in (0, 1])" in done.stdout


def test_no_progress_bar_in_a_pipe(folder):
    done = drstream("evaluate", "log.parquet", "--policy", "uniform", cwd=folder)
    assert "\x1b" not in done.stdout + done.stderr
    lines = [
        line for line in done.stderr.splitlines() if not line.startswith("compil")
    ]  # perhaps the first to need kernels
    assert len(lines) == 1


def test_progress_bar_on_a_terminal(folder):
    """The bar shows events and speed, and is gone at the end."""
    out, shown = on_a_terminal("evaluate", "log.parquet", "--policy", "uniform", "--json", cwd=folder, columns=100)
    assert b"3,000 events" in shown
    assert json.loads(out)["events"] == 3000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "nope.parquet", "--policy", "uniform"), "no such file or directory: 'nope.parquet'"),
        (("evaluate", "mine.py", "--policy", "uniform"), "cannot read mine.py as Parquet"),
        (("evaluate", "log.parquet", "--policy", "unifrom"), "did you mean 'uniform'?"),
        (("evaluate", "log.parquet", "--policy", "constant:9"), "takes action 9, which is not among the 4 actions"),
        (("evaluate", "log.parquet", "--policy", "column:nope"), "no column 'nope'"),
        (("evaluate", "log.parquet", "--policy", "softmax:nope.npz"), "no such file: 'nope.npz'"),
        (("evaluate", "log.parquet", "--policy", "softmax:mine.py"), "mine.py is not an .npz file"),
        (
            ("evaluate", "log.parquet", "--policy", "linear:wrong.npz"),
            "holds no array 'weights' (actions x features): did you mean 'wieghts'?",
        ),
        (
            ("evaluate", "log.parquet", "--policy", "linear:small.npz"),
            "policy 'linear:small.npz' has weights of shape (2, 2)",
        ),
        (("evaluate", "log.parquet", "--policy", "linear:text.npz"), "must be arrays of numbers"),
        (("evaluate", "log.parquet", "--policy", "softmax:hotter.npz"), "'temperature' must be one number"),
        (("evaluate", "log.parquet", "--policy", "python:mine:Needy"), "cannot be made without arguments"),
        (("evaluate", "log.parquet", "--policy", "constant:²"), "takes action '²', which is not among"),
        (
            ("evaluate", "log.parquet", "--policy", "uniform", "--model", "ridge:inf"),
            "alpha=inf must be a finite number",
        ),
        (("evaluate", "log.parquet", "--policy", "linear:hot.npz"), "holds an array 'temperature' that is not known"),
        (("evaluate", "log.parquet", "--policy", "python:mine:nope"), "cannot be imported"),
        (("evaluate", "log.parquet", "--policy", "python:nope:nope"), "No module named 'nope'"),
        (("evaluate", "log.parquet", "--policy", "python:mine"), "write python:MODULE:OBJECT"),
        (
            ("evaluate", "log.parquet", "--policy", "uniform", "--policy", "uniform"),
            "two policies are called 'uniform'",
        ),
        (("evaluate", "log.parquet", "--policy", "uniform", "--model", "rigde"), "--model 'rigde' is not a model"),
        (("evaluate", "log.parquet", "--policy", "uniform", "--model", "ridge:x"), "'x' is not a number"),
        (
            ("evaluate", "log.parquet", "--policy", "uniform", "--estimator", "ipps"),
            "no estimator 'ipps': did you mean 'ips'",
        ),
        (("evaluate", "log.parquet", "--policy", "uniform", "--output", "out.xlsx"), "must end in .parquet or .csv"),
        (("evaluate", "log.parquet", "--policy", "uniform", "--output", "no/out.csv"), "there is no folder 'no'"),
        (("evaluate", "log.parquet", "--policy", "uniform", "--reward", "rewrad"), "did you mean 'reward'?"),
        (
            ("evaluate", "bad.parquet", "--policy", "uniform", "--output", "out.csv"),
            "propensity is not in (0, 1]: got 0.0 at row 17",
        ),
        (
            ("evaluate", "named.parquet", "--policy", "uniform", "--actions", "ad,news"),
            "action is not among the labels: got 'shop' at row 1",
        ),
        (("evaluate", "log.parquet"), "Missing option '--policy'"),
        (("describe",), "Missing argument 'LOG...'"),
        (("evaluate", "log.parquet", "--policy", "ucb1"), "learns while it runs: drstream replay"),
        (("evaluate", "log.parquet", "--polcy", "uniform"), "No such option"),
        (("evaluate", "log.parquet", "--policy", "uniform", "--context", "y*"), "no column matches 'y*'"),
    ],
    ids=lambda x: " ".join(x[1:4]) if isinstance(x, tuple) else "",
)
def test_bad_input_is_exit_code_2(words, message, folder):
    before = sorted(folder.iterdir())
    fails(message, *words, cwd=folder)
    assert [p for p in sorted(folder.iterdir()) if p.name != "__pycache__"] == [
        p for p in before if p.name != "__pycache__"
    ]


def test_a_policy_that_raises_shows_its_own_traceback(folder):
    done = drstream("evaluate", "log.parquet", "--policy", "python:mine:broken", cwd=folder)
    assert done.returncode == 1
    assert "my own mistake" in done.stderr
    assert "raised by policy 'python:mine:broken'" in done.stderr


def test_demo(tmp_path):
    done = drstream("demo", "--rows", "20000", env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    for text in ("truth", "uniform", "softmax", "greedy", "of 9 intervals"):
        assert text in done.stdout
    assert not list(tmp_path.iterdir())


def test_interrupt(folder, tmp_path):
    """Ctrl-C: one word, exit code 130, nothing half-written."""
    world().write(tmp_path / "long.parquet", 200_000)
    (tmp_path / "slow.py").write_text(
        "import time\nimport numpy as np\n"
        "def slow(X):\n    time.sleep(0.5)\n    print('working', flush=True)\n    return np.full((len(X), 4), 0.25)\n"
    )
    process = subprocess.Popen(
        [*PROGRAM, "evaluate", "long.parquet", "--policy", "python:slow:slow", "--output", "out.csv"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "working\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - started < 3  # a row group would take ten times as long
    assert process.returncode == 130
    assert error == "interrupted\n"
    assert not list(tmp_path.glob("out*"))


def test_output_to_a_closed_pipe(folder):
    words = " ".join(map(str, ("evaluate", folder / "log.parquet", "--policy", "uniform", "--json")))
    command = f"{sys.executable} -c 'from drstream.cli import main; main()' {words} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "{"
