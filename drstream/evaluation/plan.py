"""What a pass for fixed policies needs to know: policies and models bound to the log, terms, and what to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from drstream.errors import PolicyError
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.terms import Job, Tally, Terms
from drstream.execution import Workers
from drstream.log import Log, Reader
from drstream.log.batch import ROWS as BATCH_ROWS
from drstream.models.binding import BoundModels, ModelInputs, bind_models
from drstream.models.calibration import Calibration
from drstream.moments import Layout
from drstream.policies.base import FixedPolicy, warn_if_learned_here

CACHE = 1 << 19  # bytes of a (K, n) buffer: small enough for cache, long enough that Python costs little


@dataclass(frozen=True)
class Plan:
    """All that a pass needs to know, bound to the log. It can be pickled."""

    job: Job
    estimators: list[Estimator]
    reader: Reader
    groups: tuple[tuple[str, ...], ...]  # terms whose covariances are wanted

    @cached_property
    def layout(self) -> Layout:
        """Variable 0 is the reward; then the terms of each policy."""
        return Layout(self.job.variables, tuple(self.group(terms) for terms in self.groups))

    def group(self, terms: Sequence[str]) -> tuple[int, ...]:
        """The reward, and these terms of every policy."""
        columns, policies = self.job.terms.columns, len(self.job.policies)
        places = [columns.index(t) for t in terms]
        return (0, *(1 + j * len(columns) + place for j in range(policies) for place in places))

    @property
    def block_rows(self) -> int:
        """Few enough that buffers stay in cache; a function of what is asked for, so that every run blocks alike."""
        if all(policy.only_logged for policy in self.job.policies):
            rows = 4 * CACHE // (8 * self.job.variables)
        else:
            rows = CACHE // (8 * max(self.job.n_actions, 8))
        return min(max(256, 1 << (rows.bit_length() - 1)), BATCH_ROWS)

    def create(self) -> Tally:
        shape = len(self.job.policies), len(self.job.terms.weighted)
        calibration = Calibration(self.job.typical_reward)
        return Tally(self.layout.create(), np.zeros(shape), np.zeros(shape, np.int64), calibration)

    def merge(self, total: Tally, other: Tally) -> None:
        self.layout.merge(total.moments, other.moments)
        np.maximum(total.largest, other.largest, out=total.largest)
        total.reduced += other.reduced
        total.calibration.merge(other.calibration)
        total.skipped.update(other.skipped)


def make_plan(
    log: Log,
    policies: dict[str, FixedPolicy],
    inputs: ModelInputs,
    chosen: list[Estimator],
    parameters: dict[str, float | None],
    workers: Workers,
) -> Plan:
    """Bind policies and models to the log, and find out what must be read of it."""
    inputs = inputs.needed(model=any(e.needs_model for e in chosen), propensity=any(e.weight for e in chosen))
    with_actions = inputs.given or any(policy.needs_actions(log) for policy in policies.values())
    if with_actions:
        log = log.with_actions_up_to(max(inputs.n_actions, *(p.n_actions or 0 for p in policies.values())))
    for name, policy in policies.items():
        warn_if_learned_here(policy, name, log)
    bound = [policy.bind(log, name) for name, policy in policies.items()]
    if inputs.model is not None:
        _require_all_probabilities(bound)
    models = bind_models(log, inputs, workers)
    users: list[FixedPolicy | BoundModels] = [*bound, models]
    reader = log.reader(
        context=any(u.uses_context for u in users),
        action=with_actions,
        columns=tuple(dict.fromkeys(c for u in users for c in u.columns)),
        folds=models.folds,
    )
    job = Job(bound, models, Terms.of(chosen, parameters), len(reader.labels), log.typical_reward)
    return Plan(job, chosen, reader, _groups(chosen))


def _groups(chosen: Sequence[Estimator]) -> tuple[tuple[str, ...], ...]:
    """The sets of terms whose covariances are wanted: the estimators', and the weights' own for the sample size."""
    groups = list(dict.fromkeys(e.columns for e in chosen))
    for weight in dict.fromkeys(e.column("weight") for e in chosen if e.weight):
        if not any(weight in group for group in groups):
            groups.append((weight,))
    return tuple(groups)


def _require_all_probabilities(policies: Sequence[FixedPolicy]) -> None:
    for policy in policies:
        if policy.only_logged:
            raise PolicyError(
                f"policy {policy.name!r} gives the probability of the logged action only, which is enough for "
                "estimators without a reward model. Those with one need the probabilities of all actions: give a "
                "column of lists"
            )
