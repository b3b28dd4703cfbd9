"""The terms of a block of events: policies and model fill their buffers, kernels make the terms of every policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from drstream.buffers import invalid_prediction, invalid_probabilities
from drstream.evaluation.estimators import PREDICTED, WITH_WEIGHT, Estimator, Weight
from drstream.kernels import terms as kernels
from drstream.log import Block
from drstream.models.binding import BoundModels
from drstream.models.calibration import Calibration
from drstream.moments import State
from drstream.policies.base import FixedPolicy
from drstream.types import Floats, Ints


@dataclass(frozen=True)
class WeightTerms:
    """The terms with one weight, which is the first of them."""

    weight: Weight
    terms: tuple[str, ...]
    parameters: tuple[float, ...]  # of the weight's kernel

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.weight.name}.{term}" for term in self.terms)

    @cached_property
    def reduced(self) -> bool:
        return self.weight.reduced

    @cached_property
    def codes(self) -> Ints:
        return np.array([WITH_WEIGHT.index(term) for term in self.terms])

    @cached_property
    def kernel(self) -> Callable[..., None]:
        kernel = self.weight.kernel
        return getattr(kernels, kernel) if isinstance(kernel, str) else kernel

    def __reduce__(self) -> tuple[type[WeightTerms], tuple[Weight, tuple[str, ...], tuple[float, ...]]]:
        return WeightTerms, (self.weight, self.terms, self.parameters)  # compiled kernels stay here


@dataclass(frozen=True)
class Terms:
    """The terms of a policy that the chosen estimators name, in the order of their rows."""

    predicted: bool  # r̂(x, ν) is one, the first
    weighted: tuple[WeightTerms, ...]

    @classmethod
    def of(cls, chosen: Sequence[Estimator], parameters: dict[str, float | None]) -> Terms:
        wanted: dict[Weight, dict[str, None]] = {}
        for estimator in chosen:
            if estimator.weight is not None:  # which tells the effective sample size, if nothing else
                terms = wanted.setdefault(estimator.weight, {"weight": None})
                terms |= dict.fromkeys(term for term in estimator.terms if term != PREDICTED)
        weighted = []
        for weight, terms in wanted.items():
            given = [(parameters.get(name), neutral) for name, neutral in weight.parameters]
            values = tuple(neutral if value is None else value for value, neutral in given)
            weighted.append(WeightTerms(weight, tuple(terms), values))
        return cls(any(PREDICTED in e.terms for e in chosen), tuple(weighted))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*([PREDICTED] if self.predicted else []), *(name for group in self.weighted for name in group.columns))

    def __len__(self) -> int:
        return len(self.columns)


@dataclass
class Tally:
    """The state of a pass over some events."""

    moments: State
    largest: Floats  # weight of each policy and kind
    reduced: Ints  # weights that are smaller than ν / p, of each policy and kind
    calibration: Calibration  # of r̂
    skipped: Counter[str] = field(default_factory=Counter)  # bad rows by reason


class PolicyRows(NamedTuple):
    """Where a policy's terms go: views of the matrix of all terms."""

    predicted: Floats
    weighted: list[Floats]  # a matrix for each weight


@dataclass(frozen=True)
class Job:
    """What is to be computed for each block. It can be pickled if policies and models can."""

    policies: list[FixedPolicy]
    models: BoundModels
    terms: Terms
    n_actions: int
    typical_reward: float

    @property
    def variables(self) -> int:
        """The reward, and the terms of each policy."""
        return 1 + len(self.policies) * len(self.terms)


class Workspace:
    """Buffers of one worker, used again for each block, and their views for blocks of n events."""

    def __init__(self, job: Job, rows: int) -> None:
        self.job = job
        self._terms = np.empty(job.variables * rows)
        self._pi, self._rhat = np.empty((2, job.n_actions * rows))
        self._vectors = np.empty((6, rows))
        self.n = -1

    def fit(self, n: int) -> Workspace:
        """Views for n events; they change with the last block of a batch only."""
        if n != self.n:
            self.n = n
            self.terms = self._terms[: self.job.variables * n].reshape(-1, n)
            self.pi = self._pi[: self.job.n_actions * n].reshape(-1, n)
            self.rhat = self._rhat[: self.job.n_actions * n].reshape(-1, n)
            self.logged_pi, self.logged_rhat, self.sums, self.predicted, self.ones, self.p = self._vectors[:, :n]
            self.logged_rhat[:] = self.predicted[:] = 0  # without a model
            self.ones[:] = 1
            self.policies = [self._rows(j) for j in range(len(self.job.policies))]
        return self

    def _rows(self, policy: int) -> PolicyRows:
        terms = self.job.terms
        first = 1 + policy * len(terms)
        predicted = self.terms[first] if terms.predicted else self.predicted
        first += terms.predicted
        weighted = []
        for group in terms.weighted:
            weighted.append(self.terms[first : first + len(group.terms)])
            first += len(group.terms)
        return PolicyRows(predicted, weighted)


def block_terms(job: Job, block: Block, space: Workspace, tally: Tally) -> Floats:
    """The terms (variables, n) of a block's events: the reward, then those of each policy."""
    space.fit(len(block))
    models, r = job.models, block.reward
    p = models.propensities(block, space.pi, space.p) if job.terms.weighted else space.ones
    if models.logger is not None:
        tally.calibration.least_propensity = min(tally.calibration.least_propensity, float(p.min()))
    space.terms[0] = r
    if models.model is not None:
        models.model.fill(block, space.rhat)
        models.clamp_predictions(space.rhat, tally.calibration)
        first_bad = kernels.logged_prediction(space.rhat, block.action, space.logged_rhat)
        if first_bad >= 0:
            raise invalid_prediction(first_bad, space.rhat, block)
        tally.calibration.add(space.logged_rhat, r)
    for j, policy in enumerate(job.policies):
        rows = space.policies[j]
        logged_pi = _logged_probabilities(policy, block, space)
        if models.model is not None:
            kernels.expected_reward(space.pi, space.rhat, rows.predicted)
        for k, (group, out) in enumerate(zip(job.terms.weighted, rows.weighted, strict=True)):
            group.kernel(logged_pi, p, *group.parameters, out[0])
            kernels.raise_to_largest(out[0], tally.largest[j, k:])
            if group.reduced:
                tally.reduced[j, k] += kernels.count_reduced(out[0], logged_pi, p)
            kernels.fill_terms(group.codes, rows.predicted, r, space.logged_rhat, job.typical_reward, out)
    return space.terms


def _logged_probabilities(policy: FixedPolicy, block: Block, space: Workspace) -> Floats:
    """ν(a_k|x_k); those of all actions are left in `space.pi`, where the policy knows them."""
    if policy.only_logged:
        return policy.logged(block)
    policy.fill(block, space.pi)
    first_bad = kernels.first_improper(space.pi, space.sums)
    if first_bad >= 0:
        raise invalid_probabilities(f"policy {policy.name!r}", space.pi[:, first_bad], block.where(first_bad))
    kernels.logged_probability(space.pi, block.action, space.logged_pi)
    return space.logged_pi
