"""Runs that are killed with SIGKILL go on to the same bits, and nothing is left of unfinished files."""

import os
import subprocess
import sys
import time

import pytest

from drstream.states import files
from tests.helpers.kills import WORK
from tests.helpers.places import ROOT


@pytest.mark.parametrize("points", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_runs_go_on_to_the_same_bits(points, tmp_path):
    command = [sys.executable, "-m", "tests.helpers.kills", str(tmp_path), str(points)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [line.rsplit(None, 4) for line in done.stdout.splitlines()[1:]]
    assert [(name, points, same, lost) for name, points, _, same, lost in rows] == [
        (name, str(points), str(points), "0") for name in WORK
    ]


def test_what_killed_processes_left_is_deleted(tmp_path):
    old, others, path = time.time() - 2 * files.ABANDONED, [".b.npz.0.part", "a.npz.0.part"], tmp_path / "a.npz"
    for name in (".a.npz.0.part", *others):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (old, old))
    with files.atomic_path(path) as unfinished:
        unfinished.write_text("first")
        with files.atomic_path(path) as other:  # which leaves alone what another one writes
            other.write_text("second")
    assert path.read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "a.npz"])
