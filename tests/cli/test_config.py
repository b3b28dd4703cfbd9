"""--config: options in drstream.toml, or in [tool.drstream] of pyproject.toml."""

import json

import numpy as np
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

EVALUATE = "evaluate", "../log.parquet", "--json"
GOOD = """
context = "x*"
policy = ["new=softmax:weights.npz", "mine=python:of_ours:even"]
horizon = 50                      # of other commands
reward-range = [0, 1]

[evaluate]
interval = ["tails", "normal"]    # as tails,normal
confidence = 0.9
model = "model.npz"
explain = true
"""
TYPED = (
    *("--context", "x*", "--policy", "new=softmax:job/weights.npz", "--policy", "mine=python:of_ours:even"),
    *("--interval", "tails,normal", "--confidence", "0.9", "--model", "job/model.npz", "--explain"),
    *("--reward-range", "0,1"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """log.parquet, a folder `job` with the file and what it names, and a folder `here` to start from."""
    folder = tmp_path_factory.mktemp("config")
    w = world()
    w.write(folder / "log.parquet", 2000, seed=1)
    for name in ("job", "here"):
        (folder / name).mkdir()
    np.savez(folder / "job" / "weights.npz", weights=w.taste, intercept=w.appeal)
    text = "import numpy as np\ndef even(X):\n    return np.full((len(X), 4), 0.25)\n"
    for place in (folder, folder / "job"):  # the one above is for the words as typed
        (place / "of_ours.py").write_text(text)
    fitted = drstream("fit", "log.parquet", "--model", "ridge", "--share", "0.5", "-o", "job/model.npz", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    (folder / "job" / "drstream.toml").write_text(GOOD)
    tables = GOOD.replace("[evaluate]", "[tool.drstream.evaluate]")
    (folder / "job" / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[tool.drstream]\n{tables}")
    return folder


def estimates(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["estimates"]


@pytest.mark.parametrize("name", ["drstream.toml", "pyproject.toml"])
def test_options_of_a_file_are_those_typed(name, folder):
    """Files that it names are beside it, also if the command is started elsewhere."""
    found = estimates(drstream(*EVALUATE, "--config", f"../job/{name}", cwd=folder / "here"))
    assert found == estimates(drstream("evaluate", "log.parquet", "--json", *TYPED, cwd=folder))


def test_options_typed_win(folder):
    words = "--config", "../job/drstream.toml", "--policy", "uniform", "--interval", "normal"
    found = estimates(drstream(*EVALUATE, *words, cwd=folder / "here"))
    assert {row["policy"] for row in found} == {"uniform"}
    assert {row["method"] for row in found if row["estimator"] != "dm"} == {"normal"}


def test_other_commands_take_what_they_have(folder, tmp_path):
    done = drstream("describe", "../log.parquet", "--config", "../job/drstream.toml", "--json", cwd=folder / "here")
    assert json.loads(done.stdout)["context"] == ["x0", "x1", "x2"]
    (tmp_path / "drstream.toml").write_text("policy = 'ucb1'\nhorizon = 20\nq = 0.1\n[fit]\noutput = 'm.npz'\n")
    words = "--config", tmp_path / "drstream.toml"
    assert drstream("replay", "log.parquet", *words, cwd=folder).returncode == 0
    assert drstream("fit", "log.parquet", "--model", "ridge", *words, cwd=folder).returncode == 0
    assert (tmp_path / "m.npz").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy = 'uniform'", "job.toml, line 1: there is no option 'polcy': did you mean 'policy'?"),
        ("\npropensity_modle = 'x'", "line 2: there is no option 'propensity_modle': did you mean 'propensity-model'"),
        ("[evaluat]\nfit = 1", "line 1: [evaluat] is not a command: did you mean 'evaluate'?"),
        ("fit = 0.5\n[replay]\nq = 1\nseed = 2\nseeds = 1", "line 5: drstream replay has no option 'seeds': did you"),
        ("fit = 'half'", "line 1: fit = 'half': it must be a number"),
        ("[fit]\nseed = 1.5", "line 2: seed = 1.5: it must be a whole number"),
        ("policy = true", "line 1: policy = true: it must be a text"),
        ("policy = ['uniform', ['x']]", "line 1: policy = ['x']: it must be a text"),
        ("json = 1", "line 1: json = 1: it must be true or false"),
        ("output = 3", "line 1: output = 3: it must be a name of a file"),
        ("policy = 'uniform'\nfit = 2", "(--fit is from job.toml, line 2)"),
        ("policy = 'unifrom'", "did you mean 'uniform'?"),
        ("policy = 'unifrom'", "(--policy is from job.toml, line 1)"),
        ("policy = [", "job.toml is not TOML"),
        ("policy = 'uniform'\nconfig = 'x'", "there is no option 'config'"),
    ],
)
def test_mistakes_name_the_line(text, message, tmp_path, folder):
    (tmp_path / "job.toml").write_text(text)
    done = fails(message, "evaluate", folder / "log.parquet", "--config", "job.toml", cwd=tmp_path)
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_files_that_are_none(tmp_path, folder):
    words = "evaluate", folder / "log.parquet", "--config"
    fails("nope.toml: no such file", *words, "nope.toml", cwd=tmp_path)
    fails("no such file", *words, ".", cwd=tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.other]\npolicy = 1\n")
    fails("has no table [tool.drstream]", *words, "pyproject.toml", cwd=tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    fails("cannot read it", *words, "bytes.toml", cwd=tmp_path)
