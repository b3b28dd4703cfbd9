"""What the caller of `evaluate` asked for, checked as far as it can be without a row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from drstream.errors import DrstreamError, parameter, suggest
from drstream.evaluation import estimators as registry
from drstream.evaluation import grids
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.explanation import Explain
from drstream.evaluation.rankings import KNOWN, AvailableLists, at_positions, has_position_terms, refuse_for_events
from drstream.evaluation.settings import Settings
from drstream.intervals import tails, z_score
from drstream.log import Log, Reader
from drstream.log.columns import lengths
from drstream.log.schema import UNIFORM
from drstream.models.binding import ModelInputs, no_propensities
from drstream.models.crossfit import is_forward, to_be_fitted
from drstream.parameters import number, precision
from drstream.policies.base import FixedPolicy, as_policies
from drstream.running import execution
from drstream.running.execution import Workers
from drstream.sources.base import Part

Limits = dict[str, float | None]  # of weights: cap, floor, inflation and lambda_
NO_PROPENSITIES = f"and the log has none: name their column of lists with {parameter('propensity')}"


@dataclass(frozen=True)
class Request:
    """Policies, models, estimators, and what to tell beside their estimates.

    inputs    Models, by reward.
    chosen    Estimators, as the caller named them.
    limits    Of weights.
    auto      The limit that is to be chosen from a grid.
    settings  Of intervals.
    by        Columns whose values make segments.
    told      What explanations were asked for.
    given     The parameters as the caller gave them.
    """

    policies: dict[str, FixedPolicy]
    inputs: dict[str, ModelInputs]
    chosen: Sequence[Estimator]
    limits: Limits = field(default_factory=dict)
    auto: str | None = None
    settings: Settings = field(default_factory=Settings)
    by: tuple[str, ...] = ()
    told: Explain | None = None
    embedding: Any = None
    precision: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Log, given: Mapping[str, Any]) -> Request:
        """Check the parameters of `evaluate`."""
        z_score(given["confidence"])
        auto, limits = _limits(given)
        told = Explain.of(given["explain"])
        chosen = _choose(log, given, auto, limits, told)
        log.check_cluster(given["cluster"])
        settings, by = _settings(log, given), given["by"]
        settings.check_estimators(chosen)
        return cls(
            policies=as_policies(given["policies"]),
            inputs={reward: _inputs(given, told, reward) for reward in log.roles.rewards},
            chosen=chosen,
            limits=limits,
            auto=auto,
            settings=settings,
            by=tuple(by) if isinstance(by, list | tuple) else () if by is None else (by,),
            told=told,
            embedding=given["embedding"],
            precision=precision(given["precision"]),
            given=given,
        )

    def for_length(self, log: Log, workers: Workers) -> Request:
        """The same with terms for each position of the lists of a log of rankings, which may have to be read."""
        return replace(self, chosen=_for_lists(self.chosen, log, workers)) if log.roles.ranking else self

    @property
    def bare(self) -> Request:
        """The same without policies and models, which need not be picklable."""
        told = None if self.told is None else replace(self.told, second_model=None)
        return replace(self, policies={}, inputs={}, told=told, embedding=None, given={})

    @property
    def estimators(self) -> list[Estimator]:
        """With all forms of a grid."""
        return grids.expand(list(self.chosen), self.auto)

    @property
    def extra(self) -> frozenset[str]:
        """What terms shall explain, beside the estimates: `Estimator.explained_by`."""
        needs = self.settings.needs & {"spread", "smooth", "explored"}
        found = needs | {"spread"} if self.settings.propensity_error else needs
        if self.told is None:
            return found
        return found | {"parts", "cut", *(["second"] if self.told.second_model is not None else [])}

    @property
    def fine(self) -> bool:
        """Whether variances are made of sums by bucket, not only tails."""
        named = self.settings.named()
        return self.settings.cluster is not None or any("buckets" in m.needs for m in named if m.name != tails.NAME)

    @property
    def stretches(self) -> bool:
        """Whether sums by stretch of time are needed."""
        return "stretches" in self.settings.needs

    def needed(self, inputs: ModelInputs) -> ModelInputs:
        """The models that estimators need."""
        chosen = self.estimators
        return inputs.needed(model=any(e.needs_model for e in chosen), propensity=any(e.weight for e in chosen))

    def users(self, log: Log) -> list[Any]:
        """Policies and models that may know actions which the log's first rows lack; none if no actions are needed."""
        needed = [self.needed(one) for one in self.inputs.values()]
        if log.roles.ranking:
            return []
        if not any(one.given for one in needed) and not any(p.needs_actions(log) for p in self.policies.values()):
            return []
        return [*(user for one in needed for user in one.users), *self.policies.values()]


def _choose(log: Log, given: Mapping[str, Any], auto: str | None, limits: Limits, told: Explain | None) -> Any:
    """The estimators that were named, or those that the other parameters allow."""
    model, propensity, names = given["model"], given["propensity"], given["estimators"]
    several = list(model.values()) if isinstance(model, Mapping) else [model]
    forward = is_forward(given["crossfit"]) and any(map(to_be_fitted, several))
    of_all, with_propensities = bool(log.roles.propensities), propensity is not None or log.roles.with_propensities
    there = model is not None, with_propensities, limits, grids.chosen_by(auto), of_all, forward
    lacking = _balance(log, given["by"])
    if log.roles.ranking:
        _check_options(log, given, told)
        return _choose_for_lists(log, names, (*there, lacking))
    refuse_for_events(names)
    distribution = of_all or propensity is not None or log.roles.constant == UNIFORM
    available = registry.Available(*there, lacking, given["embedding"] is not None, distribution, log.has_candidates)
    return registry.choose(names, available, no_propensities())


def _settings(log: Log, given: Mapping[str, Any]) -> Settings:
    found = Settings.of(
        given["interval"],
        given["confidence"],
        given["reward_range"],
        given["max_weight_bound"],
        given["cluster"],
        log.roles.sample_rate,
        given["propensity_error"],
        given["constants"],
    )
    return found.smoothed(log.rows) if found.needs & {"smooth", "explored"} else found


def _balance(log: Log, by: Any) -> str | None:
    """What balanced weights lack."""
    if not log.roles.logger_propensities:
        return "logger propensities"
    return "all rows" if log.roles.sample_rate is not None else "segments" if by else None


def _inputs(given: Mapping[str, Any], told: Explain | None, reward: str) -> ModelInputs:
    """The models of one reward."""
    crossfit = given["crossfit"]
    cluster = None if crossfit is None or is_forward(crossfit) else given["cluster"]  # else it is for intervals alone
    second = None if told is None else _model_for(told.second_model, reward)
    model = _model_for(given["model"], reward)
    return ModelInputs(model, given["propensity"], crossfit, cluster, given["fold_seed"], given["clamp"], second)


def _model_for(model: Any, reward: str) -> Any:
    """Return the model of one reward. A log with several rewards may have a mapping of models."""
    if not isinstance(model, Mapping):
        return model
    if reward not in model:
        raise DrstreamError(f"{parameter('model')} has no model of the reward {reward!r}: {suggest(reward, model)}")
    return model[reward]


def _limits(given: Mapping[str, Any]) -> tuple[str | None, Limits]:
    """Return the limit that is to be chosen from a grid, and the others."""
    auto = _auto({name: given[name] for name in ("lambda_", "cap", "floor", "inflation")})
    most = {"floor": 1.0}
    found: Limits = {}
    for name in ("cap", "floor", "lambda_"):
        value = None if auto == name else given[name]
        high = most.get(name, math.inf)
        found[name] = None if value is None else number(name, value, 0, high, above=True, error=DrstreamError)
    value = given["inflation"]
    found["inflation"] = None if value is None else number("inflation", value, 1, error=DrstreamError)
    return auto, found


def _auto(limits: dict[str, Any]) -> str | None:
    """Return the limit that is to be chosen from a grid. It is the only one of its estimators."""
    chosen = next((name for name, value in limits.items() if isinstance(value, str) and value == registry.AUTO), None)
    if chosen is None:
        return None
    for name in limits:
        if name not in (chosen, "lambda_") and limits[name] is not None:
            raise DrstreamError(
                f"{parameter(chosen, registry.AUTO)} chooses the limits of weights: leave out {parameter(name)}"
            )
    return chosen


# Rankings


def _check_options(log: Log, given: Mapping[str, Any], told: Explain | None) -> None:
    """Refuse the parameters of `evaluate` that are about events with one action."""
    for name in ("propensity", "crossfit", "clamp", "propensity_error", "embedding"):
        if given[name] is not None:
            log.refuse_rankings(f"Leave out {parameter(name)}, which is about events with one action")
    if told is not None:
        log.refuse_rankings(f"Leave out {parameter('explain')}, which is about events with one action")


def _choose_for_lists(log: Log, names: Any, inputs_given: tuple[Any, ...]) -> list[Estimator]:
    """The estimators of rankings that were named; by default, those whose inputs the log has.

    inputs_given  The fields of `Available`.
    """
    roles = log.roles
    by_position = set(roles.rewards) <= set(roles.lists)
    listed = roles.propensity in roles.lists
    available = AvailableLists(  # type: ignore[misc]
        *inputs_given, by_position=by_position, listed=listed, positions=roles.positions
    )
    return registry.choose(names, available, NO_PROPENSITIES, KNOWN)


def _for_lists(chosen: Sequence[Estimator], log: Log, workers: Workers) -> list[Estimator]:
    """Return the estimators with terms for each position, where they need such. This may read the log."""
    return at_positions(chosen, _longest(log, workers)) if has_position_terms(chosen) else list(chosen)


def _longest(log: Log, workers: Workers) -> int:
    """Return the length of the longest list. Unless it is fixed, this is a pass over a column of lists."""
    roles = log.roles
    name = roles.propensity if roles.propensity in roles.lists else roles.lists[0]
    kind = log.source.schema.field(name).type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    reader = log.reader()
    columns = tuple(dict.fromkeys([*reader.choosing, name]))
    held = log.copy(source=log.source.peek())  # keeps a stream that can be read only once for later
    return max(execution.run(partial(_longest_of, reader, name), held, columns, workers, "finding lengths"), default=0)


def _longest_of(reader: Reader, name: str, part: Part) -> int:
    return max((int(lengths(batch.column(name)).max()) for batch in reader.rows(part)), default=0)
