"""Numba's flags, and the cache of machine code.

`@kernel(signature, ...)` compiles for exactly those signatures, each when a call first needs it, and keeps the machine
code on disk. So importing a kernel costs nothing, and a run compiles what it uses.
`@helper` marks a function that only kernels call. It becomes a part of the kernels that call it, and is optimised there
alone. Numba would optimise it by itself first, again with each function that calls it, and make it callable by Python:
half of the time to compile.
`@uncounted` marks a helper that saves the counting of references to arrays, 10 ns for each array, because it neither
makes an array nor returns one. `@inlined` marks such a helper on the hot path, which is repeated wherever it is used.
`@counted` marks one that needs it, whoever calls it. Other helpers do as the first kernel that is compiled with them.
`@unordered_helper` marks one without counting that may sum in any order, so that its sums vectorise.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import pickle
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config, serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.misc.appdirs import user_cache_dir

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
CHECKSUM = hashlib.sha256().digest_size

COMPILED: list[Any] = []  # every kernel that this process has called, for tests that count cache hits
_one_compiler = threading.RLock()
_log = logging.getLogger("drstream")


@cache
def _folders(target: Any) -> list[Path]:
    """Where kernels are kept, in the order in which they are looked for, and written if one can be written to.

    There is a folder for each digest of all that machine code depends on: sources, flags, versions and the machine.
    """
    flags = [sorted(value) if isinstance(value, set) else value for f in (FLAGS, UNORDERED) for value in f.values()]
    versions = numba.__version__, np.__version__, sys.implementation.cache_tag, target.codegen().magic_tuple()
    digest = hashlib.sha256(repr((flags, versions, config.OPT)).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    usual = [Path(__file__).parent / "__pycache__", Path(user_cache_dir("drstream", appauthor=False))]
    places = [Path(config.CACHE_DIR)] if config.CACHE_DIR else usual
    return [place / f"kernels-{digest.hexdigest()[:16]}" for place in places]


class _Cache:
    """A file for each signature of a kernel, which begins with a checksum: damaged code would end the process."""

    cache_path = ""  # Numba asks for it

    def __init__(self, function: Any) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"

    def _file(self, signature: Any) -> str:
        key = hashlib.sha256(str(signature).encode()).hexdigest()[:16]
        return f"{self.name.replace('<locals>.', '')}-{key}.code"

    def load_overload(self, signature: Any, target: Any) -> Any:
        target.refresh()
        for folder in _folders(target):
            try:
                data = (folder / self._file(signature)).read_bytes()
                if hashlib.sha256(data[CHECKSUM:]).digest() != data[:CHECKSUM]:
                    raise OSError("the checksum is wrong")
                return CompileResult._rebuild(target, *pickle.loads(data[CHECKSUM:]))
            except FileNotFoundError:
                continue
            except Exception:  # damaged, or not ours: it is compiled and written again
                _log.debug("kernel cache unreadable", exc_info=True)
        _notice.begin()
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        data = bytes(serialize.dumps(compiled._reduce()))
        for folder in _folders(compiled.target_context):
            unfinished = folder / secrets.token_hex(8)  # another process may write the same kernel
            try:
                folder.mkdir(parents=True, exist_ok=True)
                unfinished.write_bytes(hashlib.sha256(data).digest() + data)
                os.replace(unfinished, folder / self._file(signature))
                break
            except OSError:  # disk full, or the folder is gone or read-only: the kernel in memory is fine
                _log.debug("kernel not kept in %s; NUMBA_CACHE_DIR chooses a folder", folder, exc_info=True)
                with suppress(OSError):
                    unfinished.unlink()


def kernel(*signatures: Any, unordered: bool = False, counted: bool = True) -> Callable[[Function], Function]:
    """Compile for these signatures only, each at its first call, or load it from the cache.

    counted  Whether the kernel counts references to arrays, as it must if it allocates one. The caller holds one to
             each argument anyway.
    """

    def declare(function: Function) -> Function:
        if config.DISABLE_JIT:
            return np.errstate(all="ignore")(function)  # compiled code never warns, either
        flags = {**(UNORDERED if unordered else FLAGS), **({} if counted else {"_nrt": False})}
        dispatcher: Any = numba.njit(**flags)(function)
        dispatcher.declared = {signature.args: signature for signature in signatures}
        dispatcher.compiler = numba.njit(**flags)(function)  # `dispatcher` never compiles: threads may be calling it
        dispatcher.compiler._cache = _Cache(function)
        dispatcher._can_compile = False
        # Numba searches for conversions only if no compiled signature takes the arguments. Then one more is compiled.
        dispatcher._search_new_conversions = partial(_compile_for, dispatcher)
        return dispatcher

    return declare


def _compile_for(dispatcher: Any, *values: Any) -> bool:
    """Compile the signature that takes these values, unless another thread just did. Return whether there is one."""
    types = tuple(map(dispatcher.typeof_pyval, values))
    for wanted, signature in dispatcher.declared.items():
        if len(wanted) == len(types) and None not in map(dispatcher.typingctx.can_convert, types, wanted):
            compile_signature(dispatcher, signature)
            type(dispatcher)._search_new_conversions(dispatcher, *values)
            return True
    return False


def compile_signature(dispatcher: Any, signature: Any) -> None:
    """Compile a kernel for one of its signatures, or load it from the cache, if that was not done before."""
    with _one_compiler, interrupts_kept():
        if signature.args not in dispatcher.overloads:
            if not dispatcher.overloads:
                COMPILED.append(dispatcher.compiler)
            _compile(dispatcher.compiler, signature)
            dispatcher.add_overload(dispatcher.compiler.overloads[signature.args])


def _compile(dispatcher: Any, signature: Any) -> None:
    try:
        dispatcher.compile(signature)
    finally:
        _notice.end()


@cache
def policy_function(function: Callable[..., Any], signature: Any, checked: bool = False) -> Callable[..., Any]:
    """Compile a function of a compiled policy, perhaps a user's, for the signature by which kernels call it.

    A user's is not cached: what it uses may be edited. With `checked`, an index outside of an array raises an error
    instead of corrupting memory.
    """
    plain = getattr(function, "py_func", function)
    if config.DISABLE_JIT:
        return plain
    if signature.args in getattr(function, "declared", {}):  # one of ours
        compile_signature(function, signature)
        return function
    dispatcher: Any = numba.njit(**{**FLAGS, "boundscheck": checked or FLAGS["boundscheck"]})(plain)
    with _one_compiler, interrupts_kept():
        _notice.begin(kernel=False)
        _compile(dispatcher, signature)
    dispatcher.disable_compile()
    return dispatcher


_NO_CALL: Any = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value


class _Part(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """The code of a helper: the kernels that take it in optimise it, and turn it into machine code."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return int(_NO_CALL)  # if Python calls a helper: TypeError, '_dynfunc._Closure' object is not callable

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Python's environment is for code that makes objects."""


class _PartCompiler(Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        codegen = self.state.targetctx.codegen()
        self.state.library = _Part(codegen, self.state.func_id.func_qualname)
        return super().define_pipelines()


def _helper(**flags: Any) -> Callable[[Function], Function]:
    return numba.njit(pipeline_class=_PartCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, **flags)


helper = _helper(**FLAGS)
counted = _helper(**FLAGS, _nrt=True)
uncounted = _helper(**FLAGS, _nrt=False)
inlined = _helper(**FLAGS, _nrt=False, forceinline=True)
unordered_helper = _helper(**UNORDERED, _nrt=False)
