"""Statistics in footers of Parquet files: read right or not at all, and hints that rows overrule."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import drstream as drs
from drstream.errors import LogError
from drstream.kernels.footer import find_statistics
from drstream.kernels.thrift import DEPTH
from drstream.log.parquet import ParquetSource

ROWS, GROUP = 400, 100


def events(**columns: Any) -> pa.Table:
    rng = np.random.default_rng(0)
    own = {"x0": rng.normal(size=ROWS), "action": np.arange(ROWS) // GROUP % 3, "reward": rng.normal(size=ROWS)}
    return pa.table({**own, "propensity": np.full(ROWS, 0.5), **columns})


def source_of(path: Path) -> ParquetSource:
    found = drs.Log(path).source
    assert isinstance(found, ParquetSource)
    return found


def pyarrow_bounds(path: Path, column: int) -> list[tuple[Any, Any] | None]:
    metadata = pq.read_metadata(path)
    found = [metadata.row_group(i).column(column).statistics for i in range(metadata.num_row_groups)]
    return [(s.min, s.max) if s is not None and s.has_min_max else None for s in found]


NUMBERS = np.arange(ROWS) - 50
COLUMNS = {
    "int8": pa.array((NUMBERS % 100).astype(np.int8)),
    "uint32": pa.array((NUMBERS + 2**31).astype(np.uint32)),
    "int64": pa.array(NUMBERS * 10**15),
    "uint64": pa.array(NUMBERS.astype(np.uint64)),  # also beyond the largest int64
    "nulls": pa.array([None if i % 3 else i for i in range(ROWS)]),
    "only nulls": pa.array([None] * ROWS, pa.int64()),
    "text": pa.array([f"{i:03} ä" for i in range(ROWS)]),
    "large text": pa.array([f"{i:03}" for i in range(ROWS)], pa.large_string()),
    "day": pa.array(np.arange(ROWS), pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("statistics", [True, False])
def test_bounds_are_those_that_pyarrow_reads(tmp_path: Path, name: str, statistics: bool) -> None:
    path = tmp_path / "log.parquet"
    table = events(c=COLUMNS[name], more=[[1, 2]] * ROWS)
    pq.write_table(table, path, row_group_size=GROUP, write_statistics=statistics)
    footer = source_of(path)._footers[0]
    wanted = pyarrow_bounds(path, 4)
    assert footer.bounds(4, COLUMNS[name].type) == wanted
    assert (wanted[0] is not None) == (statistics and name != "only nulls")


def test_there_are_no_bounds_of_other_types(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    half = pa.array(np.ones(ROWS, np.float16))
    pq.write_table(events(c=half), path, row_group_size=GROUP)
    footer = source_of(path)._footers[0]
    assert footer.bounds(0, pa.float64()) == [None] * 4
    assert footer.bounds(4, pa.float16()) == [None] * 4
    result = drs.evaluate(drs.Log(path, context="x0"), drs.policies.Uniform(), estimators=["ips"])
    assert result["ips"].n == ROWS


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("day == 2", [2]),
        ("day > 1", [2, 3]),
        ("not day > 0", [0]),
        ("word == 'c'", [2]),
        ("day == 0 or word == 'd'", [0, 3]),
        ("gaps is null", [0, 1, 2, 3]),
        ("gaps > 150", [1, 2, 3]),
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


# The kernel


def search(data: bytes, column: int = 0, groups: int = 1) -> tuple[int, list[list[int]]]:
    found = np.full((groups, 4), -1, np.int64)
    levels = np.zeros((3, DEPTH), np.int64)
    return find_statistics(np.frombuffer(data, np.uint8), column, levels, found), found.tolist()


def test_any_damage_of_a_footer_ends_the_search(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(events(), path, row_group_size=GROUP)
    whole, start = footer_of(path)
    footer = whole[start:-8]
    assert search(footer, 1, 4)[0] == len(footer)
    rng = np.random.default_rng(0)
    for end in rng.choice(len(footer), 50, replace=False):
        assert search(footer[:end], 1, 4)[0] == -1
    for place in rng.choice(8 * len(footer), 300, replace=False):
        damaged = bytearray(footer)
        damaged[place // 8] ^= 1 << place % 8
        _, found = search(bytes(damaged), 1, 4)
        assert all(
            0 <= begin <= begin + length <= len(footer) for begin, length in np.reshape(found, (-1, 2)) if begin >= 0
        )


CRAFTED = {
    "nothing": b"",
    "a field far away": b"\x05\x00\x00",
    "a list that ends": b"\x19",
    "a list without its length": b"\x19\xf5",
    "a number without an end": b"\x15" + b"\xff" * 12,
    "a string that is longer than the file": b"\x18\x7f" + b"a",
    "a string of negative length": b"\x18" + b"\xff" * 9 + b"\x01",
    "a map": b"\x1b\x00\x00",
    "an unknown type": b"\x1f\x00",
    "structures without end": b"\x1c" * 40,
    "a list that is longer than the file": b"\x19\xf3\xff\xff\x7f",
}


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_footers_end_the_search(case: str) -> None:
    assert search(CRAFTED[case])[0] == -1


@pytest.mark.parametrize(
    "data",
    [
        b"\x11\x12\x00",
        b"\x13\x07\x00",
        b"\x17" + b"\x07" * 8 + b"\x00",
        b"\x19\x21\x01\x02\x00",
        b"\x1a\x25\x02\x04\x00",
    ],
    ids=["booleans", "byte", "double", "list of booleans", "set of numbers"],
)
def test_values_of_all_types_are_passed_over(data: bytes) -> None:
    assert search(data) == (len(data), [[-1] * 4])


def test_filters_of_damaged_statistics_do_not_end_the_process(tmp_path: Path) -> None:
    """A value of the wrong length made pyarrow's own search for row groups call std::terminate."""
    path = tmp_path / "log.parquet"
    pq.write_table(events(), path, row_group_size=GROUP, use_dictionary=False)
    whole, start = footer_of(path)
    value = np.array(1).tobytes()
    assert b"\x08" + value in whole[start:]
    damaged = whole[start:].replace(b"\x08" + value, b"\x07" + value[:7] + b"\x11")  # a field of no bytes more
    path.write_bytes(whole[:start] + damaged)
    log = drs.Log(path, filter=pc.field("action") == 1, actions=3)
    assert log.rows == GROUP
