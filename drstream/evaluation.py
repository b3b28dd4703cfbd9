"""The one pass for fixed policies: log -> blocks -> probabilities and predicted rewards -> terms -> state -> result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np

from drstream import estimators as estimator_list
from drstream import execution
from drstream.calibration import Calibration
from drstream.errors import DrstreamError, LogError, PolicyError
from drstream.estimators import Estimator
from drstream.intervals import z_score
from drstream.log import Log, Reader, as_log
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.log.source import Part
from drstream.models.base import RewardModel
from drstream.models.binding import Given, Used, most_actions, prepare
from drstream.moments import Layout
from drstream.policies.base import FixedPolicy, as_policies, warn_if_learned_here
from drstream.results import Evaluation
from drstream.terms import Room, Tally, block_terms, term_names

CACHE = 1 << 19  # bytes of a (K, n) buffer: small enough for cache, long enough that Python costs little


def evaluate(
    log: Any,
    policies: Any,
    model: Any = None,
    estimators: Sequence[str] | str | None = None,
    *,
    propensity: Any = None,
    crossfit: int | None = None,
    cluster: str | None = None,
    fold_seed: int = 0,
    clamp: Any = None,
    cap: float | None = None,
    floor: float | None = None,
    confidence: float = 0.95,
    on_bad_row: str | None = None,
    threads: int | None = None,
    executor: Any = None,
    progress: Any = False,
) -> Evaluation:
    """How good would these policies have been? One pass over the log for all policies and estimators.

    policies    a mapping of names to policies, or one policy: objects of `drs.policies`, objects with
                probabilities(X) -> (n, K), or functions of that shape.
    model       a reward model, fitted on other events, or not yet fitted, with crossfit; DM, DR and SNDR need one.
    estimators  of "dm", "ips", "snips", "dr", "sndr", "ips-capped", "dr-capped".
    propensity  a model of the propensities, or the logging policy itself, instead of what the log says.
    crossfit    so many folds of the log: for the events of each, models are fitted on the others.
    cluster     a column, e.g. the user: all rows of one of its values are in one fold. Intervals take events as
                independent nevertheless.
    fold_seed   of the folds.
    clamp       hold predictions within (low, high), or, if True, within the rewards that the model was fitted on.
    cap, floor  of the capped estimators: w = min(cap, ν / max(floor, p)).
    confidence  of the intervals.
    on_bad_row  "error" or "skip", instead of what the log says.
    threads     how many; all usable cores by default. The result does not depend on it.
    executor    a concurrent.futures.Executor to work on instead of threads.
    progress    True for a bar on a terminal, or a function of (rows done, rows in all).

    >>> import drstream as drs, pyarrow as pa
    >>> table = pa.table({"action": [0, 1, 1, 0], "reward": [1.0, 0.0, 1.0, 0.0], "propensity": [0.5] * 4})
    >>> result = drs.evaluate(drs.Log(table), {"always 1": drs.policies.Constant(1)}, estimators=["ips", "snips"])
    >>> result["always 1", "ips"].value
    0.5
    """
    log = as_log(log, propensities=propensity is None)
    log = log if on_bad_row is None else log.with_bad_rows(on_bad_row)
    z_score(confidence)
    cap, floor = _limit("cap", cap, np.inf), _limit("floor", floor, 1)
    chosen = estimator_list.choose(
        estimators,
        with_model=model is not None,
        with_cap=cap is not None or floor is not None,
        with_propensity=propensity is not None or log.roles.propensity is not None,
    )
    given = Given(model, propensity, crossfit, cluster, fold_seed, clamp)
    how = {"threads": threads, "executor": executor, "progress": progress}
    plan = make_plan(log, as_policies(policies), given, chosen, cap, floor, how)
    total = plan.create()
    for tally in execution.run(partial(consume, plan), log, plan.reader.columns, threads, executor, progress):
        plan.merge(total, tally)
    if not plan.layout.count(total.moments):
        left = f", after {total.skipped.total()} bad rows were skipped" if total.skipped else ""
        raise LogError(f"the log is empty{left}: there is no event to evaluate on")
    return finish(plan, total, confidence)


@dataclass(frozen=True)
class Plan:
    """All that a pass needs to know, bound to the log. It can be pickled."""

    policies: list[FixedPolicy]
    used: Used
    estimators: list[Estimator]
    n_actions: int
    cap: float
    floor: float
    typical_reward: float
    reader: Reader
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are wanted
    terms: tuple[str, ...]  # of each policy

    @property
    def model(self) -> RewardModel | None:
        return self.used.model

    @cached_property
    def weighs(self) -> bool:
        """Whether any estimator needs propensities."""
        return any(estimator.weight for estimator in self.estimators)

    @cached_property
    def layout(self) -> Layout:
        """Variable 0 is the reward; then the terms of each policy."""
        return Layout(1 + len(self.policies) * len(self.terms), tuple(self.group(terms) for terms in self.groups))

    def group(self, terms: Sequence[str]) -> tuple[int, ...]:
        """The reward, and these terms of every policy."""
        places = [self.terms.index(t) for t in terms]
        return (0, *(1 + j * len(self.terms) + place for j in range(len(self.policies)) for place in places))

    @property
    def block_rows(self) -> int:
        """Few enough that buffers stay in cache; a function of what is asked for, so that every run blocks alike."""
        if all(policy.only_logged for policy in self.policies):
            rows = 4 * CACHE // (8 * self.layout.variables)
        else:
            rows = CACHE // (8 * max(self.n_actions, 8))
        return min(max(256, 1 << (rows.bit_length() - 1)), BATCH_ROWS)

    def create(self) -> Tally:
        policies = len(self.policies)
        moments, checks = self.layout.create(), Calibration(self.typical_reward)
        return Tally(moments, np.zeros((policies, 2)), np.zeros(policies, np.int64), checks)

    def merge(self, total: Tally, other: Tally) -> None:
        self.layout.merge(total.moments, other.moments)
        np.maximum(total.largest, other.largest, out=total.largest)
        total.capped += other.capped
        total.calibration.merge(other.calibration)
        total.skipped.update(other.skipped)


def make_plan(
    log: Log,
    policies: dict[str, FixedPolicy],
    given: Given,
    chosen: list[Estimator],
    cap: float | None,
    floor: float | None,
    how: dict[str, Any],
) -> Plan:
    """Bind policies and models to the log, and find out what must be read of it."""
    given = given.needed(model=any(e.needs_model for e in chosen), propensity=any(e.weight for e in chosen))
    with_models = given.model is not None or given.propensity is not None
    with_actions = with_models or any(policy.needs_actions(log) for policy in policies.values())
    if with_actions:
        log = log.with_actions_up_to(max(most_actions(given), *(p.n_actions or 0 for p in policies.values())))
    for name, policy in policies.items():
        warn_if_learned_here(policy, name, log, stacklevel=3)
    bound = [policy.bind(log, name) for name, policy in policies.items()]
    if given.model is not None:
        _require_all_probabilities(bound)
    used = prepare(log, given, how, stacklevel=3)
    users: list[Any] = [*bound, used]
    reader = log.reader(
        context=any(u.uses_context for u in users),
        action=with_actions,
        columns=tuple(dict.fromkeys(c for u in users for c in u.columns)),
        folds=used.folds,
    )
    groups = term_groups(chosen)
    terms = term_names(
        model=used.model is not None,
        sndr=any(e.name == "sndr" for e in chosen),
        capped=any(e.capped for e in chosen),
    )
    limits = (np.inf if cap is None else cap, 0.0 if floor is None else floor)
    return Plan(bound, used, chosen, len(reader.labels), *limits, log.typical_reward, reader, groups, terms)


def term_groups(chosen: Sequence[Estimator]) -> tuple[tuple[str, ...], ...]:
    """The sets of terms whose covariances are wanted: the estimators', and the weights' own for the sample size."""
    groups = list(dict.fromkeys(e.terms for e in chosen))
    for weight in dict.fromkeys(e.weight for e in chosen if e.weight):
        if not any(weight in group for group in groups):
            groups.append((weight,))
    return tuple(groups)


def _require_all_probabilities(policies: Sequence[FixedPolicy]) -> None:
    for policy in policies:
        if policy.only_logged:
            raise PolicyError(
                f"policy {policy.name!r} gives the probability of the logged action only, which is enough for IPS and "
                "SNIPS; DM and DR need those of all actions: give a column of lists"
            )


def _limit(name: str, value: Any, most: float) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real) or not 0 < float(value) <= most:
        raise DrstreamError(f"{name}={value!r}: it must be a positive number{' of at most 1' if most == 1 else ''}")
    return float(value)


def consume(plan: Plan, part: Part) -> Tally:
    """The state of one part."""
    tally = plan.create()
    room = Room(plan)
    for batch in plan.reader.batches(part, tally.skipped):
        for block in batch.blocks(plan.block_rows):
            execution.go_on()
            plan.layout.update(tally.moments, block_terms(plan, block, room, tally))
    return tally


def finish(plan: Plan, total: Tally, confidence: float) -> Evaluation:
    """Read the result off the state."""
    layout, state = plan.layout, total.moments
    means = layout.means(state)
    groups = {}
    for terms in plan.groups:
        members = plan.group(terms)
        groups[terms] = (means[list(members)], layout.comoment(state, members))
    return Evaluation(
        policies=[policy.name for policy in plan.policies],
        labels=list(plan.reader.labels),
        estimators=plan.estimators,
        groups=groups,
        typical_reward=plan.typical_reward,
        n=layout.count(state),
        largest=total.largest,
        capped=total.capped,
        used=plan.used,
        calibration=total.calibration,
        skipped=dict(total.skipped),
        confidence=confidence,
    )
