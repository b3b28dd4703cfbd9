"""All modules of kernels at once. Importing them compiles nothing; `python -m tests.helpers.kernels` compiles all."""

import importlib
import pkgutil

import drstream.kernels


def load():
    """Return the modules."""
    names = [module.name for module in pkgutil.iter_modules(drstream.kernels.__path__)]
    return [importlib.import_module(f"drstream.kernels.{name}") for name in names]


def compile_all():
    """Compile every kernel for all of its signatures, or load it from the cache."""
    from drstream.kernels._jit import compile_signature

    kernels = {id(value): value for module in load() for value in vars(module).values() if hasattr(value, "declared")}
    for kernel in kernels.values():
        for signature in kernel.declared.values():
            compile_signature(kernel, signature)


if __name__ == "__main__":
    compile_all()
