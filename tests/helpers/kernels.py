"""All modules of kernels at once. Importing them compiles nothing.

`python -m tests.helpers.kernels` compiles all kernels, and `python -m tests.helpers.kernels 0 2` every other one.
"""

import importlib
import pkgutil
import sys

import drstream.kernels


def load():
    """Return the modules."""
    names = [module.name for module in pkgutil.iter_modules(drstream.kernels.__path__)]
    return [importlib.import_module(f"drstream.kernels.{name}") for name in names]


def compile_all(part=0, parts=1):
    """Compile every kernel for all of its signatures, or load it from the cache. Several processes may do a part each.

    All signatures of a kernel are in one part: they share a file of the cache, and two writers would lose entries.
    """
    from drstream.kernels._jit import compile_signature

    kernels = {id(value): value for module in load() for value in vars(module).values() if hasattr(value, "declared")}
    for kernel in list(kernels.values())[part::parts]:
        for signature in kernel.declared.values():
            compile_signature(kernel, signature)


if __name__ == "__main__":
    compile_all(*map(int, sys.argv[1:]))
