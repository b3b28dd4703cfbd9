"""A full disk and too many open files: a sentence, nothing half-written, and what was there stays."""

import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers import scarce

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


@pytest.mark.parametrize("what", scarce.WRITERS)
def test_a_full_disk(what, tmp_path):
    suffix, write = scarce.WRITERS[what]
    path = tmp_path / f"out{suffix}"
    write(path)
    size = path.stat().st_size if path.exists() else 500  # a checkpoint is deleted at the end
    whole = path.read_bytes() if path.exists() else None
    with scarce.small_disk(size // 2), pytest.raises(drs.DrstreamError, match="cannot write") as raised:
        write(path)
    assert str(path) in str(raised.value)
    assert "File too large" in str(raised.value)
    assert [file.name for file in tmp_path.iterdir()] == ([] if whole is None else [path.name])
    assert whole is None or path.read_bytes() == whole


def test_a_disk_that_is_full_when_bytes_are_synced(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(drs.ModelError, match=r"cannot write .*: No space left on device"):
        scarce.model("Ridge").save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("files")
    for day in range(6):
        pq.write_table(scarce.WORLD.table(200, seed=day), found / f"{day}.parquet", row_group_size=50)
    return found


def value(folder, threads=2):
    return drs.evaluate(drs.Log(folder, context="x?"), drs.policies.Constant(1), threads=threads)["ips"].value


def test_no_more_open_files(folder):
    wanted = value(folder)
    outcomes = []
    for more in range(8):
        with scarce.few_files(more):
            try:
                outcomes.append(value(folder) == wanted)
            except drs.LogError as error:
                outcomes.append(str(error))
    assert outcomes[-1] is True
    for outcome in outcomes:
        told = str(outcome)
        assert outcome is True or (str(folder) in told and "Too many open files: this process may have" in told), told
        assert outcome is True or "ulimit -n" in told
    assert outcomes[0] is not True


def test_no_more_open_files_on_the_command_line(folder):
    code = (
        "import resource, sys\n"
        "from drstream.cli.app import run\n"
        "sys.argv = ['drstream', 'describe', sys.argv[1]]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: Too many open files: this process may have 3")
