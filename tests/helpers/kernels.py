"""All modules of kernels at once. They compile nothing: each kernel does, or is loaded, when it is first called."""

import importlib
import pkgutil

import drstream.kernels


def load():
    """The modules."""
    names = [module.name for module in pkgutil.iter_modules(drstream.kernels.__path__)]
    return [importlib.import_module(f"drstream.kernels.{name}") for name in names]
