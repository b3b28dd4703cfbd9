"""All kernels at once. `python -m tests.helpers.kernels` compiles those that are not in the cache: a minute for all."""

import importlib
import pkgutil

import drstream.kernels


def load():
    for module in pkgutil.iter_modules(drstream.kernels.__path__):
        importlib.import_module(f"drstream.kernels.{module.name}")


if __name__ == "__main__":
    load()
