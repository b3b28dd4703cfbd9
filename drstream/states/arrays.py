"""One format of files for states, checkpoints and models: an .npz of arrays that is not compressed, with words in JSON.

`numpy.load` opens it. A file may be damaged or crafted: what it declares is compared with its size before memory is
taken, pickles are refused, and the checksum of each array must be right. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError, StateError, because
from drstream.states.files import atomic_path

SCHEMA = 4  # of states and checkpoints; changes with the meaning of any field
WORDS = "about"  # name of the array that holds the words
ARRAY_HEADER = 1 << 14  # bytes of an array that hold its header; NumPy refuses headers over 10,000 bytes
EARLIER = b"drstate\n"  # states and checkpoints of earlier versions begin so
Arrays = dict[str, NDArray[Any]]  # by name


def write(file: IO[bytes], words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write words and arrays to an open file. The same ones give the same bytes."""
    text = json.dumps(words, separators=(",", ":")).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in {WORDS: np.frombuffer(text, np.uint8), **arrays}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values, order="C"), allow_pickle=False)


def read(file: IO[bytes]) -> tuple[dict[str, Any], Arrays]:
    """Return words and arrays of an open file. A ValueError says what is wrong with it."""
    try:
        with zipfile.ZipFile(file) as archive:
            check_sizes(archive)
            arrays = {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}
        words = json.loads(_text(arrays.pop(WORDS)))
    except Exception as error:  # zipfile and json raise many kinds for damaged files
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    if not isinstance(words, dict):
        raise ValueError("what it says about itself is no dictionary")
    return words, arrays


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any], kind: type[DrstreamError]) -> None:
    """Let `write` fill a file, which appears only when it is complete."""
    try:
        with atomic_path(path) as unfinished, unfinished.open("wb") as file:
            write(file)
    except OSError as error:
        raise kind(f"cannot write {os.fspath(path)}: {because(error)}") from None


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise an error if members of a zip file are more than the file has."""
    assert archive.fp is not None
    size = archive.fp.seek(0, io.SEEK_END)
    names = archive.namelist()
    if len(names) > len(set(names)):
        raise ValueError("a name in it occurs twice")
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{member.filename!r} in it is compressed, which drstream does not do")
    total = sum(member.file_size for member in archive.infolist())
    if total > size:
        raise ValueError(f"it declares {total:,} bytes, and has {size:,}")


def check_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether it is in Fortran's order, type and start of an array of so many bytes, after a check."""
    start = io.BytesIO(file.read(ARRAY_HEADER))
    version = np.lib.format.read_magic(start)
    if version == (1, 0):
        shape, fortran, kind = np.lib.format.read_array_header_1_0(start)
    elif version == (2, 0):
        shape, fortran, kind = np.lib.format.read_array_header_2_0(start)
    else:
        raise ValueError(f"an array in it has version {version}")
    if kind.hasobject:
        raise ValueError("an array in it is a pickle, which could run any code")
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != size - start.tell():
        raise ValueError(f"an array in it has shape {shape} of {kind}, and {size - start.tell():,} bytes")
    return shape, fortran, kind, start.tell()


def _array(data: bytes) -> NDArray[Any]:
    shape, fortran, kind, start = check_header(io.BytesIO(data), len(data))
    memory = bytearray(data)  # kernels take arrays that can be written to
    found: NDArray[Any] = np.ndarray(shape, kind, memory, start, order="F" if fortran else "C")
    return found if found.flags.aligned else found.copy(order="K")


def _text(found: NDArray[Any]) -> bytes:
    """Return the words. Models of earlier versions have them as an array of text."""
    if found.dtype == np.uint8 and found.ndim == 1:
        return found.tobytes()
    if found.dtype.kind != "U" or found.ndim:
        raise ValueError("what it says about itself is not text")
    if found.reshape(1).view(np.uint32).max(initial=0) > 0x10FFFF:  # NumPy takes any number for a character
        raise ValueError("what it says about itself has characters that do not exist")
    return str(found).encode()


def check_array(name: str, found: Any, shape: Collection[int | None]) -> NDArray[np.float64]:
    """Return an array of float64 after a check of its type, its shape and its numbers. None stands for any size."""
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or found.dtype.itemsize != 8:
        raise ValueError(f"{name} is {getattr(found, 'dtype', type(found).__name__)}, not float64")
    fits = found.ndim == len(shape) and all(wanted in (None, n) for n, wanted in zip(found.shape, shape, strict=True))
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} has shape {found.shape}, not ({wanted})")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds {found[~np.isfinite(found)][0]}")
    return np.ascontiguousarray(found, np.float64)


# States and checkpoints


def to_bytes(kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the contents of a file of this kind."""
    out = io.BytesIO()
    write(out, _headed(kind, words, arrays), arrays)
    return out.getvalue()


def save(path: str | os.PathLike[str], kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file of this kind, which appears only when it is complete."""
    write_whole(path, lambda file: write(file, _headed(kind, words, arrays), arrays), StateError)


def _headed(kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    from drstream import __version__

    about = {"kind": kind, "schema": SCHEMA, "version": __version__, **words}
    return {**about, "sha256": _digest(about, arrays)}


def _digest(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """The digest of all that a file says: zip's checksums are of single arrays, and have 32 bits."""
    found = hashlib.sha256(json.dumps(words).encode())
    for name, values in arrays.items():
        found.update(repr((name, values.dtype.descr, values.shape)).encode())
        found.update(values.tobytes())
    return found.hexdigest()


def load(source: str | os.PathLike[str] | bytes, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Return words and arrays of a file, or of its bytes, if it is whole and of this kind and schema."""
    name = "a state in memory" if isinstance(source, bytes) else os.fspath(source)
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            start = file.read(4096)
            _refuse_earlier(start, name)
            if not start.startswith(b"PK"):
                raise StateError(f"{name} is not a state that drstream wrote, or it is damaged")
            try:
                words, arrays = read(file)
            except ValueError as error:
                raise StateError(f"{name} is damaged: {error}. Make it again") from None
    except FileNotFoundError:
        raise StateError(f"no such file: {name!r}") from None
    except OSError as error:
        raise StateError(f"cannot read {name}: {because(error)}") from None
    if "schema" not in words or "kind" not in words:
        raise StateError(f"{name} is not a state that drstream wrote")
    if words["schema"] != SCHEMA:
        raise _other_schema(name, words["schema"], words.get("version"))
    if words.pop("sha256", None) != _digest(words, arrays):
        raise StateError(f"{name} is damaged: its checksum is wrong. Make it again")
    if words["kind"] != kind:
        raise StateError(f"{name} holds {words['kind']!r}, not {kind!r}")
    return words, arrays


def _refuse_earlier(start: bytes, name: str) -> None:
    if start.startswith(EARLIER):
        schema = re.search(rb'"schema":(\d{1,9})\b', start)
        version = re.search(rb'"version":"([\w.+-]{1,40})"', start)
        raise _other_schema(name, int(schema[1]) if schema else None, version[1].decode() if version else None)


def _other_schema(name: str, schema: Any, version: Any) -> StateError:
    wrote = f"drstream {version}" if isinstance(version, str) else "another drstream"
    return StateError(
        f"{name} was written by {wrote}, with schema {schema!r} of states, and this drstream reads {SCHEMA}: make it "
        f"again, or use {wrote}"
    )
