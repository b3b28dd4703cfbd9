"""Headers as words, for files of states. Estimators are known by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import ALL, Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.form import Form
from drstream.evaluation.header import Header
from drstream.evaluation.rankings import KNOWN, at_positions
from drstream.evaluation.request import Request
from drstream.evaluation.settings import Settings
from drstream.intervals.statistic import Constants
from drstream.results import ModelSummary
from drstream.states import tree

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
        "explain": None if request.told is None else [request.told.deterministic_rewards, request.told.adaptive],
        "forward": request.forward,
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
    told = None if found["explain"] is None else Explain(None, *found["explain"])
    request = Request(
        {},
        {},
        chosen,
        auto=found["auto"],
        settings=_settings(found["settings"]),
        told=told,
        forward=found["forward"],
    )
    form = {name: _tuples(value) for name, value in found["form"].items()}
    embedding = found["embedding"]
    if isinstance(found["labels"], int) and found["labels"] != form["actions"]:
        raise ValueError("number of actions")
    if not found["policies"] or len(found["policies"]) != form["policies"]:
        raise ValueError("number of policies")
    models = {**found["models"], "crossfitted": tuple(found["models"]["crossfitted"])}
    return Header(
        form=Form(**form),
        request=request,
        policies=list(found["policies"]),
        labels=range(found["labels"]) if isinstance(found["labels"], int) else list(found["labels"]),
        reward=found["reward"],
        pivot=float(found["pivot"]),
        precision=found["precision"],
        models=ModelSummary(**models),
        has_model=found["has_model"],
        has_logger=found["has_logger"],
        others=others,
        listed=_tuples(found["listed"]),
        embedding=None
        if embedding is None
        else Embedding(np.array(embedding["codes"], np.int64), tree.unpack(embedding["categories"], {})),
        path=found["path"],
    )


def _settings(found: dict[str, Any]) -> Settings:
    known = {field.name: _tuples(found[field.name]) for field in fields(Settings)}
    return Settings(**{**known, "constants": Constants(**found["constants"])})


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
