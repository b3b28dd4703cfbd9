"""Logs on other file systems: globs and directories, errors that pass, reading ahead, and no secrets in messages."""

import contextlib

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.running.execution import Workers
from drstream.sources import remote
from drstream.sources.open import open_source
from tests.helpers.faulty import Faulty
from tests.helpers.logs import world

WORLD = world(kinds=None)
POLICY = drs.policies.Constant(1)
DAYS, EACH, GROUP = 3, 60, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("remote")
    for day in range(DAYS):
        (found / f"day={day}").mkdir()
        pq.write_table(WORLD.table(EACH, seed=day), found / f"day={day}" / "a.parquet", row_group_size=GROUP)
    (found / "day=0" / "_temporary").mkdir()
    (found / "day=0" / "_temporary" / "b.parquet").write_bytes(b"unfinished")
    (found / "empty").mkdir()
    (found / "empty" / "notes.txt").write_text("not data")
    return found


@pytest.fixture
def here(monkeypatch):
    """URIs of a made-up scheme are files of this computer, through a file system that is not known to be local."""
    handler = Faulty()
    files = pa.fs.PyFileSystem(handler)
    monkeypatch.setattr(remote, "_resolve", lambda uri: (files, uri.removeprefix("made-up://").partition("?")[0]))
    return handler


def evaluate(source, **options):
    return drs.evaluate(drs.Log(source, context="x?"), POLICY, estimators=["ips"], **options)


def value(result):
    return result["ips"].value, result["ips"].low, result.n


@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("", [0, 1, 2]),
        ("/day=1", [1]),
        ("/day=2/a.parquet", [2]),
        ("/day=*/a.parquet", [0, 1, 2]),
        ("/day=[01]/*", [0, 1]),
        ("/**/*.parquet", [0, 1, 2]),
        ("/day=1/a.parquet?region=eu", [1]),
    ],
)
def test_files_globs_and_directories(folder, here, name, days):
    found = open_source(f"made-up://{folder}{name}")
    assert list(found.keys) == [f"{folder}/day={day}/a.parquet" for day in days]
    assert found.schema.field("day").type == pa.int32()
    assert found.rows == EACH * len(days)


def test_a_remote_log_gives_the_bits_of_local_files(folder, here):
    wanted = value(evaluate(str(folder), threads=1))
    for threads in (1, 3):
        assert value(evaluate(f"made-up://{folder}", threads=threads)) == wanted
    assert here.faults == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/day=7", "no such file or directory: 'made-up://.*day=7'"),
        ("/day=7*", "no file matches"),
        ("/empty", "no .parquet, .pq, .parq file in"),
    ],
)
def test_what_is_not_there(folder, here, name, message):
    with pytest.raises(FileNotFoundError, match=message):
        drs.Log(f"made-up://{folder}{name}")


def test_files_of_two_file_systems_are_refused(folder, here):
    with pytest.raises(drs.LogError, match="is a path, and other files are URIs"):
        drs.Log([f"made-up://{folder}/day=0", f"{folder}/day=1"])
    with pytest.raises(drs.LogError, match="is given twice"):
        drs.Log([f"made-up://{folder}/day=0/a.parquet", f"made-up://{folder}/day=0"])


def test_a_dataset_on_another_file_system_is_read(folder):
    handler = Faulty()
    files = sorted(map(str, folder.glob("day=*/a.parquet")))
    data = ds.dataset(files, filesystem=pa.fs.PyFileSystem(handler), format="parquet", partitioning="hive")
    assert value(evaluate(data, threads=2)) == value(evaluate(str(folder), threads=1))
    assert handler.requests > 0


@pytest.mark.parametrize("seed", range(8))
def test_errors_of_the_file_system_change_no_number(folder, here, seed):
    """Whether to try again is up to it. What it raises is an error that says so."""
    wanted = value(evaluate(str(folder), threads=1))
    here.rate = 0.03
    here.random.seed(seed)
    with contextlib.suppress(drs.LogError):
        assert value(evaluate(f"made-up://{folder}", threads=1 + seed % 3)) == wanted
        return
    assert here.faults > 0


def test_parts_are_read_ahead(folder, here):
    """While the first part is worked on, others are being read."""
    source = open_source(f"made-up://{folder}")
    parts = remote.read_ahead(source.parts(["reward"]), 4)
    first = next(parts)
    begun = here.requests
    assert begun > 0  # of five parts, before anyone has asked for rows
    rest = list(parts)
    assert [p.first_row for p in [first, *rest]] == list(range(0, DAYS * EACH, GROUP))
    assert [sum(b.num_rows for b in p.batches(7)) for p in [first, *rest]] == [GROUP] * (DAYS * EACH // GROUP)
    assert max(b.num_rows for p in rest for b in p.batches(7)) == 7


@pytest.mark.parametrize(
    ("uri", "kind", "path"),
    [
        ("gs://anonymous@logs/day=1/a.parquet", "gcs", "logs/day=1/a.parquet"),
        ("gcs://logs/a.parquet", "gcs", "logs/a.parquet"),
        ("abfs://box@account.dfs.core.windows.net/a.parquet", "abfs", "box/a.parquet"),
    ],
)
def test_names_of_other_storages_are_for_file_systems_of_pyarrow(uri, kind, path):
    """No server of these is asked: only who would read the file."""
    filesystem, found = remote._resolve(uri)
    assert (filesystem.type_name, found) == (kind, path)


def test_hdfs_without_hadoop_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    for name in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(drs.LogError, match=r"^cannot open hdfs://127\.0\.0\.1:1/a\.parquet: "):
        drs.Log("hdfs://127.0.0.1:1/a.parquet")


def test_an_unknown_scheme_is_a_clear_error(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(
        drs.LogError, match=r"cannot open zz://\*\*\*@b/a: pyarrow has no file system for zz://.*pip install fsspec"
    ):
        drs.Log("zz://KEY:SECRET@b/a")


def test_workers_do_not_read_ahead_here(folder, here, monkeypatch):
    """An executor's workers read their own parts."""
    from drstream.running import execution

    monkeypatch.setattr(execution, "read_ahead", lambda *_: pytest.fail("read here"))
    log = drs.Log(f"made-up://{folder}", context="x?")
    found = list(execution.run(rows, log, ["reward"], Workers.of(executor=Inline())))
    assert sum(found) == DAYS * EACH


def rows(part):
    return sum(batch.num_rows for batch in part.batches())


class Inline:
    def submit(self, task, *args):
        from concurrent.futures import Future

        future = Future()
        future.set_result(task(*args))
        return future
