"""drstream convert, as typed."""

import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import drstream as drs
from tests.helpers.command import PROGRAM, drstream, fails, on_a_terminal
from tests.helpers.logs import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    world().write(folder / "log.parquet", 3000, seed=1)
    table = pq.read_table(folder / "log.parquet")
    pa.csv.write_csv(table.rename_columns(["item", "paid", "chance", "age", "x1", "x2"]), folder / "log.csv")
    bad = table["propensity"].to_numpy().copy()
    bad[17] = 0.0
    pq.write_table(table.set_column(2, "propensity", pa.array(bad)), folder / "bad.parquet")
    (folder / "broken.csv").write_text("action,reward,propensity\n0,1,0.5\n1,0\n")
    (folder / "damaged.parquet").write_bytes((folder / "log.parquet").read_bytes()[:5000])
    return folder


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['drstream', 'convert', '--help']\n"
        "from drstream.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numba', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    for option in ("--row-group-rows", "--columns", "--pack", "--codec", "--on-bad-row"):
        assert option in done.stdout


def test_convert(folder, tmp_path):
    done = drstream("convert", "log.parquet", tmp_path / "out.parquet", "--row-group-rows", "1000", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/out.parquet: 3,000 rows in 3 row groups, 0.0 MB")
    assert "M rows/s" in done.stderr
    assert pq.read_table(tmp_path / "out.parquet").equals(pq.read_table(folder / "log.parquet"))


def test_csv_with_roles_and_packed_contexts(folder, tmp_path):
    roles = ("--action", "item", "--reward", "paid", "--propensity", "chance", "--context", "age", "--context", "x*")
    done = drstream("convert", "log.csv", tmp_path / "out.arrow", *roles, "--pack", "context", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3,000 rows in 1 record batch" in done.stdout
    log = drs.Log(tmp_path / "out.arrow", action="item", reward="paid", propensity="chance")
    assert log.roles.context == ("context",)
    words = ("evaluate", tmp_path / "out.arrow", *roles[:6], "--policy", "uniform")
    assert drstream(*words).returncode == 0


def test_bad_rows(folder, tmp_path):
    out = tmp_path / "out.parquet"
    fails("propensity is not in (0, 1]: got 0.0 at row 17 (row 17 of row group 0 of bad.parquet)", "convert",
          "bad.parquet", out, cwd=folder)  # fmt: skip
    done = drstream(
        "convert", "bad.parquet", out, "--on-bad-row", "skip", "--columns", "x1", "--codec", "zstd", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "bad rows skipped: 1 (propensity is not in (0, 1])" in done.stderr
    assert drs.Log(out).rows == 2999


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("log.parquet",), "Missing argument 'LOG...'"),
        ((), "Missing argument 'LOG...'"),
        (("nope.parquet", "out.parquet"), "no such file or directory: 'nope.parquet'"),
        (("log.parquet", "out.xlsx"), "its name must end in .parquet for Parquet"),
        (("log.parquet", "no/out.parquet"), "there is no folder 'no'"),
        (("log.parquet", "log.parquet"), "is a file of the log itself"),
        (("*.parquet", "out.parquet"), "it would belong to the log '*.parquet'"),
        (("log.parquet", "out.parquet", "--row-group-rows", "0"), "--row-group-rows 0 must be a whole number"),
        (("log.parquet", "out.parquet", "--columns", "x9"), "--columns names 'x9', which is not a column"),
        (("log.parquet", "out.parquet", "--columns", "rewrad"), "did you mean 'reward'?"),
        (("log.parquet", "out.parquet", "--codec", "zip"), "--codec zip: there are: snappy, zstd, none"),
        (("log.parquet", "out.arrow", "--codec", "zstd"), "Leave --codec out, or write a .parquet file"),
        (("log.parquet", "out.parquet", "--pack", "reward"), "the log has another column 'reward'"),
        (("log.parquet", "out.parquet", "--pakc", "x"), "No such option"),
        (("log.parquet", "out.parquet", "--on-bad-row", "drop"), '--on-bad-row drop: it must be "error" or "skip"'),
        (("log.csv", "out.parquet"), "name it with --action"),
        (("broken.csv", "out.parquet"), "record 3: expected 3 fields, but got 2: 1,0, in broken.csv. Repair the line"),
        (("damaged.parquet", "out.parquet"), "cannot read damaged.parquet as Parquet"),
        (("log.csv", "log.parquet", "out.parquet"), "holds files of two kinds"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_bad_input_is_exit_code_2(words, message, folder):
    before = sorted(folder.iterdir())
    fails(message, "convert", *words, cwd=folder)
    assert sorted(folder.iterdir()) == before


def test_evaluate_on_csv_says_how_to_convert(folder):
    fails("drstream convert log.csv log.parquet", "evaluate", "log.csv", "--policy", "uniform", cwd=folder)


def test_progress_bar_on_a_terminal(folder, tmp_path):
    for source in ("log.parquet", "log.csv"):
        roles = ("--action", "item", "--reward", "paid", "--propensity", "chance") if source == "log.csv" else ()
        words = ("convert", source, str(tmp_path / "out.parquet"), *roles)
        out, shown = on_a_terminal(*words, cwd=folder, columns=100)
        assert b"3,000 events" in shown
        assert b"3,000 rows" in out


@pytest.mark.parametrize(
    ("name", "number", "word"),
    [("out.parquet", signal.SIGINT, "interrupted"), ("out.arrow", signal.SIGTERM, "terminated")],
)
def test_interrupt(tmp_path, name, number, word):
    """Ctrl-C or SIGTERM: one word, exit code 130 or 143, nothing half-written, and what was there stays."""
    world().write(tmp_path / "long.parquet", 1_000_000, row_group_rows=50_000)
    (tmp_path / name).write_text("what was there")
    process = subprocess.Popen(
        [*PROGRAM, "convert", "long.parquet", name, "--row-group-rows", "100"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not any(tmp_path.glob(f".{name}.*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + number, error
    assert error == f"{word}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.parquet", name]
    assert (tmp_path / name).read_text() == "what was there"


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk")
@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
def test_a_disk_that_is_too_small(folder, tmp_path, name):
    world().write(tmp_path / "long.parquet", 100_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        fails("No space left on device. Nothing was written", "convert", "long.parquet", disk / name, cwd=tmp_path)
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


# Logs of other systems


def test_text_of_vowpal_wabbit(tmp_path):
    lines = [f"{k % 3 + 1}:{k % 2}:0.5 |u age:{k}" for k in range(50)]
    lines[10], lines[20] = "1:1 | age:3", "| age:3"
    (tmp_path / "log.txt").write_text("\n".join(lines))
    words = ("convert", "log.txt", "out.parquet", "--from", "vw")
    fails("but got '1:1', at line 11 of log.txt. Repair the line, or remove it, or pass --on-bad-row skip", *words,
          cwd=tmp_path)  # fmt: skip
    done = drstream(*words, "--bits", "10", "--on-bad-row", "skip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "out.parquet: 48 rows in 1 row group" in done.stdout
    assert "bad rows skipped: 1 (malformed line), 1 (no label)" in done.stderr
    assert "the first (no label): there is no label in '| age:3', at line 21 of log.txt" in done.stderr
    options = ("--actions", "1,2,3", "--policy", "constant:2", "--model", "ridge")
    done = drstream("evaluate", "out.parquet", *options, "--estimator", "dr", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert drs.Log(tmp_path / "out.parquet").n_features == 1024


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("log.csv", "--from", "vww"), "did you mean 'vw'"),
        (("log.csv", "--from", "vw"), "cannot read Vowpal Wabbit's text: there is no bar (|)"),
        (("log.csv", "--from", "obp"), "has no column 'click'"),
        (("log.parquet", "--bits", "10"), "--bits is about text of other systems only"),
        (("log.parquet", "--from", "csv"), "holds bytes that are no text"),
    ],
)
def test_formats_that_do_not_fit(folder, tmp_path, words, message):
    fails(message, "convert", words[0], tmp_path / "out.parquet", *words[1:], cwd=folder)
