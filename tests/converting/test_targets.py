"""The file to write: never the log itself, never half of it."""

import errno
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.converting import writing
from drstream.sources.names import pattern_of
from tests.helpers.logs import world


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    world().write(tmp_path / "logs" / "a.parquet", 300, seed=1)
    world().write(tmp_path / "logs" / "b.parquet", 300, seed=2)
    (tmp_path / "c.csv").write_text("action,reward,propensity\n0,1,0.5\n")
    return tmp_path


def state(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def fails(folder, source, out, message, **options):
    before = state(folder)
    with pytest.raises(drs.DrstreamError, match=message):
        drs.convert(source, out, **options)
    assert state(folder) == before


ITSELF, INSIDE = "is a file of the log itself", "would belong to the log"


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("logs/a.parquet", "logs/a.parquet", ITSELF),
        ("logs/a.parquet", "logs/../logs/a.parquet", ITSELF),
        ("logs/a.parquet", "link.parquet", ITSELF),
        ("logs/a.parquet", "hard.parquet", ITSELF),
        ("link.parquet", "logs/a.parquet", ITSELF),
        ("logs", "logs/b.parquet", ITSELF),
        ("logs", "logs/new.parquet", INSIDE),
        ("logs/", "logs/new.parquet", INSIDE),
        ("way", "logs/new.parquet", INSIDE),
        ("logs", "way/new.arrow", INSIDE),
        ("logs/*.parquet", "logs/b.parquet", ITSELF),
        ("logs/*.parquet", "logs/new.parquet", INSIDE),
        ("lo*", "logs/new.parquet", INSIDE),
        ("**/*.parquet", "logs/new.parquet", INSIDE),
    ],
)
def test_never_into_the_log_itself(folder, monkeypatch, source, out, message):
    monkeypatch.chdir(folder)
    (folder / "link.parquet").symlink_to(folder / "logs" / "a.parquet")
    os.link(folder / "logs" / "a.parquet", folder / "hard.parquet")
    (folder / "way").symlink_to(folder / "logs")
    fails(folder, source, out, message)
    if source != "**/*.parquet":  # it meets the links, too
        fails(folder, drs.Log(source), out, message)


@pytest.mark.parametrize(
    ("source", "out"),
    [
        ("logs/*.parquet", "logs/new.arrow"),
        ("logs/?.parquet", "logs/new.parquet"),
        ("*/a.parquet", "a.parquet"),
        ("logs/*.parquet", "logs/deep/new.parquet"),
        (["logs/a.parquet"], "logs/b.parquet"),
    ],
)
def test_beside_the_log(folder, monkeypatch, source, out):
    monkeypatch.chdir(folder)
    (folder / "logs" / "deep").mkdir()
    assert drs.convert(source, out).rows in (300, 600)


def test_a_folder_whose_name_is_like_a_glob(folder):
    (folder / "logs").rename(folder / "[logs]")
    fails(folder, folder / "[logs]", folder / "[logs]" / "new.parquet", "it would belong to the log")


@pytest.mark.parametrize(
    ("path", "pattern", "wanted"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/*", True),
        ("a/b/c", "a/*", False),
        ("a/b/c", "a/**/c", True),
        ("a/c", "a/**/c", True),
        ("a/b", "a/?", True),
        ("a", "a/b", False),
    ],
)
def test_globs(path, pattern, wanted):
    assert bool(pattern_of(pattern).fullmatch(path)) == wanted


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("out.csv", {}, "must end in .parquet for Parquet, or in .arrow, .ipc or .feather"),
        ("out", {}, "must end in"),
        ("no/out.parquet", {}, "there is no folder 'no'"),
        ("full.parquet", {}, "it is a folder"),
        ("out.parquet", {"row_group_rows": 0}, "row_group_rows=0 must be a whole number of at least 1"),
        ("out.parquet", {"row_group_rows": 1.5}, "must be a whole number"),
        ("out.parquet", {"codec": "snapy"}, "did you mean 'snappy'"),
        ("out.arrow", {"codec": "zstd"}, "is not compressed"),
        ("out.parquet", {"columns": ["rewrad"]}, "columns= names 'rewrad', .* did you mean 'reward'"),
        ("out.parquet", {"pack": "reward"}, "the log has another column 'reward'.* e.g. context"),
        ("out.parquet", {"pack": ""}, "needs a name"),
        ("out.parquet", {"pack": "x", "context": []}, "the log has no context"),
        ("out.parquet", {"on_bad_row": "drop"}, "on_bad_row='drop'"),
        ("out.parquet", {"threads": 0}, "threads=0"),
        ("out.parquet", {"colums": ["x0"]}, "colums= is no parameter of convert: did you mean 'columns'"),
        ("out.parquet", {"acton": "x0"}, "did you mean 'action'"),
        ("out.parquet", {"progress": 3}, "progress=3"),
    ],
)
def test_wrong_parameters(folder, monkeypatch, out, options, message):
    monkeypatch.chdir(folder)
    (folder / "full.parquet").mkdir()
    fails(folder, "logs/a.parquet", out, message, **options)


def test_roles_of_an_open_log_are_its_own(folder):
    log = drs.Log(folder / "logs" / "a.parquet")
    fails(folder, log, folder / "out.parquet", "action= is a parameter of drs.Log", action="x0")


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
@pytest.mark.parametrize("after", [0, 2])
def test_a_full_disk(folder, monkeypatch, name, after):
    kind = writing._Parquet if name.endswith("parquet") else writing._Arrow
    write, count = kind.write, []

    def full(self, table):
        count.append(1)
        if len(count) > after:
            raise OSError(errno.ENOSPC, "Error writing bytes to file")
        write(self, table)

    monkeypatch.setattr(kind, "write", full)
    old = folder / name
    old.write_text("what was there before")
    fails(
        folder, folder / "logs", old, "cannot write .*: No space left on device. Nothing was written", row_group_rows=50
    )


def test_a_disk_that_is_full_at_the_end_of_the_file(folder, monkeypatch):
    close = writing._Parquet.close

    def full(self):
        close(self)
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(writing._Parquet, "close", full)
    fails(folder, folder / "logs", folder / "out.parquet", "No space left on device")


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
def test_interrupted(folder, monkeypatch, name):
    kind = writing._Parquet if name.endswith("parquet") else writing._Arrow

    def interrupted(self, table):
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, "write", interrupted)
    before = state(folder)
    with pytest.raises(KeyboardInterrupt):
        drs.convert(folder / "logs", folder / name)
    assert state(folder) == before


def test_types_that_parquet_cannot_hold(folder):
    table = pq.read_table(folder / "logs" / "a.parquet")
    odd = pa.array([None] * table.num_rows, pa.month_day_nano_interval())
    table = table.append_column("odd", odd)
    fails(folder, table, folder / "out.parquet", "Leave the column out with columns=, or choose another kind of file")
    drs.convert(table, folder / "out.arrow")
    drs.convert(table, folder / "out.parquet", columns=[])
