"""Outlines as words, for files of states. Estimators are known by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from drstream.evaluation import grids
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import ALL, Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.form import Form
from drstream.evaluation.outline import Asked, Outline
from drstream.evaluation.rankings import KNOWN, at_positions
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


def outline_to_dict(outline: Outline) -> dict[str, Any]:
    """All of an outline but the counts of unknown categories, which differ from log to log."""
    asked, embedding = outline.asked, outline.embedding
    return {
        "reward": outline.reward,
        "policies": outline.policies,
        "labels": _labels(outline.labels),
        "estimators": [e.name for e in asked.chosen],
        "positions": max((getattr(e, "positions", 0) for e in asked.chosen), default=0),
        "auto": asked.auto,
        "explain": None if asked.told is None else [asked.told.deterministic_rewards, asked.told.adaptive],
        "forward": asked.forward,
        "settings": _plain(asdict(asked.settings)),
        "form": _plain(asdict(outline.form)),
        "pivot": outline.pivot,
        "precision": outline.precision,
        "models": _plain({name: getattr(outline.models, name) for name in OF_MODELS}),
        "has_model": outline.has_model,
        "has_logger": outline.has_logger,
        "listed": _plain(outline.listed),
        "embedding": None
        if embedding is None
        else {"codes": embedding.codes.tolist(), "categories": tree.pack(tuple(embedding.categories), {})},
        "path": outline.path,
    }


def outline_from_dict(found: dict[str, Any], others: dict[str, dict[str, int]]) -> Outline:
    """A ValueError, KeyError or TypeError says that this is no outline."""
    ranking = found["listed"] is not None
    chosen = [(KNOWN if ranking else ALL)[name] for name in found["estimators"]]
    if found["positions"]:
        chosen = at_positions(chosen, int(found["positions"]))
    told = None if found["explain"] is None else Explain(None, *found["explain"])
    settings = {**found["settings"], "constants": _made(Constants, found["settings"]["constants"])}
    asked = _made(Asked, {**_of(found, Asked), "settings": _made(Settings, settings), "chosen": chosen, "told": told})
    form, labels, embedding = _made(Form, found["form"]), found["labels"], found["embedding"]
    if len(found["policies"]) != form.policies or not form.policies:
        raise ValueError("number of policies")
    if isinstance(labels, int) and labels != form.actions:
        raise ValueError("number of actions")
    made = {
        "form": form,
        "asked": asked,
        "labels": range(labels) if isinstance(labels, int) else labels,
        "estimators": grids.expand(chosen, asked.auto),
        "models": _made(ModelSummary, found["models"]),
        "others": others,
        "embedding": None
        if embedding is None
        else Embedding(np.array(embedding["codes"], np.int64), tree.unpack(embedding["categories"], {})),
    }
    outline = _made(Outline, {**_of(found, Outline), **made})
    _check(outline)
    return outline


def _check(outline: Outline) -> None:
    """Raise an error unless the estimators can be made of such sums, and the intervals, too."""
    form, settings = outline.form, outline.asked.settings
    z_score(settings.confidence)
    if not set(form.weights) <= set(form.columns) or not {method.name for method in settings.named()} == set(
        settings.names
    ):
        raise ValueError("form")
    for estimator in outline.estimators:
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
