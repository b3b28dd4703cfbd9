"""`--checkpoint` of the commands that take long: it changes no bit, and the file is deleted at the end."""

import os

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.logs import world

COMMANDS = {
    "fit": ["--model", "logistic", "-o", "out.npz"],
    "evaluate": ["--policy", "uniform", "--model", "logistic", "--output", "out.csv"],
    "replay": [
        "--policy",
        "epsilon-greedy",
        "--horizon",
        "50",
        "--model",
        "ridge",
        "--crossfit",
        "2",
        "--output",
        "out.csv",
    ],
    "optimize": ["--learner", "dlm:restarts=2,epochs=5", "-o", "out.npz"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_checkpoints_change_no_bit(command, tmp_path):
    pq.write_table(world().table(1500, seed=1), tmp_path / "log.parquet", row_group_size=500)
    words = [command, "log.parquet", *COMMANDS[command]]
    out = tmp_path / words[-1]
    found = []
    for more in ([], ["--checkpoint", "run.ckpt"]):
        done = drstream(*words, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(out.read_bytes())
        out.unlink()
    assert found[0] == found[1]
    assert os.listdir(tmp_path) == ["log.parquet"]
    (tmp_path / "run.ckpt").write_text("something else")
    fails("run.ckpt is not a state that drstream wrote", *words, "--checkpoint", "run.ckpt", cwd=tmp_path)
