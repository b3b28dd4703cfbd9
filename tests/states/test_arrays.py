"""Files of arrays and words: what is written is read, and what is crafted is refused before it takes memory."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

import drstream as drs
from drstream.states import arrays

FOUND = {
    "numbers": np.arange(12.0).reshape(3, 4),
    "turned": np.arange(6).reshape(2, 3).T,
    "none": np.empty((0, 5)),
    "one": np.array(3, np.int32),
    "records": np.zeros(2, np.dtype([("a", "i1"), ("b", "f8", (2,))], align=True)),
}
WORDS = {"text": "é", "numbers": [1, 2.5, float("inf"), None, True]}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.state"
    arrays.save(path, "some", WORDS, FOUND)
    words, found = arrays.load(path, "some")
    assert {name: words[name] for name in WORDS} == WORDS
    assert words["version"] == drs.__version__
    assert list(found) == list(FOUND)
    for name, array in FOUND.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].shape, found[name].dtype.descr) == (array.shape, array.dtype.descr)
        assert found[name].flags.writeable
    assert path.read_bytes() == arrays.to_bytes("some", WORDS, FOUND)
    with np.load(path) as file:  # without pickles
        np.testing.assert_array_equal(file["turned"], FOUND["turned"])
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        arrays.save(path, "some", WORDS, {"objects": np.array([None])})
    assert [one.name for one in tmp_path.iterdir()] == ["a.state"]


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(found, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, data in found:
            file.writestr(name, data)
    return out.getvalue()


def member(array):
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


def refused(data, words):
    tracemalloc.start()
    try:
        with pytest.raises(drs.StateError, match=f"a state in memory is damaged: .*{words}"):
            arrays.load(data, "some")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_crafted_is_refused():
    data = arrays.to_bytes("some", WORDS, FOUND)
    good = members(data)
    assert arrays.load(zipped(good.items()), "some")[0]["text"] == "é"  # else anything would be refused
    zeros = member(np.zeros(5_000_000))
    refused(zipped({**good, "more.npy": zeros}.items(), zipfile.ZIP_DEFLATED), "is compressed")
    refused(zipped([*good.items(), ("one.npy", good["one.npy"])]), "a name in it occurs twice")
    huge = good["numbers.npy"].replace(b"(3, 4), }" + 10 * b" ", b"(3, 4000000000), }".ljust(19))
    assert huge != good["numbers.npy"]
    refused(zipped({**good, "numbers.npy": huge}.items()), r"has shape \(3, 4000000000\)")
    refused(zipped({**good, "more.npy": member(np.array([print], object))}.items()), "is a pickle")
    refused(zipped({**good, "about.npy": member(np.frombuffer(b"[" * 100_000, np.uint8))}.items()), "")
    refused(zipped({name: data for name, data in good.items() if name != "about.npy"}.items()), "about")
    refused(zipped({**good, "one.npy": member(np.array(4, np.int32))}.items()), "its checksum is wrong")
    size = len(good["numbers.npy"]).to_bytes(4, "little")
    refused(zipped(good.items()).replace(size, (1 << 31).to_bytes(4, "little")), "it declares")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "a.state"
    arrays.save(path, "some", WORDS, FOUND)
    before = path.read_bytes()

    def fail(file, *args, **options):
        file.write(b"half")
        raise error

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    wanted = drs.StateError if isinstance(error, OSError) else error
    with pytest.raises(wanted):
        arrays.save(path, "some", {}, {})
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.state"]
