"""Files that change while they are read, folders with links and unfinished files, files that lie about themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.sources.names import expand

ROWS, GROUP = 4_000, 1_000


def events(reward: float, rows: int = ROWS) -> pa.Table:
    ones = np.ones(rows)
    return pa.table({"x0": ones, "action": np.arange(rows) % 2, "reward": reward * ones, "propensity": 0.5 * ones})


def write(path: Path, reward: float = 1.0, rows: int = ROWS) -> str:
    pq.write_table(events(reward, rows), path, row_group_size=GROUP)
    return str(path)


class Meddler:
    """A policy that does something to a file while it is evaluated."""

    def __init__(self, deed: Callable[[], Any]) -> None:
        self.deed, self.calls = deed, 0

    def probabilities(self, X: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            self.deed()
        return np.full((len(X), 2), 0.5)


def replace_file(path: str, other: str) -> None:
    os.replace(other, path)


def write_into(path: str, other: str) -> None:
    Path(path).write_bytes(Path(other).read_bytes())


def cut(path: str, other: str) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


@pytest.mark.parametrize(
    ("deed", "words"),
    [(replace_file, "another file has its name"), (write_into, "something wrote to it"), (cut, "bytes, and has")],
)
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, deed: Any, words: str) -> None:
    path, other = write(tmp_path / "log.parquet"), write(tmp_path / "other.parquet", reward=0.0)
    log = drs.Log(path)
    with pytest.raises(LogError, match=words) as raised:
        drs.evaluate(log, Meddler(lambda: deed(path, other)), threads=1, estimators=["ips"])
    assert path in str(raised.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_that_is_deleted_while_it_is_read_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        write(path)
    else:
        with pa.ipc.new_file(str(path), events(1.0).schema) as file:
            file.write_table(events(1.0))
    log = drs.Log(path)
    (part, *_) = log.parts(["reward"])
    path.unlink()
    with pytest.raises(LogError, match=rf"log\.{kind}: the file is gone"):
        list(part.batches())


def test_a_file_that_stays_is_read_whole(tmp_path: Path) -> None:
    meddler = Meddler(lambda: None)
    assert drs.evaluate(drs.Log(write(tmp_path / "log.parquet")), meddler, estimators=["ips"])["ips"].n == ROWS
    assert meddler.calls > 2  # else the tests above would meddle too late


def test_a_folder_is_read_once_through_links_and_loops(tmp_path: Path) -> None:
    for day in ("day1", "day2"):
        (tmp_path / day).mkdir()
        write(tmp_path / day / "log.parquet")
    (tmp_path / "latest").symlink_to(tmp_path / "day2")
    (tmp_path / "day1" / "loop").symlink_to(tmp_path)
    (tmp_path / "day1" / "again.parquet").symlink_to(tmp_path / "day1" / "log.parquet")
    found = [str(tmp_path / day / "log.parquet") for day in ("day1", "day2")]
    assert expand(str(tmp_path)) == found
    log = drs.Log(tmp_path)
    assert log.source.rows == 2 * ROWS
    assert "in 2 files" in repr(log)


def test_a_link_to_a_folder_elsewhere_belongs_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "archive").mkdir()
    write(tmp_path / "archive" / "old.parquet")
    (tmp_path / "log" / "archive").symlink_to(tmp_path / "archive")
    assert expand(str(tmp_path / "log")) == [str(tmp_path / "log" / "archive" / "old.parquet")]


@pytest.mark.parametrize("name", ["out.parquet.part", "out.parquet.tmp", "_temporary", ".out.parquet"])
def test_unfinished_files_of_a_folder_are_left_out(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "log.parquet")
    write(tmp_path / name)
    assert expand(str(tmp_path)) == [path]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "log.parquet")
    closed = tmp_path / "closed"
    closed.mkdir()
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(LogError, match=r"closed'.*Permission denied"):
        expand(str(tmp_path))


def arrow_file(path: Path, table: pa.Table, found: list[int], instead: list[int]) -> None:
    """Write an Arrow file in which some int32 are replaced by others."""
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    whole, before, after = path.read_bytes(), *(np.array(numbers, np.int32).tobytes() for numbers in (found, instead))
    assert whole.count(before) == 1
    path.write_bytes(whole.replace(before, after))


@pytest.mark.parametrize("starts", [[0, 2, 4, 6, 800_000_000], [0, 2, -4, 6, 8], [0, 6, 4, 6, 8]])
def test_an_arrow_file_with_wrong_offsets_is_an_error(tmp_path: Path, starts: list[int]) -> None:
    contexts = pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float32()))
    path = tmp_path / "log.arrow"
    arrow_file(path, events(1.0, 4).set_column(0, "context", contexts), [0, 2, 4, 6, 8], starts)
    with pytest.raises(LogError, match=rf"cannot read .*{path}"):
        drs.Log(path).to_arrow()


def test_an_arrow_file_with_indices_outside_of_a_dictionary_is_an_error(tmp_path: Path) -> None:
    labels = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    path = tmp_path / "log.arrow"
    arrow_file(path, events(1.0, 4).set_column(1, "action", labels), [0, 1, 0, 1], [0, 1, 7, 1])
    with pytest.raises(LogError, match=rf"cannot read .*{path}"):
        drs.Log(path).to_arrow()


# What cannot be read


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_without_permission_is_an_error_that_says_so(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        write(path)
    else:
        with pa.ipc.new_file(str(path), events(1.0).schema) as file:
            file.write_table(events(1.0))

    def refuse(*given: Any, **named: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)  # the tests may run as root, who may read anything
    monkeypatch.setattr(pa, "OSFile", refuse)
    monkeypatch.setattr(ds, "dataset", refuse)
    with pytest.raises(LogError, match=rf"cannot read {path}: Permission denied"):
        drs.Log(path)


def test_a_model_without_permission_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(b"PK")

    def refuse(*given: Any, **named: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(drs.ModelError, match=rf"cannot read {path}: Permission denied"):
        drs.models.load(path)


def words(reward: float = 1.0) -> pa.Table:
    table = events(reward, 400)
    return table.set_column(1, "action", pa.array(["yes", "no"] * 200))


@pytest.mark.parametrize("options", [{}, {"on_bad_row": "skip"}, {"filter": "action == 'yes'"}])
def test_string_views_in_parquet_are_text(tmp_path: Path, options: Any) -> None:
    table = words()
    views = table.set_column(1, "action", table["action"].cast(pa.string_view()))
    results = []
    for name, rows in (("plain", table), ("views", views)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(rows, path, row_group_size=100)
        for log in (drs.Log(path, **options), drs.Log(path, **options).split(0.5)[0]):
            result = drs.evaluate(log, drs.policies.Uniform(), estimators=["ips"])
            results.append((list(log.labels), result["ips"].value, result["ips"].n))
    assert results[:2] == results[2:]
    assert results[0][0] == ["no", "yes"]


def test_labels_that_are_not_utf8_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(words(), path, compression="none")
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[:start].replace(b"yes", b"y\xffs") + whole[start:])
    with pytest.raises(LogError, match=r"row group 0 of .*log\.parquet: .*UTF8"):
        drs.evaluate(drs.Log(path), drs.policies.Uniform(), estimators=["ips"])


def test_names_that_are_not_utf8_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(events(1.0).append_column("wxyz", pa.array(np.ones(ROWS))), path, store_schema=False)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"wxyz", b"wx\xffz"))
    with pytest.raises(LogError, match=r"log\.parquet.*UTF-8"):
        drs.Log(path)


def test_batches_of_a_stream_are_checked() -> None:
    table = words()
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 5] * 200, pa.int32()), pa.array(["a", "b"]), safe=False)
    batches = table.set_column(1, "action", wrong).to_batches()
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    with pytest.raises(LogError, match=r"after row 0: .*out of bounds: 5"):
        drs.evaluate(drs.Log(reader), drs.policies.Uniform(), estimators=["ips"])


def test_numbers_beyond_int64_are_no_negative_labels(tmp_path: Path) -> None:
    actions = np.array([2**64 - 5, 3] * 200, np.uint64)
    table = events(1.0, 400).set_column(1, "action", pa.array(actions))
    log = drs.Log(table)
    assert list(log.labels) == [3, 2**64 - 5]
    with pytest.raises(LogError, match="18446744073709551611"):
        drs.evaluate(drs.Log(table, actions=[-5, 3]), drs.policies.Uniform(), estimators=["ips"])


def open_files(folder: Path) -> list[str]:
    there = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [os.readlink(name) for name in there if os.path.exists(name) and str(folder) in os.readlink(name)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not show open files")
@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_stays_open(tmp_path: Path, threads: int) -> None:
    for day in range(3):
        write(tmp_path / f"{day}.parquet")
    log = drs.Log(str(tmp_path), actions=[0, 1])
    assert drs.evaluate(log, drs.policies.Uniform(), estimators="ips", threads=threads).n == 3 * ROWS
    assert not open_files(tmp_path)
