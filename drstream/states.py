"""The file of a state: a header in JSON, arrays, and a checksum over all of it. docs/states.md has it field by field.

A file is read as a whole or not at all: no byte of it counts before the checksum is right. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError, because
from drstream.storage import atomic_path

MAGIC = b"drstate\n"
SCHEMA = 2  # changes with the meaning of any field
KINDS = {"f": np.dtype("<f8"), "i": np.dtype("<i8")}  # types of arrays
CHECKSUM = 32  # bytes, at the end
Arrays = dict[str, NDArray[Any]]  # by name


class StateError(DrstreamError):
    """A state or checkpoint cannot be read, or does not fit."""


def to_bytes(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the contents of a file."""
    listed = [[name, values.dtype.kind, list(values.shape)] for name, values in arrays.items()]
    text = json.dumps({"schema": SCHEMA, **header, "arrays": listed}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pieces = [MAGIC, len(text).to_bytes(8, "little"), text]
    pieces += [np.ascontiguousarray(values, KINDS[values.dtype.kind]).tobytes() for values in arrays.values()]
    whole = b"".join(pieces)
    return whole + hashlib.sha256(whole).digest()


def from_bytes(data: bytes, name: str, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays, if the file is whole and of this kind and schema."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 8 + CHECKSUM:
        raise StateError(f"{name} is not a state that drstream wrote, or it is damaged")
    whole = memoryview(data)[:-CHECKSUM]
    if hashlib.sha256(whole).digest() != data[-CHECKSUM:]:
        raise StateError(f"{name} is damaged: its checksum is wrong. Write it again")
    start = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    try:
        header = json.loads(bytes(whole[start : start + length]))
        schema, found = header["schema"], header["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateError(f"{name} is damaged: it has no header. Write it again") from None
    if schema != SCHEMA:
        raise StateError(
            f"{name} has schema {schema!r} of states, and this drstream reads {SCHEMA}: write it again, or use the "
            f"drstream that wrote it, {header.get('version', 'of an unknown version')}"
        )
    if found != kind:
        raise StateError(f"{name} holds {found!r}, not {kind!r}")
    try:
        return header, _arrays(header["arrays"], whole[start + length :])
    except (ValueError, KeyError, TypeError):
        raise StateError(f"{name} is damaged: its arrays do not fit its header. Write it again") from None


def _arrays(listed: Any, data: memoryview) -> Arrays:
    found, start = {}, 0
    for name, kind, shape in listed:
        length = math.prod(shape)
        if not all(isinstance(size, int) and size >= 0 for size in shape) or length > len(data) // 8:
            raise ValueError(shape)
        numbers = np.frombuffer(data[start : start + 8 * length], KINDS[kind], length)
        found[name] = numbers.reshape(shape)
        start += 8 * length
    if start != len(data):
        raise ValueError(start)
    return found


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, which appears only when it is complete."""
    try:
        with atomic_path(path) as unfinished, unfinished.open("wb") as file:
            file.write(data)
    except OSError as error:
        raise StateError(f"cannot write {os.fspath(path)}: {because(error)}") from None


def read(path: str | os.PathLike[str]) -> bytes:
    name = os.fspath(path)
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise StateError(f"no such file: {name!r}") from None
    except OSError as error:
        raise StateError(f"cannot read {name}: {because(error)}") from None


def difference(one: Any, other: Any, where: tuple[str, ...] = ()) -> tuple[tuple[str, ...], Any, Any] | None:
    """Return the first place where two trees of JSON differ, and what each has there; None if they are the same.

    >>> difference({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [1, 3]}})
    (('b', 'c'), [1, 2], [1, 3])
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            if key not in one or key not in other:
                return (*where, str(key)), one.get(key), other.get(key)
            if found := difference(one[key], other[key], (*where, str(key))):
                return found
        return None
    return None if one == other and type(one) is type(other) else (where, one, other)
