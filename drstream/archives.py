"""Zip files of arrays, as NumPy and skops write them. They may be crafted, so nothing is read that they only declare.

Members are not compressed: what is read takes no more memory than a small multiple of the file.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Collection, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

HEADER = 1 << 14  # bytes of an array that hold its header; NumPy refuses headers over 10,000 bytes
MOST = 1 << 26  # bytes that sparse arrays of skops, which are compressed, may take in any case
RATIO = 50  # how much larger than the file they may be otherwise
REFERENCES = 8  # how often a file of skops may refer to all of its bytes
SPARSE = {"data", "indices", "indptr", "row", "col", "offsets", "shape", "format", "_is_array"}  # of SciPy


def members(path: Any) -> list[str]:
    """Return the names in a zip file; none if it is something else. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return archive.namelist()
        except OSError:
            raise
        except Exception:  # zipfile raises BadZipFile, NotImplementedError, UnicodeError and others for damaged files
            return []


def read_array(path: Any, name: str) -> NDArray[Any] | None:
    """Return one array of an .npz file, or None if there is none of that name."""
    with zipfile.ZipFile(path) as file:
        _check_sizes(file)
        if f"{name}.npy" not in file.namelist():
            return None
        data = file.read(f"{name}.npy")
    return _array(data)


def check_skops(data: bytes) -> None:
    """Raise an error if a file of skops declares more than it holds, or has sparse arrays that point outside."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        _check_sizes(file)
        sizes = {member.filename: member.file_size for member in file.infolist()}
        for name in sizes:
            if name.endswith(".npy"):
                with file.open(name) as member:
                    _header(member, sizes[name])
            elif name.endswith(".npz"):
                _check_sparse(file.read(name))
        used = sum(sizes.get(name, 0) for name in _files_of(json.loads(file.read("schema.json"))))
    if used > REFERENCES * len(data):
        raise ValueError(f"it refers to {used:,} bytes, of {len(data):,} that it has")


def _files_of(node: Any) -> Iterator[str]:
    """Yield the files that nodes of a schema refer to."""
    left = [node]
    while left:  # not recursive: a file may nest as deep as JSON is parsed
        node = left.pop()
        if isinstance(node, dict):
            left += node.values()
            if isinstance(node.get("file"), str):
                yield node["file"]
        elif isinstance(node, list):
            left += node


def _check_sizes(file: zipfile.ZipFile) -> None:
    assert file.fp is not None
    size = file.fp.seek(0, io.SEEK_END)
    names = file.namelist()
    if len(names) > len(set(names)):
        raise ValueError("a name in it occurs twice")
    for member in file.infolist():
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{member.filename!r} in it is compressed, which drstream does not do")
    total = sum(member.file_size for member in file.infolist())
    if total > size:
        raise ValueError(f"it declares {total:,} bytes, and has {size:,}")


def _check_sparse(data: bytes) -> None:
    """Check a sparse array of SciPy, which trusts indices in files."""
    from scipy.sparse import load_npz

    with zipfile.ZipFile(io.BytesIO(data)) as file:
        total = sum(member.file_size for member in file.infolist())
        if total > max(MOST, RATIO * len(data)):
            raise ValueError(f"a sparse array in it takes {total:,} bytes, of {len(data):,} that are stored")
        unknown = {name.removesuffix(".npy") for name in file.namelist()} - SPARSE
        if unknown:
            raise ValueError(f"a sparse array in it has {min(unknown)!r}, which SciPy does not write")
        for member in file.infolist():
            with file.open(member) as array:
                _header(array, member.file_size)
    found = load_npz(io.BytesIO(data))
    if hasattr(found, "check_format"):
        found.check_format(full_check=True)


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether it is in Fortran's order, type and start of an array of so many bytes, after a check."""
    start = io.BytesIO(file.read(HEADER))
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
    shape, fortran, kind, start = _header(io.BytesIO(data), len(data))
    found = np.frombuffer(data, kind, offset=start).reshape(shape, order="F" if fortran else "C")
    return found.copy(order="K")  # kernels take arrays that can be written to


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
