"""Pages that flow have the numbers of pages that are decoded at once, and damaged ones are never taken."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drstream.kernels import flows
from drstream.kernels import pages as kernels
from drstream.log import pages
from drstream.log.files import State
from drstream.log.footers import Footer
from drstream.log.memory import Pool

LOCAL = pa.fs.LocalFileSystem()
KINDS = ("float32", "float64", "int32", "int64")


def numbers(rng, form, rows, kind):
    """Random numbers; ones that repeat after a while; runs; small ones; or two of it."""
    values = rng.standard_normal(rows)
    if kind.startswith("int"):  # of all bits: zeros would be repeated from far before
        values = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, rows)
    if form == "period":
        values = values[np.arange(rows) % int(rng.integers(2, 200))]
    elif form == "runs":
        values = values[np.arange(rows) // int(rng.integers(2, 90))]
    elif form == "small":  # has bytes of 0, as levels before it have
        values = rng.integers(0, 3, rows)
    elif form == "mixed":
        values[rows // 3 : rows // 2] = values[rows // 3]
    return pa.array(values.astype(kind))


def flowed(columns):
    """The numbers of all columns, a chunk at a time, as the kernel for sums takes them; None if they are unusual."""
    found = [[] for _ in columns.form.columns]

    def use(chunk, given):
        state = given.state
        while state[kernels.ADDED] < columns.rows:
            shift = kernels.turn(given.columns, state)
            some = int(min(state[kernels.CHUNK], columns.rows - state[kernels.ADDED]))
            result = pages.decoded(given._replace(rows=some))
            if result != kernels.DONE:
                return result
            for place, column in enumerate(columns.form.columns):
                start = chunk.starts[place] + shift
                data = chunk.memory.array[start : start + some * column.row_bytes]
                found[place].append(data.view(column.number).copy())
            state[kernels.ADDED] += some
        return kernels.DONE

    try:
        columns.hand_to(use)
    except pages.Unusual:
        return None
    return [np.concatenate(chunks).tobytes() for chunks in found]


def at_once(columns):
    try:
        batch = columns.rows_at_once().record_batch()
    except pages.Unusual:
        return None
    return [column.to_numpy().tobytes() for column in batch.columns]


def both(path, names, groups):
    """What both ways find in each row group."""
    footer = Footer(str(path), LOCAL, State.of(str(path), LOCAL))
    known = pages.known_columns(footer, tuple(names))
    handle = pages.opened(str(path))
    try:
        for index in range(groups):
            about = known, index, footer.rows[index], handle
            yield [way(pages.columns_of(*about, pages.Space(Pool()))) for way in (flowed, at_once)]
    finally:
        os.close(handle)


@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("form", ["random", "period", "runs", "small", "mixed"])
@pytest.mark.parametrize("page", [1 << 10, 1 << 20], ids=["small pages", "large pages"])
def test_numbers_are_those_of_pyarrow(tmp_path, monkeypatch, compression, form, page):
    monkeypatch.setattr(pages, "CHUNK", 1 << 10)
    rng = np.random.default_rng(3)
    columns = {f"{kind} {i}": numbers(rng, form, 5_000, kind) for i, kind in enumerate(KINDS)}
    columns["few"] = pa.array(rng.integers(0, 5, 5_000))  # has a dictionary
    schema = pa.schema([pa.field(name, values.type, "3" not in name) for name, values in columns.items()])
    table, path = pa.table(columns, schema), tmp_path / "log.parquet"
    options = {"data_page_size": page, "row_group_size": 3_500, "use_dictionary": ["few"]}
    pq.write_table(table, path, compression=compression, **options)
    for index, (found, whole) in enumerate(both(path, columns, 2)):
        wanted = [column.to_numpy().tobytes() for column in table.slice(3_500 * index, 3_500).columns]
        assert whole == wanted
        assert found == wanted


def test_long_pieces_are_read_to_where_they_belong(tmp_path, monkeypatch):
    """A piece of new bytes can be longer than a chunk, and end within it."""
    rng = np.random.default_rng(5)
    table, path = pa.table({"x": rng.standard_normal(20_000).astype("float32")}), tmp_path / "log.parquet"
    pq.write_table(table, path, use_dictionary=False)
    for chunk in (1 << 12, 5_000, 1 << 14, 18_000):
        monkeypatch.setattr(pages, "CHUNK", chunk)
        ((found, _),) = both(path, ["x"], 1)
        assert found == [table["x"].to_numpy().tobytes()]


def test_a_page_with_more_numbers_than_the_column_is_unusual(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "CHUNK", 1 << 10)
    table, path = pa.table({"x": np.random.default_rng(8).standard_normal(3_000)}), tmp_path / "log.parquet"
    pq.write_table(table, path, use_dictionary=False)
    footer = Footer(str(path), LOCAL, State.of(str(path), LOCAL))
    handle = pages.opened(str(path))
    columns = pages.columns_of(pages.known_columns(footer, ("x",)), 0, 3_000, handle, pages.Space(Pool()))
    columns.table[0, kernels.NUMBERS] = 2_999
    assert flowed(columns) is None
    os.close(handle)


def test_bytes_from_before_the_last_chunk_are_unusual(tmp_path, monkeypatch):
    """Snappy repeats bytes that are up to 65,535 before. Shorter chunks do not keep them all."""
    rng = np.random.default_rng(6)
    once = rng.standard_normal(2_000).astype("float32")
    table, path = pa.table({"x": np.concatenate([once, once])}), tmp_path / "log.parquet"
    pq.write_table(table, path, use_dictionary=False)
    assert path.stat().st_size < 10_000  # so bytes are repeated
    for chunk, known in ((500, False), (1_000, False), (2_000, True), (3_000, True)):  # in rows; they have 4 bytes
        monkeypatch.setattr(pages, "CHUNK", chunk)
        ((found, whole),) = both(path, ["x"], 1)
        assert whole == [table["x"].to_numpy().tobytes()]
        assert found == (whole if known else None)


def packed(*pieces):
    """The bytes that stand for new bytes, and for repetitions (how far back, how many); and what they stand for."""
    data, out = b"", b""
    for piece in pieces:
        if isinstance(piece, bytes):
            data += bytes([(len(piece) - 1) << 2]) + piece
            out += piece
        else:
            back, length = piece
            data += bytes([((length - 1) << 2) | 2]) + back.to_bytes(2, "little")
            for _ in range(length):
                out += out[-back : len(out) - back + 1]
    return bytes([len(out)]) + data, out


def taken(path, data, size, levels, chunk, cut=0):
    """What flows of a page of so many bytes, a chunk at a time; None if it is refused."""
    path.write_bytes(data[: len(data) - cut])
    stored, flow = np.frombuffer(data, np.uint8), np.zeros(flows.FIELDS, np.int64)
    if not flows.begin(stored, 0, levels, size, True, flow):
        return None
    flow[flows.UNTIL] = len(data)
    handle, found = pages.opened(str(path)), b""
    before, here, window = (np.zeros(n, np.uint8) for n in (chunk, chunk, 2 * chunk + 64))
    try:
        while len(found) < size - levels:
            some = min(chunk, size - levels - len(found))
            if not flows.take(handle, flow, window, before, here, 0, some):
                return None
            found += here[:some].tobytes()
            before, here = here, before
    finally:
        os.close(handle)
    return found if flows.is_over(flow) else None


@pytest.mark.parametrize("chunk", [3, 4, 7, 16, 100])
def test_pieces_of_all_kinds_flow(tmp_path, chunk):
    path = tmp_path / "page"
    one_by_one = [bytes([i]) for i in range(1, 40)]  # heads of pieces end at any place of what is read
    levels = [b"abcde", (5, 4), (3, 3), (1, 9), b"xy"]  # repeats what is before the numbers
    for pieces, before in ((one_by_one, 0), (levels, 4), ([b"0123456789", (2, 30)], 0)):
        data, out = packed(*pieces)
        assert taken(path, data, len(out), before, chunk) == out[before:]


def test_what_makes_no_sense_is_refused(tmp_path):
    path = tmp_path / "page"
    data, out = packed(b"abcde", (5, 4), b"xy")
    assert taken(path, data, len(out), 4, 8) == out[4:]
    for wrong in (
        b"",
        b"\xff" * 9,  # a length that does not end
        b"\x05" + data[1:],  # another length
        data[:1],
        data[:1] + bytes([61 << 2]),  # a piece whose length is not there
        data[:1] + bytes([2]),  # a repetition of what is not said
        data[:1] + bytes([2, 1, 0]),  # a repetition of nothing
        data[:1] + bytes([4 << 2]) + b"ab",  # levels that are not there
        data[:1] + bytes([10 << 2]) + b"abcdefg",  # numbers that are not there
    ):
        assert taken(path, wrong, len(out), 4, 8) is None, wrong
    assert taken(path, packed(b"abcde", (6, 4), b"xy")[0], len(out), 4, 8) is None  # from before the page
    assert taken(path, packed(b"abcde", (5, 3), b"xy")[0], len(out), 4, 8) is None  # too short
    assert taken(path, packed(b"abcde", (5, 5), b"xy")[0], len(out), 4, 8) is None  # too long
    assert taken(path, data, len(out), 4, 8, cut=2) is None  # a file that ends
    flow, handle = np.zeros(flows.FIELDS, np.int64), pages.opened(str(path))
    space = np.zeros(20_000, np.uint8)
    flows.begin_plain(flow, 0, 20_000)  # a long piece, in a file that ends
    assert not flows.take(handle, flow, space, space, space, 0, 20_000)
    os.close(handle)


def test_pages_of_any_size_can_begin_at_the_end_of_what_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "CHUNK", 1 << 10)
    rng = np.random.default_rng(10)
    for page in range(560, 680, 5):
        table, path = pa.table({"x": rng.standard_normal(4_000).astype("float32")}), tmp_path / "log.parquet"
        pq.write_table(table, path, use_dictionary=False, data_page_size=page, write_batch_size=16)
        ((found, _),) = both(path, ["x"], 1)
        assert found == [table["x"].to_numpy().tobytes()]


def test_a_page_that_says_it_is_shorter_than_its_numbers_is_unusual(tmp_path):
    """Its first chunk is one long piece, which would end after the page."""
    table, path = pa.table({"x": np.random.default_rng(11).standard_normal(17_384).astype("f4")}), tmp_path / "log"
    pq.write_table(table, path, use_dictionary=False, compression="none")
    data = path.read_bytes()
    size, shorter = number(2 * 69_544), number(2 * 20_000)  # stored bytes, as Thrift has them: 3 bytes of 7 bits
    assert data[:100].count(size) == 2  # of the page, and stored
    place = data.index(size, data.index(size) + 1)
    path.write_bytes(data[:place] + shorter + data[place + 3 :])
    ((found, whole),) = both(path, ["x"], 1)
    assert found is None
    assert whole is None


def number(value):
    """Three bytes of a number in pieces of seven bits."""
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14])


@pytest.mark.parametrize(("rows", "chunk"), [(1_500, 256), (20_000, 1 << 12)])
@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_damaged_pages_are_unusual_or_have_the_numbers_of_the_other_way(
    tmp_path, monkeypatch, compression, rows, chunk
):
    rng = np.random.default_rng(7)
    monkeypatch.setattr(pages, "CHUNK", chunk)
    forms = ("period", "runs", "small") if rows < 2_000 else ("random", "mixed")
    columns = {form: numbers(rng, form, rows, "float32") for form in forms}
    path = tmp_path / "log.parquet"
    size = 1 << 11 if rows < 2_000 else 1 << 17
    pq.write_table(pa.table(columns), path, compression=compression, use_dictionary=False, data_page_size=size)
    data = path.read_bytes()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # of the pages
    heads = [4, data.index(b"\x15\x00\x15", 8)]  # where the pages of two columns begin
    taken = refused = 0
    for i in range(150 if rows < 2_000 else 60):
        broken = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(4, end)) if i % 2 else heads[int(rng.integers(2))] + int(rng.integers(40))
            broken[place] = int(rng.integers(256))
        path.write_bytes(bytes(broken))
        ((found, whole),) = both(path, columns, 1)
        assert found is None or found == whole
        taken, refused = taken + (found is not None), refused + (found is None)
    assert taken > 10
    assert refused > 10
