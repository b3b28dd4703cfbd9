"""The code that makes a result again. What it cannot say, such as a table in memory, has a name and a comment."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import without_secrets
from drstream.log import Log
from drstream.log.rows import Split, seed_of_split
from drstream.sources.parquet import ParquetSource
from drstream.types import Floats

RUNS = frozenset({"evaluate", "replay", "plan", "audit"})  # that reports tell about
HOW = frozenset({"threads", "executor", "progress", "debug", "state", "checkpoint", "checkpoint_every"})
LARGEST = 64  # numbers of an array that code shows
LONGEST = 200  # characters of a comment on what it does not show


def recipe(run: Callable[..., Any], given: Mapping[str, Any], log: Log, describe: Callable[[Any], Any]) -> str:
    """Return the code of a run with these arguments; empty if it is none that reports are about."""
    if run.__name__ not in RUNS:
        return ""
    code = Recipe(describe)
    lines = [f"log = {code.log(log)}"]
    usual = inspect.signature(run).parameters
    arguments = []
    for name, parameter in usual.items():
        value = given.get(name, parameter.default)
        if name == "log" or name in HOW or _same(value, parameter.default):
            continue
        text = code.mapping(value, name) if isinstance(value, Mapping) else code.named(value, name)
        needed = parameter.default is parameter.empty
        arguments.append(text if needed else f"{name}={text}")
    called = f"log.{run.__name__}(" if run.__name__ == "audit" else f"drs.{run.__name__}(log, "
    lines.append(f"result = {(called + ', '.join(arguments)).rstrip(', ')})")
    return "\n".join(["import drstream as drs", "", *code.comments, *lines])


def _same(value: Any, default: Any) -> bool:
    simple = isinstance(value, int | float | str)
    return value is default or (simple and type(value) is type(default) and value == default)


@dataclass
class Recipe:
    """Expressions of values, and comments on those that have none."""

    describe: Callable[[Any], Any]
    comments: list[str] = field(default_factory=list)

    def log(self, log: Log) -> str:
        """An expression of a log: how it was opened, and its splits."""
        how, opened = log.opened
        given = [self.named(_paths(opened["source"]), "rows", log.source.name)]
        usual = inspect.signature(Log).parameters
        for name, value in opened.items():
            default = usual[name].default if name in usual else None
            if name not in ("source", "progress") and not _same(value, default):
                given.append(f"{name}={self.named(value, name)}")
        text = f"drs.{how}({', '.join(given)})"
        for depth, split in enumerate(log.spec.splits):
            text += self._split(split, depth)
        return text if log.spec.stop is None else f"{text}.rows_before({log.spec.stop})"

    def _split(self, split: Split, depth: int) -> str:
        if split.outside or (split.low > 0.0 and split.high < 1.0):
            self.comments.append(f"# This code leaves out that the log was {split}.")
            return ""
        seed, more = seed_of_split(split.seed, depth), "" if split.cluster is None else f", cluster={split.cluster!r}"
        share, place = (split.high, 0) if split.low == 0.0 and split.high < 1.0 else (split.low, 1)
        return f".split({share!r}, seed={seed}{more})[{place}]"

    def mapping(self, values: Mapping[Any, Any], role: str) -> str:
        return "{" + ", ".join(f"{name!r}: {self.named(one, f'{role}_{name}')}" for name, one in values.items()) + "}"

    def named(self, value: Any, name: str, about: str = "") -> str:
        """An expression of a value, or else a name for it, with a comment."""
        text = expression(value)
        if text is not None:
            return text
        name = re.sub(r"\W+", "_", name).strip("_") or "value"
        told = about or str(self.describe(value))
        told = told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"
        self.comments.append(f"# This code cannot say what my_{name} is: {' '.join(told.split())}")
        return f"my_{name}"


def _paths(source: Any) -> Any:
    """Return paths as text, and anything else as it is."""
    if isinstance(source, list | tuple) and all(isinstance(one, str | os.PathLike) for one in source):
        return list(map(os.fspath, source))
    if isinstance(source, ParquetSource):  # that was opened before
        return source.name
    return os.fspath(source) if isinstance(source, os.PathLike) else source


def expression(value: Any) -> str | None:
    """Return an expression that makes an equal value, given drstream as drs; None if there is none.

    >>> import drstream as drs
    >>> expression(drs.policies.Epsilon(drs.policies.Constant(1), 0.1)), expression(max)
    ('drs.policies.Epsilon(drs.policies.Constant(1), 0.1)', None)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if value == without_secrets(value) else None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list | tuple):
        return _sequence(value)
    if isinstance(value, Mapping):
        pairs = [(expression(key), expression(one)) for key, one in value.items()]
        return None if any(None in pair for pair in pairs) else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, pa.DataType):
        return repr(str(value))
    return _made(value)


def _array(value: Floats) -> str | None:
    if value.size > LARGEST or value.dtype.kind not in "biuf":
        return None
    return expression(value.tolist())


def _sequence(value: Sequence[Any]) -> str | None:
    found = [expression(one) for one in value]
    if any(one is None for one in found):
        return None
    inside = ", ".join(one for one in found if one is not None)
    return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(found) == 1)})"


def _made(value: Any) -> str | None:
    """An expression of an object of a public class: its parameters are kept under their names."""
    kind = type(value)
    place = _public(kind)
    if place is None or isinstance(value, Enum) or getattr(value, "fitted", False):
        return None
    found = []
    ordered = True
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD or not hasattr(value, name):
            return None
        if parameter.kind is parameter.VAR_POSITIONAL:
            several = _sequence(list(getattr(value, name)))
            if several is None:
                return None
            found.append(several[1:-1])
            continue
        kept = getattr(value, name)
        if _same(kept, parameter.default):
            ordered = False
            continue
        text = expression(kept)
        if text is None:
            return None
        ordered = ordered and parameter.kind is not parameter.KEYWORD_ONLY
        found.append(text if ordered else f"{name}={text}")
    return f"{place}({', '.join(found)})"


def _public(kind: type) -> str | None:
    """The name of a class of ours."""
    import drstream

    if kind.__module__.split(".")[0] != "drstream":
        return None
    for place, room in (("drs", drstream), ("drs.policies", drstream.policies), ("drs.models", drstream.models)):
        if getattr(room, kind.__name__, None) is kind:
            return f"{place}.{kind.__name__}"
    return None
