"""Outlines as words, for files of states. Estimators are known by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from drstream.evaluation import grids
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import ALL, Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.form import Form
from drstream.evaluation.outline import Asked, Outline
from drstream.evaluation.rankings import KNOWN, at_positions
from drstream.evaluation.settings import Settings
from drstream.intervals.statistic import Constants
from drstream.results import ModelSummary
from drstream.states import tree

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
    asked = Asked(_settings(found["settings"]), chosen, found["auto"], told, found["forward"])
    form = {name: _tuples(value) for name, value in found["form"].items()}
    embedding = found["embedding"]
    if isinstance(found["labels"], int) and found["labels"] != form["actions"]:
        raise ValueError("number of actions")
    if not found["policies"] or len(found["policies"]) != form["policies"]:
        raise ValueError("number of policies")
    models = {**found["models"], "crossfitted": tuple(found["models"]["crossfitted"])}
    return Outline(
        form=Form(**form),
        asked=asked,
        policies=list(found["policies"]),
        labels=range(found["labels"]) if isinstance(found["labels"], int) else list(found["labels"]),
        estimators=grids.expand(chosen, asked.auto),
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
