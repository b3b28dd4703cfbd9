"""The terms of a block of events: policies and model fill buffers, and kernels compute the terms from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from drstream.buffers import invalid_prediction, invalid_probabilities
from drstream.evaluation.adaptive import Overlaps
from drstream.evaluation.estimators import EXTRA, PREDICTED, WITH_WEIGHT, Estimator, Weight
from drstream.evaluation.totals import Events, Segments, Totals
from drstream.kernels import terms as kernels
from drstream.log import Block
from drstream.models.base import RewardModel
from drstream.models.binding import BoundModels
from drstream.models.calibration import Calibration
from drstream.policies.base import FixedPolicy
from drstream.types import Floats, Ints


@dataclass(frozen=True)
class WeightTerms:
    """The terms that share one weight. The weight itself is the first of them."""

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
        return np.array([(WITH_WEIGHT + EXTRA).index(term) for term in self.terms])

    @cached_property
    def with_extra(self) -> bool:
        """Whether some terms explain an estimate."""
        return not set(EXTRA).isdisjoint(self.terms)

    @cached_property
    def kernel(self) -> Callable[..., None]:
        kernel = self.weight.kernel
        return getattr(kernels, kernel) if isinstance(kernel, str) else kernel

    def __reduce__(self) -> tuple[type[WeightTerms], tuple[Weight, tuple[str, ...], tuple[float, ...]]]:
        return WeightTerms, (self.weight, self.terms, self.parameters)  # compiled kernels are not pickled


@dataclass(frozen=True)
class Terms:
    """The terms that the chosen estimators need for each policy, in the order of their rows."""

    predicted: bool  # r̂(x, ν) is the first term
    weighted: tuple[WeightTerms, ...]

    @classmethod
    def of(
        cls, chosen: Sequence[Estimator], parameters: dict[str, float | None], extra: frozenset[str] = frozenset()
    ) -> Terms:
        wanted: dict[Weight, dict[str, None]] = {}
        for estimator in chosen:
            if estimator.weight is not None:  # always a term: it gives the effective sample size
                terms = wanted.setdefault(estimator.weight, {"weight": None})
                if not estimator.weight.reduced:
                    terms["centred"] = None  # intervals are made from it, whatever the estimator
                terms |= dict.fromkeys(term for term in estimator.terms if term != PREDICTED)
                terms |= dict.fromkeys(estimator.explained_by(extra))
        weighted = []
        for weight, terms in wanted.items():
            given = [(parameters.get(name), neutral) for name, neutral in weight.parameters]
            values = weight.fixed or tuple(neutral if value is None else value for value, neutral in given)
            weighted.append(WeightTerms(weight, tuple(terms), values))
        return cls(any(PREDICTED in e.terms for e in chosen), tuple(weighted))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*([PREDICTED] if self.predicted else []), *(name for group in self.weighted for name in group.columns))

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class Bounds:
    """What the caller said about rewards and weights. Events outside of it are counted; None: nothing was said."""

    reward_range: tuple[float, float] | None = None
    max_weight: float | None = None
    predictions: bool = False  # whether predictions must lie in the range, too


@dataclass
class Outside:
    """How many numbers are outside of a bound, and the first of them."""

    count: int
    first: float
    where: str

    def merge(self, later: Outside) -> None:
        self.count += later.count


@dataclass
class Tally:
    """The state of a pass over some events."""

    totals: Totals
    reduced: Ints  # number of weights smaller than ν / p, by policy and kind of weight
    mass: Floats  # sum of ν(a|x) over events, by policy and action; empty if no policy tells it
    logged: Ints  # number of events, by logged action
    calibration: Calibration  # of r̂
    other_than_clicks: int = 0  # number of rewards that are neither 0 nor 1
    outside: dict[tuple[str, str | None], Outside] = field(default_factory=dict)  # by what, and policy
    skipped: Counter[str] = field(default_factory=Counter)  # bad rows by reason
    segments: Segments | None = None

    def note_outside(
        self, what: str, policy: str | None, values: Floats, low: float, high: float, block: Block
    ) -> None:
        """Count the values outside of [low, high]. They are by event, or by action and event."""
        first = np.zeros(1, np.int64)
        count = int(kernels.count_outside(values.reshape(-1), low, high, first))
        if count:
            where = block.where(int(first[0]) % len(block))
            found = Outside(count, float(values.reshape(-1)[first[0]]), where)
            if (what, policy) in self.outside:
                self.outside[what, policy].merge(found)
            else:
                self.outside[what, policy] = found

    def merge(self, later: Tally) -> None:
        self.totals.merge(later.totals)
        self.reduced += later.reduced
        self.mass += later.mass
        self.logged += later.logged
        self.calibration.merge(later.calibration)
        self.other_than_clicks += later.other_than_clicks
        self.skipped.update(later.skipped)
        for key, found in later.outside.items():
            if key in self.outside:
                self.outside[key].merge(found)
            else:
                self.outside[key] = Outside(found.count, found.first, found.where)
        if self.segments is not None and later.segments is not None:
            self.segments.merge(later.segments)


class PolicyRows(NamedTuple):
    """Where a policy's terms go: views of the matrix of all terms."""

    predicted: Floats
    weighted: list[Floats]  # a matrix for each weight


@dataclass(frozen=True)
class Job:
    """What to compute for each block. It can be pickled if policies and models can."""

    policies: list[FixedPolicy]
    models: BoundModels
    terms: Terms
    n_actions: int
    pivot: float
    bounds: Bounds = field(default_factory=Bounds)
    down_sampled: bool = False  # a row counts as 1 / sample rate rows
    overlaps: Overlaps | None = None  # for estimators that weigh stretches of time

    @property
    def first(self) -> int:
        """Where the terms of policies begin: after the reward and, in a down-sampled log, 1 / sample rate."""
        return 1 + self.down_sampled

    @property
    def variables(self) -> int:
        """Number of variables: the reward, perhaps 1 / sample rate, and the terms of each policy."""
        return self.first + len(self.policies) * len(self.terms)

    def weights(self, policy: int) -> tuple[int, ...]:
        """The variables that are the weights of a policy."""
        place = self.first + policy * len(self.terms) + self.terms.predicted
        found = []
        for group in self.terms.weighted:
            found.append(place)
            place += len(group.terms)
        return tuple(found)


class Workspace:
    """Buffers that a worker reuses for each block, and views of them for blocks of n events."""

    def __init__(self, job: Job, rows: int) -> None:
        self.job = job
        self._terms = np.empty(job.variables * rows)
        self._pi, self._rhat = np.empty((2, job.n_actions * rows))
        self._second = np.empty(job.n_actions * rows if job.models.second else 0)
        self._vectors = np.empty((7, rows))
        self.n = -1

    def fit(self, n: int) -> Workspace:
        """Make views for n events. Their size changes with the last block of a batch only."""
        if n != self.n:
            self.n = n
            self.terms = self._terms[: self.job.variables * n].reshape(-1, n)
            self.pi = self._pi[: self.job.n_actions * n].reshape(-1, n)
            self.rhat = self._rhat[: self.job.n_actions * n].reshape(-1, n)
            if self.job.models.second:
                self.second = self._second[: self.job.n_actions * n].reshape(-1, n)
            self.logged_pi, self.logged_rhat, self.sums, self.predicted, *rest = self._vectors[:, :n]
            self.ones, self.p, self.logged_second = rest
            self.logged_rhat[:] = self.logged_second[:] = self.predicted[:] = 0  # stays 0 without a model
            self.ones[:] = 1
            self.policies = [self._rows(j) for j in range(len(self.job.policies))]
        return self

    def _rows(self, policy: int) -> PolicyRows:
        terms = self.job.terms
        first = self.job.first + policy * len(terms)
        predicted = self.terms[first] if terms.predicted else self.predicted
        first += terms.predicted
        weighted = []
        for group in terms.weighted:
            weighted.append(self.terms[first : first + len(group.terms)])
            first += len(group.terms)
        return PolicyRows(predicted, weighted)


def block_terms(job: Job, block: Block, space: Workspace, tally: Tally) -> Events:
    """The terms (variables, n) of a block's events: the reward, then those of each policy."""
    space.fit(len(block))
    models, r = job.models, block.reward
    p = models.propensities(block, space.pi, space.p) if job.terms.weighted else space.ones
    if models.logger is not None:
        tally.calibration.least_propensity = min(tally.calibration.least_propensity, float(p.min()))
    space.terms[0] = r
    tally.other_than_clicks += int(kernels.count_other_than_clicks(r))
    if job.bounds.reward_range is not None:
        tally.note_outside("reward", None, r, *job.bounds.reward_range, block)
    if len(tally.logged):
        kernels.count_actions(block.action, tally.logged)
    if models.model is not None:
        _predict(job, block, space, tally)
    if models.second is not None:
        _predict_again(models.second, job, block, space)
    for j, policy in enumerate(job.policies):
        rows = space.policies[j]
        logged_pi = _logged_probabilities(policy, block, space, tally.mass[j])
        if models.model is not None:
            kernels.expected_reward(space.pi, space.rhat, rows.predicted)
        for k, (group, out) in enumerate(zip(job.terms.weighted, rows.weighted, strict=True)):
            group.kernel(logged_pi, p, *group.parameters, out[0])
            if group.reduced:
                tally.reduced[j, k] += kernels.count_reduced(out[0], logged_pi, p)
            elif job.bounds.max_weight is not None:
                tally.note_outside("weight", policy.name, out[0], 0.0, job.bounds.max_weight, block)
            kernels.fill_terms(group.codes, rows.predicted, r, space.logged_rhat, job.pivot, out)
            if group.with_extra:
                models_of = space.logged_rhat, space.logged_second
                kernels.fill_extra_terms(group.codes, logged_pi, p, r, *models_of, out)
            if group.weight.power:
                assert job.overlaps is not None
                out *= job.overlaps.shares(j, block.rows, group.weight.power)
    if job.down_sampled:
        weight = block.row_weight
        space.terms *= weight
        space.terms[1] = weight
    return Events(space.terms, p)


def _predict(job: Job, block: Block, space: Workspace, tally: Tally) -> None:
    """Fill in r̂(x, a), and r̂ of the logged actions."""
    models = job.models
    assert models.model is not None
    models.model.fill(block, space.rhat)
    models.clamp_predictions(space.rhat, tally.calibration)
    first_bad = kernels.logged_prediction(space.rhat, block.action, space.logged_rhat)
    if first_bad >= 0:
        raise invalid_prediction(first_bad, space.rhat, block)
    tally.calibration.add(space.logged_rhat, block.reward, models.unpredicted(block))
    if job.bounds.predictions and job.bounds.reward_range is not None:
        tally.note_outside("prediction", None, space.rhat, *job.bounds.reward_range, block)


def _predict_again(second: RewardModel, job: Job, block: Block, space: Workspace) -> None:
    """Fill in r̃ of the logged actions, by the second model."""
    second.fill(block, space.second)
    if job.models.clamp is not None:
        kernels.clamp(space.second.reshape(-1), *job.models.clamp)
    first_bad = kernels.logged_prediction(space.second, block.action, space.logged_second)
    if first_bad >= 0:
        raise invalid_prediction(first_bad, space.second, block)


def _logged_probabilities(policy: FixedPolicy, block: Block, space: Workspace, mass: Floats) -> Floats:
    """ν(a_k|x_k). If the policy knows the probabilities of all actions, they are left in `space.pi`."""
    if policy.only_logged:
        mass[:] = np.nan
        return policy.logged(block)
    policy.fill(block, space.pi)
    first_bad = kernels.first_improper(space.pi, space.sums, mass)
    if first_bad >= 0:
        raise invalid_probabilities(f"policy {policy.name!r}", space.pi[:, first_bad], block.where(first_bad))
    kernels.logged_probability(space.pi, block.action, space.logged_pi)
    return space.logged_pi
