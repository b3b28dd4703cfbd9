"""Values as words, which JSON can hold, and arrays by name: sums of a pass, lanes of a replay, what a policy learned.

Numbers, text, arrays, and lists, tuples and dicts of them become themselves again. Other objects are restored into the
form of one that is there already, e.g. of sums over no event: types and shapes in a file, which may be made up, must be
those of the object.

>>> arrays = {}
>>> words = pack({"sums": np.array([1.0, 2.0]), "count": 3}, arrays)
>>> restore({"sums": np.zeros(2), "count": 0}, unpack(words, arrays))
{'sums': array([1., 2.]), 'count': 3}
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import re
from collections import Counter
from typing import Any, TypeVar

import numpy as np

from drstream.states.arrays import WORDS, Arrays

Value = TypeVar("Value")
NAME = re.compile(r"[a-z_][\w. ]{0,100}", re.ASCII)  # of an array in a file, if it is made of the names of fields
PLAIN = (bool, int, float, str)


@dataclasses.dataclass
class Varying:
    """An array whose length is not known beforehand."""

    array: Any


@dataclasses.dataclass
class Free:
    """Numbers, text and arrays in dictionaries and lists, of any form: what a user's own object gives."""

    value: Any


def pack(value: Any, arrays: Arrays, where: str = "", *, free: bool = False) -> Any:
    """Return words for a value, and put copies of its arrays aside. A TypeError says that there are none for it."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.array(value)
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} cannot be kept")
        fits = NAME.fullmatch(where) and where not in (*arrays, WORDS)
        name = where if fits else f"array.{len(arrays)}"
        arrays[name] = array
        return {"array" if isinstance(value, np.ndarray) else "number": name}
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return {"date": value.isoformat()}
    if isinstance(value, list):
        return [pack(one, arrays, f"{where}.{i}", free=free) for i, one in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [pack(one, arrays, f"{where}.{i}", free=free) for i, one in enumerate(value)]}
    if isinstance(value, Varying):
        return pack(value.array, arrays, where)
    if isinstance(value, Free):
        return pack(value.value, arrays, where, free=True)
    if not isinstance(value, dict):
        if free or not (dataclasses.is_dataclass(value) or hasattr(value, "__dict__")):
            kind = type(value).__name__
            raise TypeError(f"a {kind} is neither a number, text, an array, nor a list or dict of them")
        value = value.stored() if hasattr(value, "stored") else _inside(value)
    pairs = [(key, f"{where}.{key}".lstrip("."), one) for key, one in value.items()]
    return {"dict": [[pack(key, arrays), pack(one, arrays, name, free=free)] for key, name, one in pairs]}


def unpack(words: Any, arrays: Arrays) -> Any:
    """Return the value of words. Its arrays are taken out of `arrays`."""
    if isinstance(words, list):
        return [unpack(one, arrays) for one in words]
    if not isinstance(words, dict):
        return words
    ((kind, inner),) = words.items()
    if kind == "array":
        return arrays.pop(inner)
    if kind == "number":
        return arrays.pop(inner)[()]
    if kind == "date":
        return datetime.date.fromisoformat(inner)
    if kind == "tuple":
        return tuple(unpack(one, arrays) for one in inner)
    if kind != "dict":
        raise ValueError(f"{kind!r} is no kind of value")
    return {unpack(key, arrays): unpack(one, arrays) for key, one in inner}


def restore(like: Value, found: Any) -> Value:
    """Return a value of the form of `like`, with the numbers of an unpacked one. A ValueError says that they differ."""
    restored: Value = _restored(like, found)
    return restored


def _restored(like: Any, found: Any) -> Any:
    if isinstance(like, Free):
        return Free(found)
    if isinstance(like, Varying):
        return Varying(_array(like.array, found, varying=True))
    if isinstance(like, np.ndarray):
        return _array(like, found).view(type(like))
    if isinstance(like, np.generic):
        if not isinstance(found, np.generic) or found.dtype != like.dtype:
            raise ValueError(f"{found!r} for a number of {like.dtype}")
        return found
    if like is None or type(like) in PLAIN:
        if type(found) is not type(like):
            raise ValueError(f"{found!r} for {like!r}")
        return found
    if isinstance(like, list):
        _check(list, found)
        return _list(like, found)
    if isinstance(like, Counter):
        _check(dict, found)
        return Counter({str(name): int(count) for name, count in found.items()})
    if isinstance(like, tuple):
        _check(tuple, found)
        items = [_restored(one, other) for one, other in zip(like, found, strict=True)]
        return type(like)(*items) if hasattr(like, "_fields") else tuple(items)
    if hasattr(like, "restored"):
        return like.restored(found)
    inside = like if isinstance(like, dict) else _inside(like)
    _check(dict, found)
    if list(found) != list(inside):
        raise ValueError(f"{', '.join(map(str, found))} for {', '.join(map(str, inside))}")
    restored = {name: _restored(one, found[name]) for name, one in inside.items()}
    if isinstance(like, dict):
        return restored
    made = copy.copy(like)
    for name, value in restored.items():
        object.__setattr__(made, name, value)
    return made


def _check(kind: type, found: Any) -> None:
    if not isinstance(found, kind):
        raise ValueError(f"a {type(found).__name__}, not a {kind.__name__}")


def _array(like: Any, found: Any, *, varying: bool = False) -> Any:
    """An array after a check: kernels do not check bounds."""
    _check(np.ndarray, found)
    shape = (len(found), *like.shape[1:]) if varying and found.ndim else like.shape
    if found.dtype.descr != like.dtype.descr or found.shape != shape:
        raise ValueError(f"{found.dtype} {found.shape} for {like.dtype} {like.shape}")
    return found.astype(like.dtype, copy=False)


def _list(like: list[Any], found: list[Any]) -> list[Any]:
    if len(like) != len(found):  # it grows
        like = [like[0] if like else 0.0] * len(found)
    return [_restored(one, other) for one, other in zip(like, found, strict=True)]


def _inside(value: Any) -> dict[str, Any]:
    """What an object is made of, by name."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return vars(value)
