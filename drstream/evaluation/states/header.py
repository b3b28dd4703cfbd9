"""Headers as words, for files of states. Estimators are known by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import ALL, Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.form import SumsForm
from drstream.evaluation.header import Header
from drstream.evaluation.rankings import KNOWN, at_positions
from drstream.evaluation.request import Request
from drstream.evaluation.settings import Settings
from drstream.intervals import z_score
from drstream.intervals.statistic import Constants
from drstream.results import ModelSummary
from drstream.states import tree

Made = TypeVar("Made")
LISTS = ("policies", "labels", "chosen", "estimators")  # what is no tuple
OF_MODELS = ("crossfit", "blocks", "blind_second", "crossfitted", "estimated_propensities")  # known before the pass


def own_estimators(chosen: Sequence[Estimator], *, ranking: bool) -> list[str]:
    """The estimators that are not drstream's."""
    known = KNOWN if ranking else ALL
    return [e.name for e in chosen if known.get(e.name) is not e]


def header_to_dict(header: Header) -> dict[str, Any]:
    """All of a header but the counts of unknown categories, which differ from log to log."""
    request, embedding = header.request, header.embedding
    return {
        "reward": header.reward,
        "policies": header.policies,
        "labels": _labels(header.labels),
        "estimators": [e.name for e in request.chosen],
        "positions": max((getattr(e, "positions", 0) for e in request.chosen), default=0),
        "auto": request.auto,
        "explain": None if request.told is None else request.told.deterministic_rewards,
        "settings": _plain(asdict(request.settings)),
        "form": _plain(asdict(header.form)),
        "pivot": header.pivot,
        "precision": header.precision,
        "models": _plain({name: getattr(header.models, name) for name in OF_MODELS}),
        "has_model": header.has_model,
        "has_logger": header.has_logger,
        "listed": _plain(header.listed),
        "embedding": None
        if embedding is None
        else {"codes": embedding.codes.tolist(), "categories": tree.pack(tuple(embedding.categories), {})},
        "path": header.path,
    }


def header_from_dict(found: dict[str, Any], others: dict[str, dict[str, int]]) -> Header:
    """A ValueError, KeyError or TypeError says that this is no header."""
    ranking = found["listed"] is not None
    chosen = [(KNOWN if ranking else ALL)[name] for name in found["estimators"]]
    if found["positions"]:
        chosen = at_positions(chosen, int(found["positions"]))
    told = None if found["explain"] is None else _made(Explain, {"deterministic_rewards": found["explain"]})
    settings = {**found["settings"], "constants": _made(Constants, found["settings"]["constants"])}
    asked = {"auto": found["auto"], "settings": _made(Settings, settings), "told": told}
    request = _made(Request, {"policies": {}, "inputs": {}, "chosen": chosen, **asked})
    form, labels, embedding = _made(SumsForm, found["form"]), found["labels"], found["embedding"]
    if len(found["policies"]) != form.policies or not form.policies:
        raise ValueError("number of policies")
    if isinstance(labels, int) and labels != form.actions:
        raise ValueError("number of actions")
    made = {
        "form": form,
        "request": request,
        "labels": range(labels) if isinstance(labels, int) else labels,
        "models": _made(ModelSummary, found["models"]),
        "others": others,
        "embedding": None
        if embedding is None
        else Embedding(np.array(embedding["codes"], np.int64), tree.unpack(embedding["categories"], {})),
    }
    header = _made(Header, {**_of(found, Header), **made})
    _check(header)
    return header


def _check(header: Header) -> None:
    """Raise an error unless the estimators can be made of such sums, and the intervals, too."""
    form, settings = header.form, header.request.settings
    z_score(settings.confidence)
    if not set(form.weights) <= set(form.columns) or not {method.name for method in settings.named()} == set(
        settings.names
    ):
        raise ValueError("form")
    for estimator in header.estimators:
        if estimator.weight is not None and estimator.column("weight") not in form.weights:
            raise ValueError(f"the weight of {estimator.name!r}")
        if not any(set(estimator.columns) <= set(terms) <= set(form.columns) for terms in form.groups):
            raise ValueError(f"the terms of {estimator.name!r}")


def _of(found: dict[str, Any], kind: type) -> dict[str, Any]:
    return {one.name: found[one.name] for one in fields(kind) if one.name in found}


def _made(kind: type[Made], found: dict[str, Any]) -> Made:
    """Make a record of words. They may be made up, so their types are checked."""
    values = {name: value if name in LISTS else _tuples(value) for name, value in found.items()}
    for name, hint in get_type_hints(kind).items():
        if name in values and not _fits(values[name], hint):
            raise ValueError(f"{name} {values[name]!r}")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type, as far as words have types."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is tuple and isinstance(value, tuple):
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(inner) == len(value) and all(map(_fits, value, inner))
    if kind is float:
        return type(value) in (int, float)
    if kind is list and isinstance(value, list):
        return all(_fits(one, inner[0]) for one in value)
    return kind is Any or (type(value) is kind if kind in (bool, int, str) else isinstance(value, kind))


def _labels(labels: Sequence[Any]) -> int | list[Any]:
    if isinstance(labels, range) and labels == range(len(labels)):
        return len(labels)
    return [label if isinstance(label, str) else int(label) for label in labels]


def _plain(value: Any) -> Any:
    """The same with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
