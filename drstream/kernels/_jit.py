"""The only module that knows Numba's flags and its cache. Apart from it, only `_types.py` imports numba.

`@kernel(signature, ...)` compiles for exactly those signatures, each when a call first needs it, and keeps the machine
code on disk. So importing a kernel costs nothing, and a run compiles what it uses.
`@helper` marks a function that only kernels call. It is compiled into its callers.
`@inlined` marks a helper on the hot path. It saves the counting of references to arrays, 10 ns for each array.
`@uncounted` marks a helper that saves this, too, because it neither makes an array nor returns one. `@counted` marks
one that needs it, whoever calls it. Other helpers do as the first kernel that is compiled with them.
`@unordered_helper` marks one without counting that may sum in any order, so that its sums vectorise. `unordered=True`
does the same for a kernel.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import pickle
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, config, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from drstream.kernels import _notice
from drstream.kernels._interrupts import interrupts_kept

Function = TypeVar("Function", bound=Callable[..., Any])

FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # 'contract' fuses a*b+c into one rounding; unlike 'reassoc' it cannot delete the compensation term of a sum,
    # which has no products (tests/kernels/test_precision.py).
    "fastmath": {"contract"},
    "boundscheck": bool(config.BOUNDSCHECK),
}
UNORDERED: dict[str, Any] = {**FLAGS, "fastmath": {"contract", "reassoc", "nsz"}}
COUNTED: dict[str, Any] = {"_nrt": True}
UNCOUNTED: dict[str, Any] = {"_nrt": False}

MANTISSA = {32: 23, 64: 52}  # bits after the exponent, by width of a number

COMPILED: list[Any] = []  # every kernel that this process has called, for tests that count cache hits
_one_compiler = threading.RLock()


def _digest() -> str:
    """Hash of all kernel sources and flags: Numba's own key sees neither a helper's file nor a flag."""
    flags = [
        (name, sorted(value) if isinstance(value, set) else value)
        for f in (FLAGS, UNORDERED, COUNTED, UNCOUNTED)
        for name, value in f.items()
    ]
    digest = hashlib.sha256(repr(flags).encode())  # sorted: a set's order changes with the process
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


DIGEST = _digest()


class _CheckedFile(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """The files of a kernel in Numba's disk cache, with checksums: damaged machine code would end the process."""

    def _dump(self, obj: Any) -> bytes:
        data = super()._dump(obj)
        return hashlib.sha256(data).digest() + bytes(data)

    def _load_index(self) -> dict[Any, str]:
        try:
            with open(self._index_path, "rb") as file:
                if pickle.load(file) != self._version:
                    return {}
                stamp, overloads = pickle.loads(_checked(file.read()))
        except FileNotFoundError:
            return {}
        except Exception:  # damaged: it will be written again
            logging.getLogger("drstream").debug("index of the kernel cache unreadable", exc_info=True)
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_checked(Path(self._data_path(name)).read_bytes()))


def _checked(data: bytes) -> bytes:
    size = hashlib.sha256().digest_size
    if hashlib.sha256(data[size:]).digest() != data[:size]:
        raise OSError("the checksum is wrong")
    return data[size:]


class _DigestCache(FunctionCache):  # type: ignore[misc]
    """Numba's disk cache with a digest in its key. If it fails, the kernel is compiled all the same."""

    digest = DIGEST

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFile(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), self.digest)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # a truncated or foreign cache file: compile instead
            logging.getLogger("drstream").debug("kernel cache unreadable", exc_info=True)
        if found is None:
            _notice.compiling()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # disk full, or folder gone or read-only: the kernel in memory is fine
            logging.getLogger("drstream").debug("kernel cache not written", exc_info=True)


def _use_cache(dispatcher: Any) -> None:
    try:
        dispatcher._cache = _DigestCache(dispatcher.py_func)
    except (RuntimeError, OSError):  # no folder is writable
        logging.getLogger("drstream").debug("kernels are not cached: no writable folder; set NUMBA_CACHE_DIR")


def kernel(*signatures: Any, unordered: bool = False, counted: bool = True) -> Callable[[Function], Function]:
    """Compile for these signatures only, each at its first call, or load it from the cache.

    counted  Whether the kernel counts references to arrays, as it must if it allocates one. The caller holds one to
             each argument anyway.
    """

    def declare(function: Function) -> Function:
        if config.DISABLE_JIT:
            return np.errstate(all="ignore")(function)  # compiled code never warns, either
        flags = {**(UNORDERED if unordered else FLAGS), **({} if counted else UNCOUNTED)}
        dispatcher: Any = numba.njit(**flags)(function)
        dispatcher.declared = {signature.args: signature for signature in signatures}
        dispatcher.compiler = numba.njit(**flags)(function)  # `dispatcher` never compiles: threads may be calling it
        dispatcher._can_compile = False
        # Numba searches for conversions only if no compiled signature takes the arguments. Then one more is compiled.
        dispatcher._search_new_conversions = partial(_compile_for, dispatcher)
        return dispatcher

    return declare


def _compile_for(dispatcher: Any, *values: Any) -> bool:
    """Compile the signature that takes these values, unless another thread just did. Return whether there is one."""
    types = tuple(map(dispatcher.typeof_pyval, values))
    context = dispatcher.typingctx
    for wanted, signature in dispatcher.declared.items():
        fits = len(wanted) == len(types) and None not in map(context.can_convert, types, wanted)
        if fits:
            compile_signature(dispatcher, signature)
            type(dispatcher)._search_new_conversions(dispatcher, *values)
            return True
    return False


def compile_signature(dispatcher: Any, signature: Any) -> None:
    """Compile a kernel for one of its signatures, or load it from the cache, if that was not done before."""
    with _one_compiler, interrupts_kept():
        if signature.args in dispatcher.overloads:
            return
        compiler = dispatcher.compiler
        if not compiler.overloads:
            _use_cache(compiler)
            COMPILED.append(compiler)
        compiler.compile(signature)
        _notice.compiled()
        dispatcher.add_overload(compiler.overloads[signature.args])


def helper(function: Function) -> Function:
    return numba.njit(**FLAGS)(function)


def inlined(function: Function) -> Function:
    return numba.njit(inline="always", **FLAGS)(function)


def counted(function: Function) -> Function:
    return numba.njit(**FLAGS, **COUNTED)(function)


def uncounted(function: Function) -> Function:
    return numba.njit(**FLAGS, **UNCOUNTED)(function)


def unordered_helper(function: Function) -> Function:
    return numba.njit(**UNORDERED, **UNCOUNTED)(function)


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


@cache
def policy_function(function: Callable[..., Any], signature: Any, checked: bool = False) -> Callable[..., Any]:
    """Compile a function of a compiled policy, perhaps a user's, for the signature by which kernels call it.

    With `checked`, an index outside of an array raises an error instead of corrupting memory. Such code is not cached.
    """
    plain = getattr(function, "py_func", function)
    if config.DISABLE_JIT:
        return plain
    if signature.args in getattr(function, "declared", {}):  # one of ours
        compile_signature(function, signature)
        return function
    dispatcher: Any = numba.njit(**{**FLAGS, "boundscheck": checked or FLAGS["boundscheck"]})(plain)
    if not checked and not any(isinstance(cell.cell_contents, Dispatcher) for cell in plain.__closure__ or ()):
        _use_cache(dispatcher)  # not for such closures: their key differs in every process, which would add a file
        if isinstance(dispatcher._cache, _DigestCache):
            dispatcher._cache.digest = hashlib.sha256((DIGEST + _what_it_uses(plain, set())).encode()).hexdigest()
    with interrupts_kept():
        dispatcher.compile(signature)
    _notice.compiled()
    dispatcher.disable_compile()
    COMPILED.append(dispatcher)
    return dispatcher


def _what_it_uses(function: Any, seen: set[Any]) -> str:
    """Everything that a function refers to and that Numba freezes: the values of globals, and the sources of modules
    and of other compiled functions, in any file."""
    seen.add(function)
    parts = []
    for name in sorted(function.__code__.co_names):
        value = function.__globals__.get(name)
        used = getattr(value, "py_func", None)
        if used is not None and used not in seen:
            parts += [_source(used.__code__.co_filename), _what_it_uses(used, seen)]
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in ("numpy", "math", "numba"):
            parts.append(_source(getattr(value, "__file__", None)))
        elif isinstance(value, np.ndarray):
            parts.append(f"{name}={value.dtype}{value.tobytes().hex()}")
        elif isinstance(value, int | float | complex | str | tuple | np.generic):
            parts.append(f"{name}={value!r}")
    return "\0".join(parts)


def _source(file: str | None) -> str:
    path = Path(file or "")
    return path.read_text() if path.suffix == ".py" and path.exists() else str(file)
