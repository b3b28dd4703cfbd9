"""The facts about a policy that the checks of a result look at, from the sums of a pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from drstream.evaluation.checks import FAR_LEVEL, Direct, Gap, PolicyFacts
from drstream.evaluation.embedding import Embedding
from drstream.evaluation.estimators import ALL, BALANCED, IMPORTANCE, MARGINAL, Estimator, Weight
from drstream.evaluation.rankings import ListWeight
from drstream.evaluation.statistics import Overlap, Statistics
from drstream.intervals import t_score
from drstream.intervals.resampling import effective_number
from drstream.intervals.statistic import Statistic
from drstream.intervals.tails import carried_by, few_clicks


@dataclass(frozen=True)
class Basis:
    """What facts are made of."""

    sums: Statistics
    labels: Sequence[Any]  # of the actions
    stderr: Callable[[Statistic], float]
    clustered: bool
    estimated_propensities: bool
    propensity_error: float = 0.0
    estimators: Sequence[Estimator] = ()
    rankings: bool = False
    embedding: Embedding | None = None


def facts_of(seen: Basis, j: int, name: str, weight: Weight | None = None) -> PolicyFacts:
    """The facts about policy j, and its weights of one kind: by default, `weight_of` the estimators."""
    sums = seen.sums
    weight = weight_of(seen.estimators) if weight is None else weight
    kind = next((k for k, column in enumerate(sums.weights) if column == f"{weight.name}.weight"), None)
    overlap, labels = sums.overlap, seen.labels
    if weight.marginal and seen.embedding is not None:
        overlap, labels = _by_category(overlap, seen.embedding), seen.embedding.categories
    unlogged, actions = _unlogged(overlap, labels, j)
    of_kind = [e for e in seen.estimators if e.weight is not None and e.weight.marginal == weight.marginal]
    known: dict[str, Any] = {
        "unlogged": unlogged,
        "unlogged_actions": actions,
        "estimated_propensities": seen.estimated_propensities,
        "propensity_error": seen.propensity_error,
        "propensity_bias": _propensity_bias(seen, j),
        "no_overlap": any(sums.without_overlap(j, e) for e in of_kind),
        "weight": "balanced weight" if weight.balanced else "marginal weight" if weight.marginal else "weight",
        "of": "categories" if weight.marginal else "actions",
        "direct": _direct(seen, j, of_kind) if weight.marginal else {},
        "gap": None if weight.marginal or seen.rankings else _gap(seen, j),
    }
    if seen.rankings:
        used = [e for e in seen.estimators if e.weight == weight or (weight == IMPORTANCE and not _of_lists(e))]
        known |= {
            "no_overlap": any(sums.without_overlap(j, e) for e in used),
            "weight": weight.called if isinstance(weight, ListWeight) else "weight of the whole list",
            "by": ", ".join(e.of or e.name for e in used),
        }
    if kind is None:  # nothing is known about the weights ν / p
        return PolicyFacts(name, sums.n, **known)
    mean = sums.mean_weight(j, kind)
    total, _ = sums.weight_sums(j, kind)
    largest = float(sums.inspected.largest[j, kind])
    facts = PolicyFacts(
        name,
        sums.n,
        mean_weight=mean.value,
        stderr=seen.stderr(mean),
        ess=sums.ess(j, kind),
        largest_share=1.0 if math.isinf(largest) else largest / total if total > 0 else math.nan,
        thin=float(sums.inspected.thin[j, kind]) / total if total > 0 and not weight.marginal else math.nan,
        carriers=_carriers(seen, j, weight),
        clicks=sums.overlap.clicks,
        **known,
    )
    return _by_cluster(facts, sums, j, kind) if seen.clustered else facts


def _carriers(seen: Basis, j: int, weight: Weight) -> dict[str, float]:
    """By estimator, how many events, or clusters, carry it."""
    found = {}
    for estimator in seen.estimators:
        if estimator.weight is not None and estimator.weight.marginal == weight.marginal:
            statistic = seen.sums.value(j, estimator)
            carriers = few_clicks(statistic) if seen.sums.overlap.clicks else carried_by(statistic)
            if math.isfinite(carriers):
                found[estimator.of or estimator.name] = carriers
    return found


def _of_lists(estimator: Estimator) -> bool:
    return isinstance(estimator.weight, ListWeight)


def list_weights(estimators: Sequence[Estimator]) -> list[Weight]:
    """The weights of rankings that estimators use, each once. Those of whole lists count as one."""
    found = [e.weight if _of_lists(e) else IMPORTANCE for e in estimators if e.weight is not None]
    return list(dict.fromkeys(weight for weight in found if weight is not None))


def weight_of(estimators: Sequence[Estimator]) -> Weight:
    """The weight that facts are about: ν / p, unless only balanced weights, or only those of categories, are used."""
    used = {e.weight.name for e in estimators if e.weight is not None}
    if used == {MARGINAL.name}:
        return MARGINAL
    return BALANCED if BALANCED.name in used and IMPORTANCE.name not in used else IMPORTANCE


def _direct(seen: Basis, j: int, estimators: Sequence[Estimator]) -> dict[str, Direct]:
    """By estimator, the effect of actions beside that of their category."""
    found = {}
    for estimator in estimators:
        if estimator.needs_model:
            effect = seen.sums.mean_of(j, estimator.column("direct_residual"))
        else:
            centre = estimator.column("direct_weight"), seen.sums.baseline().value
            effect = seen.sums.mean_of(j, estimator.column("direct"), *centre)
        own = seen.sums.value(j, estimator)
        found[estimator.name] = Direct(effect.value, seen.stderr(effect), seen.stderr(own), estimator.needs_model)
    return found


def _gap(seen: Basis, j: int) -> Gap | None:
    """How far the first doubly robust estimate is from IPS with the same weights.

    It is mean b - w r̂, which should be 0 whatever the rewards are. With rewards and predictions about the mean reward
    c, the difference is mean (b - c) - w (r̂ - c): so what a mean weight other than 1 does is left out, which has a
    check of its own. Large weights make it uncertain how uncertain it is. So what is far is told by Student's t, with
    Σ w² / max w² as the number of events.
    """
    sums = seen.sums
    for estimator in seen.estimators:
        weight = estimator.weight
        if weight is None or estimator.score != "robust" or not estimator.is_mean:
            continue
        if weight.reduced or weight.power or not sums.inspected.largest[j, sums.kind(estimator)] > 0:
            continue
        kind, centre = sums.kind(estimator), sums.baseline().value
        robust, ips = sums.value(j, estimator), sums.value(j, replace(ALL["ips"], weight=weight))
        mean = sums.mean_weight(j, kind)
        value = robust.value - ips.value + centre * (mean.value - 1)
        gradient = robust.gradient - ips.gradient + centre * mean.gradient

        def at(means: Any, parts: tuple[Statistic, ...] = (robust, ips, mean), centre: float = centre) -> Any:
            return parts[0].at(means) - parts[1].at(means) + centre * (parts[2].at(means) - 1)

        found = seen.stderr(replace(robust, value=value, gradient=gradient, at=at, sides=()))
        largest = float(sums.inspected.largest[j, kind])
        large = sums.weight_sums(j, kind)[1] / largest / largest
        if seen.clustered:
            large = min(large, effective_number(sums.bucket_weights(j, kind)))
        level = 1 - (1 - FAR_LEVEL) / len(sums.overlap.mass)
        far = t_score(level, max(1.0, large - 1)) if large == large else math.inf
        return Gap(estimator.of or estimator.name, value, found, seen.stderr(robust), far)
    return None


def _by_category(overlap: Overlap, embedding: Embedding) -> Overlap:
    """The overlap of a policy with the log by category, not by action."""
    count = len(embedding.categories)

    def summed(values: Any) -> Any:
        return np.bincount(embedding.codes, values, count).astype(values.dtype) if len(values) else values

    return replace(overlap, mass=np.array([summed(row) for row in overlap.mass]), logged=summed(overlap.logged))


def balanced_facts(seen: Basis, j: int, name: str) -> PolicyFacts | None:
    """What is known about the balanced weights of policy j; None if there are none, or the facts are about them."""
    column = f"{BALANCED.name}.weight"
    if column not in seen.sums.weights or weight_of(seen.estimators).balanced:
        return None
    mean = seen.sums.mean_weight(j, seen.sums.weights.index(column))
    return PolicyFacts(name, seen.sums.n, mean.value, seen.stderr(mean), weight="balanced weight")


def _propensity_bias(seen: Basis, j: int) -> dict[str, float]:
    """By estimator, how far wrong propensities can move the estimate."""
    if not seen.propensity_error:
        return {}
    weighted = [e for e in seen.estimators if e.weight is not None]
    return {e.of or e.name: seen.sums.propensity_bias(j, e, seen.propensity_error) for e in weighted}


def _by_cluster(facts: PolicyFacts, sums: Statistics, j: int, kind: int) -> PolicyFacts:
    """Count clusters, not events, where events of one cluster depend on each other."""
    weight = sums.bucket_weights(j, kind)
    total = float(weight.sum())
    if not total > 0:
        return replace(facts, clusters=0.0)
    return replace(facts, clusters=effective_number(weight), largest_cluster=float(weight.max()) / total)


def _unlogged(overlap: Overlap, labels: Sequence[Any], j: int) -> tuple[float, list[Any]]:
    """The share of a policy's mass on actions that were never logged, and these actions."""
    if not len(overlap.logged) or math.isnan(overlap.mass[j].sum()):
        return math.nan, []
    never = overlap.logged == 0
    mass = overlap.mass[j]
    actions = [label for label, missing, m in zip(labels, never, mass, strict=True) if missing and m > 0]
    return float(mass[never].sum() / mass.sum()), actions
