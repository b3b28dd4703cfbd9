"""What Numba has no word for: memory at an address, arrays on the stack, lines of the cache, bits as an exponent.

Without a compiler, the Python functions of the same names do the same.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

MANTISSA = {32: 23, 64: 52}  # bits after the exponent, by width of a number


def memory(address: int, size: int, like: Any) -> Any:
    """So many numbers that begin at an address, in the type of `like`, an array or a type. Who calls keeps them."""
    kind = like.dtype if isinstance(like, np.ndarray) else np.dtype(like)
    return np.frombuffer((ctypes.c_char * (size * kind.itemsize)).from_address(int(address)), kind)


@intrinsic
def _memory(context: Any, address: Any, size: Any, like: Any) -> Any:
    kind = types.Array(like.dtype, 1, "C")

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = builder.inttoptr(values[0], context.get_data_type(like.dtype).as_pointer())
        return _array(context, builder, kind, start, values[1])

    return kind(types.int64, types.int64, like), make


def _array(context: Any, builder: Any, kind: Any, start: Any, size: Any) -> Any:
    """An array of numbers that it does not own, from a pointer on."""
    array = make_array(kind)(context, builder)
    width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape, strides = cgutils.pack_array(builder, [size]), cgutils.pack_array(builder, [width])
    populate_array(array, data=start, shape=shape, strides=strides, itemsize=width, meminfo=None)
    return array._getvalue()


@intrinsic(prefer_literal=True)
def _on_the_stack(context: Any, size: Any, like: Any) -> Any:
    if not isinstance(size, types.IntegerLiteral):
        return None
    kind = types.Array(like.dtype, 1, "C")

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        with builder.goto_entry_block():  # once for each call, also in a loop
            room = builder.alloca(ir.ArrayType(context.get_data_type(like.dtype), size.literal_value))
        room.align = 64
        start = builder.bitcast(room, context.get_data_type(like.dtype).as_pointer())
        return _array(context, builder, kind, start, context.get_constant(types.intp, size.literal_value))

    return kind(size, like), make


@intrinsic
def _prefetch(context: Any, array: Any, offset: Any) -> Any:
    def fetch(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.bitcast(make_array(signature.args[0])(context, builder, values[0]).data, byte)
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0")
        read, everywhere, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(function, [builder.gep(start, [values[1]]), read, everywhere, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), fetch


@intrinsic
def _as_exponent(context: Any, x: Any) -> Any:
    def move(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, width = values[0].type, x.bitwidth
        whole = ir.IntType(width)
        bits = builder.shl(builder.bitcast(values[0], whole), ir.Constant(whole, MANTISSA[width]))
        return builder.bitcast(bits, number)

    return x(x), move


def as_exponent(x: Any) -> Any:
    """The number whose exponent is the lowest bits of x, a floating-point number, and whose other bits are 0."""
    whole = np.dtype(f"i{x.dtype.itemsize}").type
    return (x.view(whole) << whole(MANTISSA[8 * x.dtype.itemsize])).view(x.dtype)


def scratch(size: int, like: Any) -> Any:
    """An array of so many numbers, a constant, for the time of a call of a kernel. `like` has numbers of that type.

    The compiler knows that no other array overlaps with it, so loops that write to it vectorise without a check.
    """
    return np.empty(size, like.dtype)


def prefetch(array: Any, offset: int) -> None:
    """Bring the cache line at this offset in bytes into the cache. It may be after the end of the array."""


if not config.DISABLE_JIT:
    memory, scratch, prefetch, as_exponent = _memory, _on_the_stack, _prefetch, _as_exponent
