"""Pages that drstream decodes itself: to the same numbers as pyarrow, or not at all."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drstream as drs
from drstream.kernels import footer as fields
from drstream.kernels import pages as kernels
from drstream.kernels import snappy
from drstream.kernels.thrift import DEPTH
from drstream.log import pages
from drstream.log.footers import Footer
from drstream.log.memory import Pool
from drstream.log.numbers import Column, Form
from drstream.log.opening import open_source
from drstream.log.parquet import ParquetSource, RowGroup

ROWS = 3_000
rng = np.random.default_rng(0)
COLUMNS = {
    "float32": pa.array(rng.normal(size=ROWS).astype(np.float32)),
    "float64": pa.array(rng.normal(size=ROWS)),
    "int32": pa.array(rng.integers(-(2**31), 2**31, ROWS).astype(np.int32)),
    "int64": pa.array(rng.integers(-(2**62), 2**62, ROWS)),
    "few": pa.array(rng.integers(0, 3, ROWS)),
    "two": pa.array(rng.integers(0, 2, ROWS).astype(np.float64)),
    "one": pa.array(np.full(ROWS, 7.5, np.float32)),
    "runs": pa.array(np.repeat(rng.integers(0, 400, ROWS // 100), 100)),
    "some": pa.array(rng.integers(0, 1000, ROWS).astype(np.float32)),
    "lists": pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=5 * ROWS).astype(np.float32)), 5),
    "long lists": pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 9, 20 * ROWS).astype(np.float64)), 20),
    "other lists": pa.array(rng.normal(size=(ROWS, 3)).tolist(), pa.list_(pa.float32())),
    "large lists": pa.array(rng.integers(0, 9, (ROWS, 4)).tolist(), pa.large_list(pa.int64())),
    "single lists": pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=ROWS)), 1),
}
TABLE = pa.table(COLUMNS)
OTHERS = pa.table(
    {
        "text": pa.array([f"{i % 7}" for i in range(ROWS)]),
        "bool": pa.array(rng.random(ROWS) < 0.5),
        "int8": pa.array(rng.integers(0, 9, ROWS).astype(np.int8)),
        "uint64": pa.array(rng.integers(0, 2**60, ROWS).astype(np.uint64)),
        "ragged": pa.array([[1.0] * (i % 3) for i in range(ROWS)]),
        "ragged in two": pa.array([[1.0] * (1 + 2 * (i % 2)) for i in range(ROWS)]),  # two numbers on average
        "nulls": pa.array([None if i % 5 == 0 else float(i) for i in range(ROWS)]),
        "late null": pa.array([float(i) for i in range(ROWS - 1)] + [None]),
        "null list": pa.array([[1.0, 2.0]] * (ROWS - 1) + [None], pa.list_(pa.float32(), 2)),
        "null item": pa.array([[1.0, 2.0]] * (ROWS - 1) + [[1.0, None]], pa.list_(pa.float32(), 2)),
        "time": pa.array(np.arange(ROWS), pa.timestamp("us")),
    }
)


def row_group(path: Path, columns: Any = None, index: int = 0) -> RowGroup:
    source = open_source(str(path))
    assert isinstance(source, ParquetSource)
    return list(source.parts(columns or source.schema.names))[index]


def rows_of(part: RowGroup, most: int | None) -> pa.Table:
    return pa.Table.from_batches(part.batches(most))


@pytest.fixture
def by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of each call of pyarrow."""
    calls: list[list[str]] = []
    before = RowGroup._by_pyarrow

    def noted(part: Any, opened: Any, names: Any, rows: int) -> Any:
        calls.append(list(names))
        return before(part, opened, names, rows)

    monkeypatch.setattr(RowGroup, "_by_pyarrow", noted)
    return calls


FORMS: dict[str, dict[str, Any]] = {
    "usual": {},
    "plain": {"use_dictionary": False},
    "small pages": {"data_page_size": 500, "write_batch_size": 64},
    "small plain pages": {"data_page_size": 500, "write_batch_size": 64, "use_dictionary": False},
    "small dictionaries": {"dictionary_pagesize_limit": 200, "write_batch_size": 64, "data_page_size": 700},
    "without statistics": {"write_statistics": False},
    "checksums": {"write_page_checksum": True},
    "old dictionaries": {"version": "1.0"},
}


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("most", [None, 1_000_000, 700])
def test_numbers_are_those_of_pyarrow(
    tmp_path: Path, by_pyarrow: list[list[str]], codec: str, form: str, most: int | None
) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(TABLE, path, compression=codec, row_group_size=2_000, **FORMS[form])
    for index, (first, count) in enumerate([(0, 2_000), (2_000, 1_000)]):
        found = rows_of(row_group(path, index=index), most)
        wanted = pq.ParquetFile(path).read_row_group(index)
        assert found.equals(wanted)
        assert found.equals(TABLE.slice(first, count))
        assert found.schema.equals(wanted.schema, check_metadata=False)
    assert not by_pyarrow


def test_required_columns_have_no_levels(tmp_path: Path, by_pyarrow: list[list[str]]) -> None:
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in COLUMNS.items()])
    table = TABLE.cast(schema)
    pq.write_table(table, tmp_path / "log.parquet")
    part = row_group(tmp_path / "log.parquet")
    assert rows_of(part, 999).equals(table)
    assert not by_pyarrow


@pytest.mark.parametrize("most", [None, 700])
def test_pyarrow_reads_everything_else(tmp_path: Path, by_pyarrow: list[list[str]], most: int | None) -> None:
    path = tmp_path / "log.parquet"
    both = TABLE
    for name in OTHERS.column_names:
        both = both.append_column(name, OTHERS[name])
    pq.write_table(both, path, data_page_size=2_000, write_batch_size=64)
    known = [name for name in both.column_names if "null" not in name and name != "ragged in two"]
    assert rows_of(row_group(path, known), most).equals(both.select(known))
    assert by_pyarrow == [["text", "bool", "int8", "uint64", "ragged", "time"]]
    for name in ("nulls", "late null", "null list", "null item", "ragged in two"):
        by_pyarrow.clear()
        assert rows_of(row_group(path, [name, "float32"]), most).equals(both.select([name, "float32"]))
        # After rows without nulls, pyarrow goes on where these ended. A footer tells of null lists before.
        assert by_pyarrow == [[name] if name == "null list" else [name, "float32"]]


@pytest.mark.parametrize(
    "options",
    [
        {"data_page_version": "2.0"},
        {"compression": "gzip"},
        {"use_dictionary": False, "column_encoding": {"float32": "BYTE_STREAM_SPLIT"}},
        {"use_dictionary": False, "column_encoding": {"float32": "BYTE_STREAM_SPLIT"}, "compression": "zstd"},
    ],
)
def test_pyarrow_reads_other_pages_and_codecs(
    tmp_path: Path, by_pyarrow: list[list[str]], options: dict[str, Any]
) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet", **options)
    assert rows_of(row_group(tmp_path / "log.parquet", ["float32", "few"]), 700).equals(
        TABLE.select(["float32", "few"])
    )
    assert by_pyarrow == [["float32", "few"]]


def test_checksums_are_left_to_pyarrow(tmp_path: Path, by_pyarrow: list[list[str]]) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet", write_page_checksum=True)
    part = row_group(tmp_path / "log.parquet")
    part.verify = True
    assert rows_of(part, None).equals(TABLE)
    assert len(by_pyarrow) == 1


def test_memory_is_used_again_when_nothing_refers_to_it(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet", row_group_size=1_000)
    pool = Pool()
    first = pool.lend(800).buffer()
    view = np.frombuffer(first.slice(100, 50), np.uint8)
    address = first.address
    del first
    other = pool.lend(800).buffer()
    assert other.address != address  # an array still has it
    del view
    again = pool.lend(700).buffer()
    assert again.address == address
    assert again.size == 700
    kept = [rows_of(row_group(tmp_path / "log.parquet", index=i), 300) for i in range(3)]
    assert pa.concat_tables(kept).equals(TABLE)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_numbers_pages_and_batches(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 400))
    seed = data.draw(st.integers(0, 2**32 - 1))
    numbers = np.random.default_rng(seed)
    different, size = data.draw(st.sampled_from([1, 2, 3, 17, 256, 300, 10**6])), data.draw(st.integers(1, 21))
    kind = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.int64]))
    flat = numbers.integers(0, different, rows).astype(kind)
    if data.draw(st.booleans()):
        flat.sort()
    items = pa.array(numbers.integers(0, different, rows * size).astype(kind))
    lists = pa.FixedSizeListArray.from_arrays(items, size)
    if data.draw(st.booleans()):
        lists = lists.cast(pa.list_(items.type))
    table = pa.table({"flat": flat, "lists": lists})
    path = tmp_path_factory.mktemp("pages") / "log.parquet"
    pq.write_table(
        table,
        path,
        compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])),
        use_dictionary=data.draw(st.booleans()),
        data_page_size=data.draw(st.sampled_from([100, 10**6])),  # with 1, pyarrow writes files that it cannot read
        write_batch_size=data.draw(st.sampled_from([1, 7, 1024])),
        row_group_size=data.draw(st.sampled_from([rows, 37])),
    )
    found = [rows_of(part, data.draw(st.sampled_from([1, 30, 10**6]))) for part in _parts(path)]
    assert pa.concat_tables(found).equals(table)


def _parts(path: Path) -> list[RowGroup]:
    source = open_source(str(path))
    assert isinstance(source, ParquetSource)
    return list(source.parts(["flat", "lists"]))


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_no_damage_changes_numbers_unless_pyarrow_sees_the_same(tmp_path: Path, codec: str) -> None:
    """Bytes of pages are changed: drstream gives pyarrow's numbers, or its error. It never crashes."""
    path = tmp_path / "log.parquet"
    table = TABLE.select(["float32", "few", "two", "runs", "lists"]).slice(0, 300)
    pq.write_table(table, path, compression=codec, data_page_size=300, write_batch_size=32)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    draw = np.random.default_rng(1)
    refused = 0
    for _ in range(250):
        damaged = bytearray(whole)
        for place in draw.integers(4, footer, draw.integers(1, 4)):
            damaged[place] = draw.integers(256)
        path.write_bytes(damaged)
        part = row_group(path)
        try:
            wanted = pq.ParquetFile(path).read_row_group(0)
            wanted.validate(full=True)
        except (pa.ArrowException, OSError):
            wanted = None
        try:
            found = rows_of(part, 100)
        except drs.DrstreamError:
            refused += 1
            continue
        if wanted is not None:
            assert same_bits(found, wanted)
    assert 0 < refused < 250


def same_bits(one: pa.Table, other: pa.Table) -> bool:
    """Whether tables have the same numbers, also those that are NaN."""

    def bits(table: pa.Table) -> list[Any]:
        return [
            (column.null_count, [piece.flatten() if pa.types.is_fixed_size_list(piece.type) else piece])
            for column in table.columns
            for piece in [column.combine_chunks()]
        ]

    for (nulls, (left,)), (others, (right,)) in zip(bits(one), bits(other), strict=True):
        a, b = left.fill_null(0).to_numpy(), right.fill_null(0).to_numpy()
        if nulls != others or a.tobytes() != b.tobytes():
            return False
    return True


# The kernels alone


def number(value: int) -> bytes:
    """A field that follows the one before: an integer in pieces of seven bits, its sign in the lowest."""
    value, found = value << 1, bytearray([0x15])
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def data_page(body: bytes, count: int, form: int, *, levels: int = kernels.RUNS) -> bytes:
    about = b"".join(map(number, [count, form, levels, levels]))
    return number(kernels.DATA_PAGE) + number(len(body)) * 2 + b"\x2c" + about + b"\0\0" + body


def dictionary_page(body: bytes, count: int, form: int = kernels.PLAIN) -> bytes:
    about = number(count) + number(form)
    return number(kernels.DICTIONARY_PAGE) + number(len(body)) * 2 + b"\x4c" + about + b"\0\0" + body


def decoded(path: Path, *parts: bytes, count: int, level: int = 0, size: int = 0) -> list[float] | None:
    """The numbers of a column of float32, or of lists of them; None if it is unusual."""
    path.write_bytes(b"".join(parts))
    kind = pa.list_(pa.float32(), size) if size else pa.float32()
    table = np.zeros((1, kernels.FIELDS), np.int64)
    form = 0, path.stat().st_size, kernels.PLAIN_CODEC, 4, size, level, count
    table[0, : len(form)] = form
    table[0, kernels.KNOWN] = -1
    handle = pages.opened(str(path))
    column = Column(pa.field("x", kind), np.dtype(np.float32), size)
    columns = pages.Columns(Form((column,)), table, handle, count // max(size, 1), pages.Space(Pool()))
    try:
        found = columns.rows_at_once().record_batch().column("x")
    except pages.Unusual:
        return None
    finally:
        os.close(handle)
    values = found.flatten() if size else found
    return list(values.to_pylist())


def plain(*numbers: float) -> bytes:
    return np.array(numbers, np.float32).tobytes()


def after(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels


def test_levels_of_all_forms_are_known(tmp_path: Path) -> None:
    path, some = tmp_path / "x", plain(*range(9))
    wanted = list(range(9))
    for levels in (b"\x12\x01", b"\x05\xff\x01", b"\x03\xff\x02\x01", b"\x05\xff\xff"):  # runs, bits, both, spare
        page = data_page(after(levels) + some, 9, kernels.PLAIN)
        assert decoded(path, page, count=9, level=1) == wanted
    for levels in (b"\x05\xff\xff\xff\xff", b"\x12\x03"):
        page = data_page(after(levels) + some, 9, kernels.PLAIN)
        assert decoded(path, page, count=9, level=3) == wanted
    lists = b"\x05\xb6\x01"  # 0 1 1 0 1 1 0 1 | 1
    page = data_page(after(lists) + after(b"\x12\x01") + some, 9, kernels.PLAIN)
    assert decoded(path, page, count=9, level=1, size=3) == wanted
    assert decoded(path, page, count=9, level=1, size=9) is None
    two = [
        data_page(after(b"\x03\x06") + plain(0, 1, 2, 3), 4, 0),
        data_page(after(b"\x03\x1b") + plain(*range(5)), 5, 0),
    ]
    assert decoded(path, *two, count=9, size=3) == [0, 1, 2, 3, 0, 1, 2, 3, 4]  # a list goes on in the next page


@pytest.mark.parametrize(
    "levels",
    [
        b"",  # nothing
        b"\x80",  # a run whose head does not end
        b"\x00\x01",  # a run of nothing
        b"\x12",  # a run without its level
        b"\x12\x00",  # nulls
        b"\x05\xff",  # bits that are not there
        b"\x05\xfe\x01",  # a null among bits
    ],
)
def test_levels_that_are_not_all_there(tmp_path: Path, levels: bytes) -> None:
    page = data_page(after(levels) + plain(*range(9)), 9, kernels.PLAIN)
    assert decoded(tmp_path / "x", page, count=9, level=1) is None


@pytest.mark.parametrize(
    "levels",
    [
        b"",
        b"\x00\x01",
        b"\x02",  # a run without its level
        b"\x04\x00",  # two lists begin at once
        b"\x02\x00\x02\x00",  # a list of one number
        b"\x02\x00\x06\x01",  # a list of four
        b"\x02\x01",  # none begins
        b"\x02\x02",  # another level
        b"\x05\xb6",  # bits that are not there
        b"\x05\xb2\x01",
    ],
)
def test_lists_of_other_lengths(tmp_path: Path, levels: bytes) -> None:
    page = data_page(after(levels) + plain(*range(9)), 9, kernels.PLAIN)
    assert decoded(tmp_path / "x", page, count=9, size=3) is None


def test_pages_of_other_sizes(tmp_path: Path) -> None:
    path, page = tmp_path / "x", data_page(plain(1, 2), 2, kernels.PLAIN)
    assert decoded(path, page, count=2) == [1, 2]
    assert decoded(path, page, page, count=4) == [1, 2, 1, 2]
    assert decoded(path, page, count=3) is None  # a number is missing
    assert decoded(path, page, count=1) is None  # one too many
    assert decoded(path, data_page(plain(1, 2, 3), 2, kernels.PLAIN), count=2) is None
    assert decoded(path, data_page(b"", 0, kernels.PLAIN), page, count=2) is None
    assert decoded(path, page[:-1], count=2) is None
    assert decoded(path, data_page(b"abc", 2, kernels.PLAIN), count=2, level=1) is None  # levels without a length
    assert decoded(path, data_page(after(b"\x04\x01") + plain(1, 2), 2, 0, levels=4), count=2, level=1) is None
    assert decoded(path, data_page(plain(1, 2), 2, 9), count=2) is None  # an encoding that is not known


def test_pages_longer_than_what_is_read_at_a_time(tmp_path: Path) -> None:
    numbers = np.arange(200_000, dtype=np.float32)
    assert numbers.nbytes > kernels.WINDOW
    pages_ = [data_page(part.tobytes(), len(part), kernels.PLAIN) for part in (numbers, numbers[:5], numbers)]
    assert decoded(tmp_path / "x", *pages_, count=400_005) == [*numbers, *numbers[:5], *numbers]


def test_dictionaries(tmp_path: Path) -> None:
    path, words = tmp_path / "x", dictionary_page(plain(5, 6, 7), 3)
    page = data_page(b"\x02" + b"\x03\x24\x49" + b"\x04\x02", 10, kernels.DICTIONARY)
    assert decoded(path, words, page, count=10) == [5, 6, 7, 5, 6, 7, 5, 6, 7, 7]
    assert decoded(path, page, count=10) is None  # no dictionary
    assert decoded(path, words, words, page, count=10) is None  # two
    assert decoded(path, dictionary_page(plain(5, 6), 3), page, count=10) is None
    assert decoded(path, dictionary_page(plain(5, 6, 7), 3, form=9), page, count=10) is None
    assert decoded(path, dictionary_page(plain(5, 6), 2), page, count=10) is None  # an index outside
    for body in (
        b"",
        b"\x21\x02\x00",  # more bits than an index has
        b"\x02",  # no run
        b"\x02\x00\x00",  # a run of nothing
        b"\x02\x03\x24",  # bits that are not there
        b"\x00\x03",  # bits of no size
        b"\x09\x04\x00",  # half an index
        b"\x02\x14\x03",  # a run of an index outside
    ):
        assert decoded(path, words, data_page(body, 10, kernels.DICTIONARY), count=10) is None
    only = data_page(b"\x00\x14", 10, kernels.OLD_DICTIONARY)  # no bits: all have the first word
    assert decoded(path, words, only, count=10) == [5] * 10
    assert decoded(path, dictionary_page(b"", 0), only, count=10) is None


def decompressed(data: bytes, size: int) -> bytes | None:
    out = np.zeros(size, np.uint8)
    good = SNAP(np.frombuffer(data, np.uint8), out)
    return out.tobytes() if good else None


def SNAP(data: Any, out: Any) -> bool:  # noqa: N802  # stands for a helper, which only kernels call
    return bool(snappy.decompress(data, np.int64(0), np.int64(len(data)), out, np.int64(len(out))))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 60), st.integers(0, 40))
def test_snappy_is_decompressed(some: bytes, repeated: int, more: int) -> None:
    data = some * repeated + bytes(more)
    stored = pa.Codec("snappy").compress(data, asbytes=True)
    assert decompressed(stored, len(data)) == data
    assert decompressed(stored, len(data) + 1) is None
    if data:
        assert decompressed(stored[:-1], len(data)) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 100))
def test_any_bytes_are_decompressed_as_by_arrow_or_refused(data: bytes, size: int) -> None:
    stored = bytes([size]) + data
    found = decompressed(stored, size)
    if found is not None:
        assert pa.Codec("snappy").decompress(stored, size, asbytes=True) == found


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\xff\xff\xff\xff\xff\x01",  # a size that does not end
        b"\x04\xf0",  # a length that is not there
        b"\x04\x10ab",  # new bytes that are not there
        b"\x01\x04ab",  # more than the size
        b"\x06\x04ab\x01",  # a distance that is not there
        b"\x06\x04ab\x01\x00",  # a distance of 0
        b"\x06\x04ab\x01\x05",  # a distance before the beginning
        b"\x03\x04ab\x01\x01",  # a repetition beyond the size
        b"\x05\x04ab",  # less than the size
    ],
)
def test_damaged_snappy_is_refused(stored: bytes) -> None:
    assert decompressed(stored, stored[0] if stored else 0) is None


def test_distances_of_all_kinds_are_known() -> None:
    assert decompressed(b"\x08\x04ab\x09\x02", 8) == b"abababab"
    assert decompressed(b"\x05\x04ab\x0a\x02\x00", 5) == b"ababa"
    assert decompressed(b"\x05\x04ab\x0b\x02\x00\x00\x00", 5) == b"ababa"


def test_footers_say_where_columns_are(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(TABLE, path, row_group_size=1_000, compression={"float32": "none", "few": "zstd"})
    metadata = pq.read_metadata(path)
    known = pages.known_columns(row_group(path).footer, ("some", "lists", "float32", "few"))
    assert known is not None
    assert known.usual.all()
    codecs = {"UNCOMPRESSED": kernels.PLAIN_CODEC, "SNAPPY": kernels.SNAPPY, "ZSTD": pages.ZSTD}
    for i, (slot, leaf) in itertools.product(range(metadata.num_row_groups), enumerate(known.leaves.values())):
        column, found = metadata.row_group(i).column(leaf.place), known.tables[i, slot]
        assert column.path_in_schema.partition(".")[0] == leaf.field.name
        start = column.dictionary_page_offset or column.data_page_offset
        assert found[kernels.AT] == start
        assert found[kernels.END] == start + column.total_compressed_size
        assert found[kernels.NUMBERS] == column.num_values
        assert found[kernels.CODEC] == codecs[column.compression]


def test_columns_of_another_file_are_noted() -> None:
    # row groups: one, with one column, whose chunk has the path "x" and type 4
    data = bytes.fromhex("49 1c 19 1c 18 01 78 2c 15 08 00 00 00 00".replace(" ", ""))
    found = np.zeros((1, 1, len(fields.NUMBERS)), np.int64)
    levels, slots = np.zeros((3, DEPTH), np.int64), np.zeros(1, np.int64)
    assert fields.find_columns(np.frombuffer(data, np.uint8), slots, levels, found) == len(data)
    assert found[0, 0, fields.ELSEWHERE] == 1
    assert found[0, 0, fields.TYPE] == 4
    more = np.zeros((0, 1, len(fields.NUMBERS)), np.int64)
    assert fields.find_columns(np.frombuffer(data, np.uint8), slots, levels, more) == -1
    for stop in range(len(data)):
        assert fields.find_columns(np.frombuffer(data[:stop], np.uint8), slots, levels, found) == -1


def test_a_damaged_footer_or_one_of_too_many_columns_is_left_to_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_pyarrow: list[list[str]]
) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet")
    part = row_group(tmp_path / "log.parquet", ["float32", "few"])
    monkeypatch.setattr(Footer, "serialized", np.zeros(1, np.uint8))
    assert rows_of(part, None).equals(TABLE.select(["float32", "few"]))
    monkeypatch.setattr(pages, "MOST_CHUNKS", 0)
    assert rows_of(part, None).equals(TABLE.select(["float32", "few"]))
    assert by_pyarrow == [["float32", "few"]] * 2


def test_a_column_that_is_not_as_the_footer_says_is_read_by_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_pyarrow: list[list[str]]
) -> None:
    pq.write_table(TABLE, tmp_path / "log.parquet", use_dictionary=False)
    part = row_group(tmp_path / "log.parquet", ["float32", "few"])
    find = fields.find_columns
    for field, value in ((fields.BYTES, 10**9), (fields.DATA, 2**62), (fields.TYPE, 5), (fields.CODEC, 2)):

        def other(*args: Any, field: int = field, value: int = value) -> int:
            found = find(*args)
            args[-1][0, 0, field] = value
            return int(found)

        monkeypatch.setattr(fields, "find_columns", other)
        pages.known_columns.cache_clear()
        assert rows_of(part, None).equals(TABLE.select(["float32", "few"]))
    pages.known_columns.cache_clear()
    assert by_pyarrow == [["float32"]] * 4


def test_a_file_that_ends_early_is_left_to_pyarrow(tmp_path: Path, by_pyarrow: list[list[str]]) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(TABLE, path)
    part = row_group(path, ["float32"])
    known = pages.known_columns(part.footer, ("float32",))
    columns = pages.columns_of(known, 0, part.rows, pages.opened(str(path)), pages.Space(Pool()))
    assert columns is not None
    columns.table[:, kernels.AT] += 10**7
    columns.table[:, kernels.END] += 10**7
    with pytest.raises(pages.Unusual):
        list(columns.batches(100))
    columns.handle = -1  # a file that cannot be read
    with pytest.raises(pages.Unusual):
        list(columns.batches(100))
    assert pages.opened(str(tmp_path / "missing")) == -1
