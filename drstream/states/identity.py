"""What a run is about: whether two had the same policies, models, parameters and columns, and where they differ.

What an object of drstream is made of is known: numbers, words and arrays. A function of the user's is not. Its name and
its compiled code are taken, but nobody can vouch for what it reads or calls. `drs.policies.named` gives it an identity.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import types
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from drstream.errors import parameter
from drstream.log import Log
from drstream.provenance import about_log, describe
from drstream.sources.base import SameObject

KNOWN = frozenset({"drstream", "numpy", "scipy", "sklearn", "pyarrow", "builtins", "functools", "operator", "math"})
NOT_PART = frozenset({"name", "fitted_on", "learned_on", "models_of", "_wants"})  # of what an object does
LONGEST = 200  # characters of a description


class Digest:
    """Takes up objects, and gathers those that it cannot vouch for."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._inside: list[int] = []  # objects that are being taken up
        self.doubtful: list[str] = []

    @classmethod
    def of(cls, value: Any) -> dict[str, Any]:
        """Return what an object is, as text, with a digest, and what of it nobody can vouch for."""
        digest = cls()
        digest.add(value)
        identity = getattr(value, "identity", None)
        text = f"named {identity!r}" if isinstance(identity, str) else str(describe(value))[:LONGEST]
        found = {"is": text, "sha256": digest._hash.hexdigest()}
        return {**found, "doubtful": sorted(set(digest.doubtful))} if digest.doubtful else found

    def _put(self, *words: object) -> None:
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "little") + data)

    def add(self, value: Any) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | range | type | os.PathLike):
            self._put(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        elif isinstance(value, np.generic | np.ndarray):
            self._add_array(np.asarray(value))
        elif isinstance(value, SameObject):
            self._put("object")
        elif isinstance(value, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
            self._put(type(value).__name__, str(value.type if hasattr(value, "type") else value.schema))
            self._add_all(value.to_pylist())
        elif type(value).__module__.startswith("pyarrow"):
            self._put(type(value).__name__, value)
        elif id(value) in self._inside:
            self._put("again", self._inside.index(id(value)))
        else:
            self._inside.append(id(value))
            self._add_object(value)
            self._inside.pop()

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        self._put("array", array.dtype, array.shape)
        if array.dtype.hasobject:
            self._add_all(array.reshape(-1).tolist())
        else:
            self._put(np.ascontiguousarray(array).tobytes())

    def _add_all(self, values: Any) -> None:
        self._put(len(values))
        for value in values:
            self.add(value)

    def _add_object(self, value: Any) -> None:
        if isinstance(value, Mapping):
            self._put("mapping")
            self._add_all([item for pair in value.items() for item in pair])
        elif isinstance(value, list | tuple):
            self._put("list")
            self._add_all(value)
        elif isinstance(value, set | frozenset):
            self._put("set", *sorted(Digest.of(item)["sha256"] for item in value))
        elif isinstance(value, partial):
            self._put("partial")
            self._add_all([value.func, value.args, value.keywords])
        elif isinstance(value, types.MethodType):
            self._put("method", value.__name__)
            self.add(value.__self__)
        elif (identity := getattr(value, "identity", None)) is not None and not isinstance(value, type):
            self._put("named", identity)
        elif hasattr(value, "kept_parameters") and not isinstance(value, type):
            self._add_fitted(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif callable(value) and not hasattr(value, "__dict__"):  # compiled: of NumPy, say
            self._put("compiled", getattr(value, "__module__", ""), getattr(value, "__qualname__", repr(type(value))))
            self._doubt(value, getattr(value, "__module__", None))
        else:
            self._add_instance(value)

    def _add_fitted(self, model: Any) -> None:
        """Take up a model or policy by what a file of it would hold."""
        self._put("fitted", type(model).__module__, type(model).__qualname__)
        self._doubt(model, type(model).__module__)
        labels = getattr(model, "labels_", None)
        encoding, pairs = getattr(model, "encoding_", None), getattr(model, "pairs_", None)
        self._add_all(
            [
                model.kept_parameters(),
                None if labels is None else [label if isinstance(label, str) else int(label) for label in labels],
                None if encoding is None else encoding.to_dict(),
                None if pairs is None else pairs.to_dict(),
                [float(bound) for bound in getattr(model, "reward_range_", None) or ()],
                *(getattr(model, name, None) for name in model.kept),
            ]
        )

    def _add_function(self, function: types.FunctionType) -> None:
        self._put("function", function.__module__, function.__qualname__)
        if not self._doubt(function, function.__module__):
            return
        self._add_code(function.__code__)
        self._add_all([function.__defaults__, function.__kwdefaults__])

    def _add_code(self, code: types.CodeType) -> None:
        self._put(code.co_code, *code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant)
            else:
                self.add(constant)

    def _doubt(self, value: Any, module: str | None) -> bool:
        """Whether nobody can vouch for an object, by the module that it, or its class, is from."""
        if (module or "").split(".")[0] in KNOWN:
            return False
        self.doubtful.append(str(describe(value))[:LONGEST])
        return True

    def _add_instance(self, value: Any) -> None:
        kind = type(value)
        self._put("instance", kind.__module__, kind.__qualname__)
        self._doubt(value, kind.__module__)
        if dataclasses.is_dataclass(value):
            state: Any = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif hasattr(value, "__dict__"):
            state = vars(value)
        else:
            state = value.__getstate__() if hasattr(value, "__getstate__") else None  # compiled, as trees of sklearn
        if not isinstance(state, Mapping):
            self._put(repr(state) if state is None else "")
            if state is not None:
                self.add(state)
            return
        for name in sorted(state, key=str):
            if name not in NOT_PART and not isinstance(getattr(kind, str(name), None), cached_property):
                self._put(name)
                self.add(state[name])


# What a run is about


def about_columns(log: Log, encoding: Any) -> dict[str, Any]:
    """What runs must agree in about their log, beside its rows."""
    about = about_log(log)
    return {
        **{name: about[name] for name in ("columns", "filter", "splits", "before_row", "missing", "on_bad_row")},
        "roles": Digest.of(log.roles)["sha256"],
        "categories": None if encoding is None else Digest.of(encoding.to_dict())["sha256"],
        "loggers": describe([str(one) for one in log.loggers]) if log.roles.logger_propensities else None,
    }


def about_labels(log: Log) -> dict[str, Any]:
    """The number of actions, and a digest of their labels, if all events share them."""
    if log.has_candidates or log.roles.ranking:
        return {}
    return {"number_of_actions": log.n_actions, "labels": Digest.of(list(log.labels))["sha256"]}


def about_fits(log: Log, inputs: Iterable[Any]) -> dict[str, Any]:
    """What a run is about that may fit models: its log, and these models.

    inputs  `models.binding.ModelInputs`, one for each reward.
    """
    found: dict[str, Any] = {"log": {**about_columns(log, None), **about_labels(log)}}
    if wanted := [one for one in inputs if one.waits]:
        found["models"] = [Digest.of([one.model, one.propensity, one.second])["sha256"] for one in wanted]
        first = wanted[0]
        found["parameters"] = {"crossfit": first.crossfit, "cluster": first.cluster, "fold_seed": first.seed}
    return found


def doubts_of(tree: Any) -> list[str]:
    """What nobody can vouch for, anywhere in an identity."""
    if isinstance(tree, Mapping):
        return [text for value in tree.values() for text in doubts_of(value)] + list(tree.get("doubtful", ()))
    return [text for value in tree for text in doubts_of(value)] if isinstance(tree, list) else []


# Differences


def difference(one: Any, other: Any) -> tuple[tuple[str, ...], Any, Any] | None:
    """Return the first place where two trees of JSON differ, and what each has there; None if they are the same.

    >>> difference({"a": 1, "b": {"is": "f", "sha256": "1"}}, {"a": 1, "b": {"is": "g", "sha256": "2"}})
    (('b', 'is'), 'f', 'g')
    """
    found = _first(one, other, ())
    if found is None or found[0][-1:] not in (("sha256",), ("is",)):
        return found
    where = found[0][:-1]
    for word in where:
        one, other = one[word], other[word]
    text = "is" if one["is"] != other["is"] else "sha256"
    return (*where, text), one[text], other[text]


def _first(one: Any, other: Any, where: tuple[str, ...]) -> tuple[tuple[str, ...], Any, Any] | None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            if key not in one or key not in other:
                return (*where, str(key)), one.get(key), other.get(key)
            if found := _first(one[key], other[key], (*where, str(key))):
                return found
        return None
    return None if one == other and type(one) is type(other) else (where, one, other)


def named(where: tuple[str, ...]) -> str:
    """The words for a place in an identity."""
    if where[0] == "policies":
        return f"policy {where[1]!r}" if len(where) > 1 else "the set of policies"
    if where[0] == "models":
        return f"the {where[2]} of {where[1]!r}" if len(where) > 2 else "the set of models"
    if where[0] == "parameters" and len(where) > 1:
        return parameter(where[1])
    if where[0] == "log" and len(where) > 1:
        return f"the log's {where[1].replace('_', ' ')}" + "".join(f" ({word})" for word in where[2:])
    if where[0] == "rewards" and len(where) > 2:
        return "the set of actions" if where[2] == "labels" else " ".join(where[2:]).replace("_", " ")
    return " ".join(word for word in where if word not in ("sha256", "is"))


def shown(value: Any) -> str:
    if isinstance(value, dict) and "is" in value:
        value = value["is"]
    text = "none" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
