"""Statistics in footers of Parquet files: read right or not at all, and hints that rows overrule."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.sources import parquet
from drstream.sources.parquet import ParquetSource

ROWS, GROUP = 400, 100


def events(**columns: Any) -> pa.Table:
    rng = np.random.default_rng(0)
    own = {"x0": rng.normal(size=ROWS), "action": np.arange(ROWS) // GROUP % 3, "reward": rng.normal(size=ROWS)}
    return pa.table({**own, "propensity": np.full(ROWS, 0.5), **columns})


def source_of(path: Path) -> ParquetSource:
    found = drs.Log(path).source
    assert isinstance(found, ParquetSource)
    return found


NUMBERS = np.arange(ROWS) - 50
COLUMNS = {
    "int8": pa.array((NUMBERS % 100).astype(np.int8)),
    "uint32": pa.array((NUMBERS + 2**31).astype(np.uint32)),
    "int64": pa.array(NUMBERS * 10**15),
    "uint64": pa.array(NUMBERS.astype(np.uint64)),  # also beyond the largest int64
    "nulls": pa.array([None if i % 3 else i for i in range(ROWS)]),
    "lists": pa.array([[i, i + 1] for i in NUMBERS.tolist()]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("statistics", [True, False])
def test_ranges_are_those_of_the_rows(tmp_path: Path, name: str, statistics: bool) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(events(c=COLUMNS[name]), path, row_group_size=GROUP, write_statistics=statistics)
    column = COLUMNS[name]
    groups = [column.slice(first, GROUP) for first in range(0, ROWS, GROUP)]
    flat = [group.flatten() if name == "lists" else group for group in groups]
    wanted = {i * GROUP: tuple(pc.min_max(group).as_py().values()) for i, group in enumerate(flat)}
    assert source_of(path).ranges("c") == (wanted if statistics else {})


def test_there_are_no_ranges_of_nulls_and_other_types(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    half, nothing = pa.array(np.ones(ROWS, np.float16)), pa.array([None] * ROWS, pa.int64())
    pq.write_table(events(half=half, nothing=nothing), path, row_group_size=GROUP)
    assert [source_of(path).ranges(name) for name in ("x0", "half", "nothing")] == [{}] * 3


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("day == 2", [2]),
        ("day > 1", [2, 3]),
        ("not day > 0", [0]),
        ("word == 'c'", [2]),
        ("day == 0 or word == 'd'", [0, 3]),
        ("gaps is null", [0, 1, 2, 3]),
        ("gaps > 150", [0, 1, 2, 3]),  # pyarrow prunes by columns without nulls
        ("date >= '1970-01-03'", [2, 3]),
    ],
)
def test_row_groups_without_rows_for_a_filter_are_not_read(tmp_path: Path, text: str, kept: list[int]) -> None:
    groups = np.arange(ROWS) // GROUP
    table = events(
        day=groups,
        word=np.array(list("abcd"))[groups],
        gaps=pa.array([None if i % 7 == 0 else i for i in range(ROWS)]),
        date=pa.array(groups, pa.int32()).cast(pa.date32()),
    )
    path = tmp_path / "log.parquet"
    pq.write_table(table, path, row_group_size=GROUP)
    log = drs.Log(path, filter=text, context="x0")
    assert [part.index for part in log.parts(["reward"])] == kept
    assert log.to_arrow(["reward"]) == drs.Log(table, filter=text, context="x0").to_arrow(["reward"])


def test_a_filter_by_a_column_of_the_path(tmp_path: Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(events(), tmp_path / f"day={day}" / "log.parquet", row_group_size=GROUP)
    log = drs.Log(tmp_path, filter="day == 2 and action == 1", context="x0")
    assert [(Path(part.path).parent.name, part.index) for part in log.parts(["reward"])] == [("day=2", 1)]
    assert log.rows == GROUP


def footer_of(path: Path) -> tuple[bytes, int]:
    whole = path.read_bytes()
    return whole, len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")


def test_statistics_of_labels_that_are_too_narrow_are_an_error_not_another_number_of_actions(tmp_path: Path) -> None:
    """The second row group has actions 0 to 2, and its statistics say 0 to 1, as those of the first do."""
    actions = np.concatenate([np.arange(200) % 2, np.arange(200) % 3])
    path = tmp_path / "log.parquet"
    pq.write_table(events().set_column(1, "action", pa.array(actions)), path, row_group_size=200, use_dictionary=False)
    log = drs.Log(path)
    assert log.n_actions == 3
    whole, start = footer_of(path)
    damaged = whole[start:].replace(np.array(2).tobytes(), np.array(1).tobytes())
    assert damaged != whole[start:]
    path.write_bytes(whole[:start] + damaged)
    assert drs.Log(path).n_actions == 2
    with pytest.raises(LogError, match="action"):
        drs.evaluate(drs.Log(path), drs.policies.Uniform(), estimators=["ips"])
    assert drs.Log(path, filter="reward < 100").n_actions == 3  # a filter could hide such a row
    assert drs.Log(path, on_bad_row="skip").n_actions == 3


def test_a_row_group_travels_without_the_footer(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(events(), path, row_group_size=1)
    parts = list(drs.Log(path).parts(["reward"]))
    size = len(pickle.dumps(parts[7]))
    assert size < 1500 < pq.read_metadata(path).serialized_size / 50
    again = pickle.loads(pickle.dumps(parts[7]))
    assert next(again.batches()).to_pydict() == next(parts[7].batches()).to_pydict()


def test_a_row_group_that_travelled_sees_that_its_file_is_another(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(events(), path, row_group_size=GROUP)
    sent = pickle.dumps(list(drs.Log(path).parts(["reward"]))[1])
    pq.write_table(events(more=np.arange(ROWS)), path, row_group_size=GROUP)
    with pytest.raises(LogError, match=r"log\.parquet changed while it was read"):
        next(pickle.loads(sent).batches())


DAMAGED = """
import sys
import pyarrow.compute as pc
import drstream as drs
log = drs.Log(sys.argv[1], filter=pc.field("action") == 1, actions=3)
print(log.rows, drs.Log(sys.argv[1]).source.ranges("action"))
"""


def test_damaged_statistics_do_not_end_the_process(tmp_path: Path) -> None:
    """A value of the wrong length made the search for row groups of an older pyarrow call std::terminate."""
    path = tmp_path / "log.parquet"
    pq.write_table(events(), path, row_group_size=GROUP, use_dictionary=False)
    whole, start = footer_of(path)
    value = np.array(1).tobytes()
    assert b"\x08" + value in whole[start:]
    damaged = whole[start:].replace(b"\x08" + value, b"\x07" + value[:7] + b"\x11")  # a field of no bytes more
    path.write_bytes(whole[:start] + damaged)
    done = subprocess.run([sys.executable, "-c", DAMAGED, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{GROUP} {{0: (0, 0)")


def test_an_older_pyarrow_does_not_look_at_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "looks_at_statistics", False)
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(events(), tmp_path / f"day={day}" / "log.parquet", row_group_size=GROUP)
    log = drs.Log(tmp_path, filter="day == 2 and action == 1", context="x0")
    assert [part.index for part in log.parts(["reward"])] == [0, 1, 2, 3]  # of one file: the other's path excludes it
    assert log.rows == GROUP
    assert log.source.ranges("action") == {}
    assert drs.Log(tmp_path).n_actions == 3
