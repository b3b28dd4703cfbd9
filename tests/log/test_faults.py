"""Files that change while they are read, folders with links and unfinished files, files that lie about themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.log.files import expand

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
    with pytest.raises(LogError, match=r"log\.arrow as Arrow IPC"):
        drs.Log(path)


def test_an_arrow_file_with_indices_outside_of_a_dictionary_is_an_error(tmp_path: Path) -> None:
    labels = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    path = tmp_path / "log.arrow"
    arrow_file(path, events(1.0, 4).set_column(1, "action", labels), [0, 1, 0, 1], [0, 1, 7, 1])
    with pytest.raises(LogError, match=r"log\.arrow as Arrow IPC"):
        drs.Log(path)
