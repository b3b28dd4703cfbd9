"""What a pass for fixed policies needs to know: policies and models bound to the log, terms, and what to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from drstream.errors import PolicyError
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.terms import Tally, term_names
from drstream.log import Log, Reader
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.models.base import RewardModel
from drstream.models.binding import Given, Used, most_actions, prepare
from drstream.models.calibration import Calibration
from drstream.moments import Layout
from drstream.policies.base import FixedPolicy, warn_if_learned_here

CACHE = 1 << 19  # bytes of a (K, n) buffer: small enough for cache, long enough that Python costs little


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
