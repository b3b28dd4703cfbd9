"""Sums as flat numbers, for a file, and back: dataclasses, tuples, lists and arrays of numbers.

A value is restored into the form of another one, e.g. of sums over no event. So a file says nothing about types and
shapes, and one that was made up cannot ask for others.

>>> packed = pack({0: (np.array([[1.0, 2.0]]), 3)})
>>> restore({0: (np.zeros((1, 2)), 0)}, packed)
{0: (array([[1., 2.]]), 3)}
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from drstream.types import Floats, Ints

Value = TypeVar("Value")


@dataclasses.dataclass
class Varying:
    """An array whose length is not known beforehand."""

    array: Any


@dataclasses.dataclass
class Free:
    """Numbers, text and arrays in dictionaries and lists, of any form: what a user's own object gives."""

    value: Any


class Packed(NamedTuple):
    words: list[Any]  # text, counts by name, and lengths of lists; as JSON has them
    floats: Floats
    ints: Ints

    @property
    def nbytes(self) -> int:
        return self.floats.nbytes + self.ints.nbytes


def pack(value: Any) -> Packed:
    """Return all numbers of a value."""
    writer = _Writer()
    writer.put(value)
    floats, ints = np.concatenate([np.empty(0), *writer.floats]), np.concatenate([np.empty(0, np.int64), *writer.ints])
    return Packed(writer.words, floats, ints)


def restore(like: Value, packed: Packed) -> Value:
    """Return a value with the form of `like`, and the numbers that were packed. Raise a ValueError if they differ."""
    reader = _Reader(packed)
    found: Value = reader.take(like)
    reader.end()
    return found


class _Writer:
    def __init__(self) -> None:
        self.words: list[Any] = []
        self.floats: list[Floats] = []
        self.ints: list[Ints] = []

    def put(self, value: Any) -> None:
        if value is None or isinstance(value, str):
            self.words.append(value)
        elif isinstance(value, np.ndarray) and value.dtype.names:
            for name in value.dtype.names:
                self.put(np.asarray(value[name]))
        elif isinstance(value, np.ndarray | np.generic | bool | int | float):
            array = np.ravel(np.asarray(value))
            if array.dtype.kind == "f":
                self.floats.append(array.astype(np.float64))
            elif array.dtype.kind in "iub":
                self.ints.append(array.astype(np.int64))
            else:
                raise TypeError(f"an array of {array.dtype} has no numbers")
        elif isinstance(value, Varying):
            self.words.append(len(value.array))
            self.put(value.array)
        elif isinstance(value, Free):
            self.words.append(self._free(value.value))
        elif _counts(value):
            self.words.append(dict(value))
        elif isinstance(value, list):
            self.words.append(len(value))
            self._all(value)
        else:
            self._all(_inside(value).values())

    def _free(self, value: Any) -> Any:
        """The value as JSON. Arrays are put aside."""
        if value is None or isinstance(value, bool | int | float | str):
            if isinstance(value, np.float64):  # which is a float
                return self._free_array(value)
            return {"float": repr(float(value))} if isinstance(value, float) else value
        if isinstance(value, np.ndarray | np.generic):
            return self._free_array(value)
        if isinstance(value, list | tuple):
            return {"list" if isinstance(value, list) else "tuple": [self._free(one) for one in value]}
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            return {"dict": [[name, self._free(one)] for name, one in value.items()]}
        raise TypeError(f"a {type(value).__name__} is neither a number, text, an array, nor a list or dict of them")

    def _free_array(self, value: Any) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype == np.uint64 or array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise TypeError(f"an array of {array.dtype} cannot be kept")  # its numbers may not fit into 64 bits
        self.put(array)
        kind = "number" if isinstance(value, np.generic) else "array"
        return {kind: array.dtype.str, "shape": list(array.shape)}

    def _all(self, values: Any) -> None:
        for value in values:
            self.put(value)


class _Reader:
    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self.places = [0, 0, 0]  # in words, floats and ints

    def _next(self, which: int, count: int) -> Any:
        first = self.places[which]
        found = self.packed[which][first : first + count]
        if len(found) < count:
            raise ValueError("it has too few numbers")
        self.places[which] += count
        return found

    def end(self) -> None:
        if self.places != [len(part) for part in self.packed]:
            raise ValueError("it has too many numbers")

    def take(self, like: Any) -> Any:
        if like is None or isinstance(like, str):
            (word,) = self._next(0, 1)
            if type(word) is not type(like):
                raise ValueError(f"{word!r} is not text")
            return word
        if isinstance(like, np.ndarray) and like.dtype.names:
            array = np.empty(like.shape, like.dtype)
            for name in like.dtype.names:
                array[name] = self.take(np.asarray(like[name]))
            return array.view(type(like))
        if isinstance(like, np.ndarray):
            return self._numbers(like.dtype, like.size).reshape(like.shape)
        if isinstance(like, np.generic | bool | int | float):
            return type(like)(self._numbers(np.asarray(like).dtype, 1)[0])
        if isinstance(like, Varying):
            return Varying(self._varying(like.array))
        if isinstance(like, Free):
            return Free(self._free(self._next(0, 1)[0]))
        if _counts(like):
            return self._counted(like)
        if isinstance(like, list):
            return self._list(like)
        return _with(like, {name: self.take(value) for name, value in _inside(like).items()})

    def _numbers(self, kind: np.dtype[Any], count: int) -> Any:
        return self._next(1 if kind.kind == "f" else 2, count).astype(kind)

    def _varying(self, like: Any) -> Any:
        (length,) = self._next(0, 1)
        if type(length) is not int or not 0 <= length <= len(self.packed.floats) + len(self.packed.ints):
            raise ValueError(f"{length!r} is not a length")
        return self.take(np.empty((length, *like.shape[1:]), like.dtype))

    def _free(self, word: Any) -> Any:
        if not isinstance(word, dict):
            return word
        (kind, *_), inner = word, next(iter(word.values()))
        if kind == "float":
            return float(inner)
        if kind in ("array", "number"):
            dtype, shape = np.dtype(inner), [int(length) for length in word["shape"]]
            if dtype.kind not in "fiub" or min(shape, default=0) < 0:
                raise ValueError(f"{inner!r} are no numbers")
            array = self._numbers(dtype, math.prod(shape)).reshape(shape)
            return array[()] if kind == "number" else array
        if kind == "dict":
            return {name: self._free(one) for name, one in inner}
        found = [self._free(one) for one in inner]
        return found if kind == "list" else tuple(found)

    def _counted(self, like: Any) -> Any:
        (word,) = self._next(0, 1)
        if not isinstance(word, dict) or not all(type(count) is int for count in word.values()):
            raise ValueError(f"{word!r} are not counts")
        return type(like)(word)

    def _list(self, like: list[Any]) -> list[Any]:
        (length,) = self._next(0, 1)
        if type(length) is not int or length < 0:
            raise ValueError(f"{length!r} is not a length")
        each = like[0] if like else 0.0
        if isinstance(each, float):
            return [float(x) for x in self._next(1, length)]
        return [self.take(each) for _ in range(length)]


def _counts(value: Any) -> bool:
    """Whether it has counts by name, such as bad rows by reason."""
    return isinstance(value, dict) and all(isinstance(name, str) for name in value) and _whole(value.values())


def _whole(values: Any) -> bool:
    return all(isinstance(value, int) for value in values)


def _inside(value: Any) -> dict[Any, Any]:
    """What a value is made of, by name."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__dict__"):
        return vars(value)
    raise TypeError(f"a {type(value).__name__} has no numbers")


def _with(like: Any, values: dict[Any, Any]) -> Any:
    """The same kind of object, of other values."""
    if isinstance(like, dict):
        return type(like)(values)
    if isinstance(like, tuple):
        return type(like)(*values.values()) if hasattr(like, "_fields") else tuple(values.values())
    found = copy.copy(like)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found
