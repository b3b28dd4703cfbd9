"""Numba types of kernel arguments. Inputs are read-only, as Arrow's memory is; writable arrays fit these types, too."""

from typing import Any

import numpy as np
from numba import from_dtype
from numba.core.types import Array, FunctionType, float32, float64, int32, int64, none, uint8, uint32, uint64, void
from numba.core.types.containers import NamedTuple, NamedUniTuple

__all__ = [
    "DOUBLE",
    "F4",
    "F4_2",
    "F4_3",
    "F4_IN",
    "F4_IN2",
    "F4_IN3",
    "F8",
    "F8_2",
    "F8_3",
    "F8_IN",
    "F8_IN2",
    "F8_IN3",
    "I4",
    "I4_2",
    "I4_IN",
    "I4_IN2",
    "I8",
    "I8_2",
    "I8_3",
    "I8_IN",
    "I8_IN2",
    "SINGLE",
    "U1",
    "U1_2",
    "U1_3",
    "U1_IN",
    "U1_IN2",
    "U1_IN3",
    "U4",
    "U4_2",
    "U4_IN2",
    "U8",
    "U8_IN",
    "float64",
    "function",
    "int64",
    "named",
    "none",
    "record",
    "void",
]

F8 = Array(float64, 1, "C")
F8_2 = Array(float64, 2, "C")
F8_3 = Array(float64, 3, "C")
F8_IN3 = Array(float64, 3, "C", readonly=True)
I4 = Array(int32, 1, "C")
I4_2 = Array(int32, 2, "C")
I8 = Array(int64, 1, "C")
I8_2 = Array(int64, 2, "C")
I8_3 = Array(int64, 3, "C")
F8_IN = Array(float64, 1, "C", readonly=True)
F8_IN2 = Array(float64, 2, "C", readonly=True)
F4 = Array(float32, 1, "C")
F4_3 = Array(float32, 3, "C")
F4_IN3 = Array(float32, 3, "C", readonly=True)
F4_IN = Array(float32, 1, "C", readonly=True)
F4_2 = Array(float32, 2, "C")
F4_IN2 = Array(float32, 2, "C", readonly=True)
I4_IN = Array(int32, 1, "C", readonly=True)
I4_IN2 = Array(int32, 2, "C", readonly=True)
U1 = Array(uint8, 1, "C")
U1_2 = Array(uint8, 2, "C")
U1_3 = Array(uint8, 3, "C")
U1_IN = Array(uint8, 1, "C", readonly=True)
U1_IN2 = Array(uint8, 2, "C", readonly=True)
U1_IN3 = Array(uint8, 3, "C", readonly=True)
U4 = Array(uint32, 1, "C")
U4_2 = Array(uint32, 2, "C")
U4_IN2 = Array(uint32, 2, "C", readonly=True)
U8 = Array(uint64, 1, "C")
U8_IN = Array(uint64, 1, "C", readonly=True)
I8_IN = Array(int64, 1, "C", readonly=True)
I8_IN2 = Array(int64, 2, "C", readonly=True)


SINGLE, DOUBLE = (I8_IN, I4_IN, F4_IN), (I8_IN, I4_IN, F8_IN)  # sparse rows: indptr, indices, values


def record(dtype: np.dtype) -> Array:
    """The type of a state: an array of one record."""
    return Array(from_dtype(dtype), 1, "C")


def named(kind: type, *types: Any) -> Any:
    """The type of a NamedTuple whose fields have these types."""
    return NamedUniTuple(types[0], len(types), kind) if len(set(types)) == 1 else NamedTuple(types, kind)


def function(signature: Any) -> FunctionType:
    """The type of any compiled function of this signature. It is called by address, so its caller is compiled once."""
    return FunctionType(signature)
