"""drstream merge, and --state and --checkpoint of drstream evaluate."""

import json

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import drstream, fails
from tests.helpers.days import day, write

POLICIES = ("--policy", "new=constant:1", "--policy", "old=uniform", "--context", "x?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merge")
    write(folder, [day(seed) for seed in range(2)])
    for name in ("00", "01"):
        done = drstream("evaluate", f"{name}.parquet", *POLICIES, "--state", f"{name}.state", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_result_of_one_pass(folder):
    words = ("--compare", "new,old", "--json")
    merged = json.loads(drstream("merge", "00.state", "01.state", *words, cwd=folder).stdout)
    whole = json.loads(drstream("evaluate", "00.parquet", "01.parquet", *POLICIES, *words, cwd=folder).stdout)
    for found in (merged, whole):
        found.pop("provenance")
    assert merged == whole
    assert len(merged["differences"]) == 2
    shown = drstream("merge", "00.state", "01.state", "--compare", "new,old", "--output", "x.parquet", cwd=folder)
    assert "140 events" in " ".join(shown.stdout.split())
    assert pq.read_table(folder / "x.parquet")["policy"].to_pylist() == ["new", "new", "old", "old"]


def test_a_checkpoint_leaves_nothing(folder):
    done = drstream("evaluate", "00.parquet", *POLICIES, "--checkpoint", "run.ckpt", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "run.ckpt").exists()


def test_errors_are_one_line(folder):
    fails("both have row group 0 of", "merge", "00.state", "00.state", cwd=folder)
    fails("00.parquet is not a state that drstream wrote", "merge", "00.parquet", cwd=folder)
    fails("no such file: 'none.state'", "merge", "none.state", cwd=folder)
    fails("no policy is called 'x'", "merge", "00.state", "--compare", "new,x", cwd=folder)
    fails("the name must end in .parquet or .csv", "merge", "00.state", "--output", "x.json", cwd=folder)
    split = ("--model", "ridge", "--state", "x.state")
    fails("--state: a split by row numbers", "evaluate", "00.parquet", *POLICIES, *split, cwd=folder)
