"""Arrow IPC files: rows are read, not mapped, so a file that shrinks is an error and not the end of the process."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.sources import arrow
from drstream.sources.arrow import open_arrow
from tests.helpers.crossed import meeting

ROWS = 1_003


def some(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    """ROWS of the values, over and over."""
    return pa.array((values * ROWS)[:ROWS], kind)


COLUMNS = {
    "float": some([1.5, None, 3.0]),
    "plain": some([1.5, 2.0]),
    "bool": some([True, False, None, True, True]),
    "date": some([1, 2, 3], pa.int32()).cast(pa.date32()),
    "decimal": some([1, 2, 3], pa.int64()).cast(pa.decimal128(30, 2)),
    "text": some(["a", "", None, "wörd"]),
    "large": some(["a", "b"], pa.large_string()),
    "bytes": some([b"a", b"\xff"]),
    "dictionary": some(["x", "y", None]).dictionary_encode(),
    "list": some([[1.0, 2.0], [], None, [3.0, None]]),
    "large list": some([["a"], ["b", "c"]], pa.large_list(pa.large_string())),
    "fixed": some([[1, 2, 3], [4, 5, 6], None], pa.list_(pa.int16(), 3)),
    "struct": some([{"a": 1, "b": "x"}, None, {"a": None, "b": "yy"}]),
    "items": some([[{"id": 1, "f": [0.5]}], [], [{"id": 2, "f": []}, {"id": 3, "f": None}]]),
    "null": pa.nulls(ROWS),
}


def write(path: Path, table: pa.Table, batch: int = 300, **options: Any) -> str:
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table, max_chunksize=batch)
    return str(path)


def rows_of(parts: Any) -> pa.Table:
    return pa.Table.from_batches(batch for part in parts for batch in part.batches())


@meeting(1, name=COLUMNS, piece=[7, 128, 2_000])
def test_rows_that_are_read_are_those_of_the_file(
    tmp_path: Path, name: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "PIECE", piece)
    table = pa.table({"c": COLUMNS[name], "other": np.arange(ROWS)})
    both = [write(tmp_path / f"{i}.arrow", table) for i in range(2)]
    opened = open_arrow(both, "two")
    parts = list(opened.parts(["c"]))
    assert [part.first_row for part in parts] == list(range(0, 2 * ROWS, piece))
    assert sum(part.rows for part in parts) == opened.rows == 2 * ROWS
    assert rows_of(parts).combine_chunks() == pa.concat_tables([table.select(["c"])] * 2).combine_chunks()
    assert not parts[0].held.batches
    assert rows_of([pickle.loads(pickle.dumps(parts[-1]))]) == rows_of(parts[-1:])


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    table = pa.table({"c": COLUMNS["text"], "d": COLUMNS["list"], "e": COLUMNS["bool"]})
    opened = open_arrow([write(tmp_path / "log.arrow", table)], "log")
    assert rows_of(opened.parts(["e", "c"])) == table.select(["e", "c"])
    (part,) = opened.parts([])
    assert sum(batch.num_rows for batch in part.batches()) == ROWS


def test_a_large_batch_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "PIECE", 100)
    table = pa.table({"c": np.arange(ROWS)})
    opened = open_arrow([write(tmp_path / "log.arrow", table, batch=ROWS)], "log")
    reads: list[int] = []
    before = arrow.ArrowFile.read
    monkeypatch.setattr(arrow.ArrowFile, "read", lambda *given: reads.append(given[1]) or before(*given))
    assert rows_of(opened.parts(["c"])).combine_chunks() == table
    assert reads == [0]
    again = list(opened.parts(["c"]))
    assert rows_of(again[::-1]).num_rows == ROWS  # in any order, as threads take them
    assert reads == [0, 0]
    assert not again[0].held.batches


def test_compressed_files_and_views_are_read_too(tmp_path: Path) -> None:
    table = pa.table({"c": COLUMNS["text"], "d": COLUMNS["list"]})
    for options in ({"compression": "lz4"}, {"compression": "zstd"}):
        opened = open_arrow([write(tmp_path / "log.arrow", table, **options)], "log")
        assert rows_of(opened.parts(["c", "d"])) == table
    views = table.set_column(0, "c", table["c"].cast(pa.string_view()))
    opened = open_arrow([write(tmp_path / "log.arrow", views)], "log")
    assert rows_of(opened.parts(["c"]))["c"].to_pylist() == table["c"].to_pylist()


def log_file(path: Path, rows: int = 40_000) -> str:
    columns = {
        "x0": np.ones(rows),
        "action": np.arange(rows) % 2,
        "reward": np.ones(rows),
        "propensity": np.full(rows, 0.5),
    }
    return write(path, pa.table(columns), batch=rows)


class Meddler:
    def __init__(self, deed: Any) -> None:
        self.deed, self.calls = deed, 0

    def probabilities(self, X: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            self.deed()
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize("size", [0, 100, 20_000, 700_000])
def test_a_file_that_shrinks_while_it_is_read_is_an_error(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped, the process would end here, with SIGBUS."""
    monkeypatch.setattr(arrow, "PIECE", 4_000)
    path = log_file(tmp_path / "log.arrow")
    log = drs.Log(path)
    with pytest.raises(LogError, match=rf"{path} changed while it was read: it had .* bytes, and has {size:,}"):
        drs.evaluate(log, Meddler(lambda: os.truncate(path, size)), threads=1, estimators=["ips"])


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "PIECE", 4_000)
    path, other = log_file(tmp_path / "log.arrow"), log_file(tmp_path / "other.arrow")
    log = drs.Log(path)
    with pytest.raises(LogError, match="another file has its name"):
        drs.evaluate(log, Meddler(lambda: os.replace(other, path)), threads=1, estimators=["ips"])


def test_a_part_travels_without_its_rows_and_not_to_another_file(tmp_path: Path) -> None:
    path = write(tmp_path / "log.arrow", pa.table({"c": np.arange(500_000)}), batch=65_536)
    part, *_ = open_arrow([path], "log").parts(["c"])
    sent = pickle.dumps(part)
    assert len(sent) < 1_000
    write(tmp_path / "log.arrow", pa.table({"c": np.arange(400_000)}))
    with pytest.raises(LogError, match=r"log\.arrow changed while it was read"):
        list(pickle.loads(sent).batches())
