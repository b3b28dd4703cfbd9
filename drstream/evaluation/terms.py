"""The terms of a block of events: policies and model fill buffers, and kernels compute the terms from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from drstream.buffers import invalid_prediction, invalid_probabilities
from drstream.errors import PolicyError
from drstream.evaluation.adaptive import Overlaps
from drstream.evaluation.embedding import Categories, Embedding
from drstream.evaluation.estimators import EXTRA, IMPORTANCE, PREDICTED, WITH_WEIGHT, Estimator, Weight
from drstream.evaluation.marginals import Marginals, OfActions, OfCandidates
from drstream.evaluation.scoring import Group, Stack
from drstream.evaluation.tally import Tally
from drstream.evaluation.totals import Events
from drstream.kernels import policies as observing
from drstream.kernels import terms as kernels
from drstream.kernels.policies import ARGMAX, IDENTITY
from drstream.log import Batch, Block
from drstream.models.base import RewardModel
from drstream.models.binding import BoundModels
from drstream.models.calibration import Calibration
from drstream.policies.base import FixedPolicy
from drstream.types import Floats, Ints

NOT_CLIPPED = np.zeros(1, np.int64)  # stays 0
ROUNDING = 1e-5  # of a probability in float32
NONE = np.empty(0)  # intercepts of predictions that are complete
NO_ACTIONS = np.empty(0, np.int32)


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
    def code(self) -> int:
        """The code of the weight in `kernels.terms`; `GIVEN` for one of the user's own."""
        kernel = self.weight.kernel
        return kernels.WEIGHTS.index(kernel) if isinstance(kernel, str) else kernels.GIVEN

    @cached_property
    def values(self) -> Floats:
        return np.array(self.parameters, np.float64)

    def __reduce__(self) -> tuple[type[WeightTerms], tuple[Weight, tuple[str, ...], tuple[float, ...]]]:
        return WeightTerms, (self.weight, self.terms, self.parameters)  # compiled kernels are not pickled


@dataclass(frozen=True)
class Terms:
    """The terms that the chosen estimators need for each policy, in the order of their rows."""

    predicted: bool  # r̂(x, ν) is the first term
    weighted: tuple[WeightTerms, ...]

    @classmethod
    def of(
        cls,
        chosen: Sequence[Estimator],
        parameters: dict[str, float | None],
        extra: frozenset[str] = frozenset(),
        plain: bool = False,
    ) -> Terms:
        """The terms of estimators, perhaps with those that explain them, and with the `plain` weights ν / p."""
        wanted: dict[Weight, dict[str, None]] = {IMPORTANCE: {"weight": None, "centred": None}} if plain else {}
        for estimator in chosen:
            if estimator.weight is not None:  # always a term: it gives the effective sample size
                terms = wanted.setdefault(estimator.weight, {"weight": None})
                if not estimator.weight.reduced:
                    terms["centred"] = None  # intervals are made from it, whatever the estimator
                if estimator.weight.marginal:  # tells whether actions matter beside their category
                    terms["direct_residual" if estimator.needs_model else "direct"] = None
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
    stack: Stack | None = None  # what is linear in the contexts
    candidates: bool = False  # each event has candidates of its own, so there is no number of actions: n_actions is 0
    with_sets: bool = False  # whether events have eligible sets
    embedding: Embedding | Categories | None = (
        None  # for weights of categories, which need the probabilities of all actions
    )
    typical_reward: float = 0.0

    @property
    def first(self) -> int:
        """Where the terms of policies begin: after the reward and, in a down-sampled log, 1 / sample rate."""
        return 1 + self.down_sampled

    @property
    def variables(self) -> int:
        """Number of variables: the reward, perhaps 1 / sample rate, and the terms of each policy."""
        return self.first + len(self.policies) * len(self.terms)

    @cached_property
    def weights(self) -> list[Ints]:
        """The variables that are weights: for each kind of weight, those of all policies."""
        firsts = self.first + np.arange(len(self.policies)) * len(self.terms) + self.terms.predicted
        before = np.cumsum([0, *(len(group.terms) for group in self.terms.weighted)])
        return [firsts + start for start in before[:-1]]

    @cached_property
    def predicted(self) -> Ints:
        """The rows of r̂(x, ν), by policy. They follow the variables if r̂(x, ν) is none of them."""
        j = np.arange(len(self.policies))
        return self.first + j * len(self.terms) if self.terms.predicted else self.variables + j

    @cached_property
    def direct(self) -> list[bool]:
        """For each policy, whether it gives ν of the logged actions alone: it knows no other, or none is needed."""
        enough = self.models.model is None and self.embedding is None
        return [
            j not in self.stacked and (policy.only_logged or (policy.direct and enough))
            for j, policy in enumerate(self.policies)
        ]

    @cached_property
    def stacked(self) -> frozenset[int]:
        """The policies that are in the stack."""
        return frozenset() if self.stack is None else frozenset(self.stack.policies.slots.tolist())

    @cached_property
    def others(self) -> list[Group | None]:
        """For each policy, how its probabilities are taken if it fills them in itself; None if it is in the stack."""
        return [
            None if j in self.stacked or self.direct[j] else Group.ready(j, int(self.predicted[j]), self.n_actions)
            for j in range(len(self.policies))
        ]

    @property
    def random(self) -> tuple[tuple[int, float], ...]:
        """The linear policies whose actions are at random now and then, and how often."""
        group = None if self.stack is None else self.stack.policies
        return () if group is None else tuple(zip(group.slots.tolist(), group.epsilons.tolist(), strict=True))

    @property
    def words(self) -> int:
        """Words of an eligible set, as bits; 0 if events have none."""
        return -(-self.n_actions // 32) if self.with_sets else 0

    def spread(self, batch: Batch, tally: Tally) -> None:
        """Take down what random actions of linear policies are, if these act on eligible sets."""
        if batch.eligible is not None and self.stack is not None and self.stack.policies.epsilons.any():
            batch.eligible.add_even(tally.even)

    def n_predictions(self, events: Batch | Block) -> int:
        """How many predictions there are for some events: those for eligible actions."""
        sets = events.eligible
        return len(events) * self.n_actions if sets is None else int(sets.lists.starts[-1] - sets.lists.starts[0])

    @property
    def own_buffers(self) -> tuple[bool, bool, bool]:
        """Whether a policy, the model and the second model fill in (K, n) of their own."""
        stack, models = self.stack, self.models
        own = models.logger is not None and not models.logger.policy.direct
        own = own or any(group is not None for group in self.others)
        return own, models.model is not None and not (stack and stack.has_model), models.second is not None

    @property
    def bytes_an_event(self) -> int:
        """Bytes that the (K, n) buffers have for each event; of the terms, if there are no such buffers."""
        scores = 0 if self.stack is None else self.stack.rows * self.stack.kind.itemsize
        own = 8 * self.n_actions * (sum(self.own_buffers) + 2 * (self.embedding is not None))
        return scores + own or 8 * self.variables

    @property
    def precision(self) -> str:
        """The type of scores, probabilities and predictions."""
        return "float64" if self.stack is None else self.stack.kind.name


class Workspace:
    """Buffers that a worker reuses for each block, and views of them for blocks of n events."""

    def __init__(self, job: Job, rows: int) -> None:
        self.job = job
        stack, policies = job.stack, len(job.policies)
        self._terms = np.empty((job.variables + policies) * rows)
        self._scores = np.empty(0 if stack is None else stack.rows * rows, None if stack is None else stack.kind)
        self._own = [np.empty(job.n_actions * rows if needed else 0) for needed in job.own_buffers]
        self._logged = np.empty(policies * rows)
        self._vectors = np.empty((4, rows))
        self.marginals: Marginals | None = None
        if isinstance(job.embedding, Embedding):
            self.marginals = OfActions(job.embedding, job.n_actions, policies, rows)
        elif job.embedding is not None:
            self.marginals = OfCandidates(job.embedding, policies, rows)
        self.n = -1

    def fit(self, n: int) -> Workspace:
        """Make views for n events. Their size changes with the last block of a batch only."""
        if n != self.n:
            self.n = n
            job = self.job
            self.all_terms = self._terms[: (job.variables + len(job.policies)) * n].reshape(-1, n)
            self.terms = self.all_terms[: job.variables]
            self.scores = None if job.stack is None else self._scores[: job.stack.rows * n].reshape(-1, n)
            self.pi, self.rhat, self.second = (
                own[: len(own) // len(self._vectors[0]) * n].reshape(-1, n) for own in self._own
            )
            self.logged = self._logged[: len(job.policies) * n].reshape(-1, n)
            self.logged_rhat, self.logged_second, self.ones, self.p = self._vectors[:, :n]
            self.logged_rhat[:] = self.logged_second[:] = 0  # stays 0 without a model
            self.all_terms[job.predicted] = 0  # so does this
            self.ones[:] = 1
        return self

    def see(self, block: Block, tally: Tally) -> None:
        """Fill in ν(a_k|x_k), r̂(x_k, a_k) and r̂(x_k, ν) of a block's events. It has been fitted to them."""
        job = self.job
        if job.stack is not None:
            assert self.scores is not None
            job.stack.fill(block, self.scores)
        rhat = self.rhat[:0]
        if job.models.model is not None:
            rhat = _predict(job, block, self, tally)
        if job.models.second is not None:
            _predict_again(job.models.second, job, block, self)
        _observe(job, block, self, tally, rhat)


def note_batch(job: Job, batch: Batch, tally: Tally) -> None:
    """Take down what is known of a batch without any policy: logged actions, and rewards outside of their range."""
    whole = Block(batch, 0, len(batch))
    others = np.zeros(1, np.int64)
    kernels.note_events(batch.reward, NO_ACTIONS if job.candidates else batch.action, others, tally.logged)
    tally.other_than_clicks += int(others[0])
    job.spread(batch, tally)
    if job.bounds.reward_range is not None:
        tally.note_outside("reward", None, batch.reward, *job.bounds.reward_range, whole)


def block_terms(job: Job, block: Block, space: Workspace, tally: Tally) -> Events:
    """The terms (variables, n) of a block's events: the reward, then those of each policy."""
    space.fit(len(block))
    models, r = job.models, block.reward
    p = models.propensities(block, space.pi, space.p) if job.terms.weighted else space.ones
    if models.logger is not None:
        tally.calibration.least_propensity = min(tally.calibration.least_propensity, float(p.min()))
    if space.marginals is not None:
        space.marginals.begin(block, models.logger, space.pi, p)
    space.terms[0] = r
    space.see(block, tally)
    for k, group in enumerate(job.terms.weighted):
        weigh_group(job, k, block, space, block.mixture if group.weight.balanced else p, tally)
    return events_of(job, block, space, p)


def weigh_group(job: Job, k: int, block: Block, space: Workspace, p: Floats, tally: Tally) -> None:
    """Fill in the terms of the weights of kind k, for all policies, from ν of the logged actions."""
    group, places = job.terms.weighted[k], job.weights[k]
    _weigh(job, group, places, block, space, p)
    if group.reduced or (job.bounds.max_weight is not None and not group.weight.balanced):
        _note_weights(job, group, k, block, space, p, tally)
    if group.with_extra or group.weight.power:
        _finish_terms(job, group, places, block, space, p)


def events_of(job: Job, block: Block, space: Workspace, p: Floats) -> Events:
    """The terms of a block's events, for the sums. In a down-sampled log, a row counts as several."""
    if job.down_sampled:
        space.terms[1] = 1.0
        space.terms *= block.row_weight
    return Events(space.terms, p)


def _predict(job: Job, block: Block, space: Workspace, tally: Tally) -> Any:
    """Return r̂(x, a) (K, n), and fill in r̂ of the logged actions."""
    models, stack, calibration = job.models, job.stack, tally.calibration
    assert models.model is not None
    if stack is not None and stack.has_model:
        assert space.scores is not None
        rhat, intercept, link = space.scores[stack.split :], stack.intercepts[stack.fold(block)], stack.link
    else:
        rhat, intercept, link = space.rhat, NONE, IDENTITY
        models.model.fill(block, rhat)
    _finish_predictions(job, rhat, intercept, link, block, space.logged_rhat, calibration)
    calibration.add(space.logged_rhat, block.reward, models.unpredicted(block))
    if job.bounds.predictions and job.bounds.reward_range is not None:
        low, high = job.bounds.reward_range
        seen = rhat if block.eligible_mask is None else np.where(block.eligible_mask.T, rhat, low)
        tally.note_outside("prediction", None, seen, low, high, block)
    return rhat


def _predict_again(second: RewardModel, job: Job, block: Block, space: Workspace) -> None:
    """Fill in r̃ of the logged actions, by the second model."""
    second.fill(block, space.second)
    _finish_predictions(job, space.second, NONE, IDENTITY, block, space.logged_second)


def _finish_predictions(
    job: Job,
    rhat: Any,
    intercept: Any,
    link: int,
    block: Block,
    logged: Floats,
    calibration: Calibration | None = None,
) -> None:
    models = job.models
    low, high = prediction_limits(models, rhat.dtype)
    clipped = np.zeros(1, np.int64) if models.clamp else NOT_CLIPPED
    first_bad = observing.predict(rhat, intercept, link, low, high, block.eligible_bits, block.action, logged, clipped)
    if first_bad >= 0:
        raise invalid_prediction(first_bad, rhat, block)
    if models.clamp is not None and calibration is not None:
        calibration.predictions += job.n_predictions(block)
        calibration.clamped += int(clipped[0])


def prediction_limits(models: BoundModels, kind: Any) -> tuple[float, float]:
    """The range that predictions of this type are held within."""
    return (-np.inf, np.inf) if models.clamp is None else _within(models.clamp, kind)


def _within(limits: tuple[float, float], kind: Any) -> tuple[float, float]:
    """The limits in another type, rounded inwards: float32(0.1) is above 0.1."""
    low, high = kind.type(limits[0]), kind.type(limits[1])
    return (
        float(low if float(low) >= limits[0] else np.nextafter(low, kind.type(np.inf))),
        float(high if float(high) <= limits[1] else np.nextafter(high, kind.type(-np.inf))),
    )


def _observe(job: Job, block: Block, space: Workspace, tally: Tally, rhat: Any) -> None:
    """Fill in ν(a_k|x_k) and r̂(x_k, ν) of all policies."""
    if job.stack is not None and job.stack.split:
        assert space.scores is not None
        scores = space.scores[: job.stack.split]
        _observe_group(job, job.stack.policies, scores, block, space, tally, rhat)
        if isinstance(space.marginals, OfActions):
            space.marginals.add_stacked(job.stack.policies, scores, block, space.logged)
    for j, (policy, group) in enumerate(zip(job.policies, job.others, strict=True)):
        if job.direct[j]:
            space.logged[j] = policy.logged(block, tally.mass[j])
        elif group is not None:
            policy.fill(block, space.pi)
            _observe_group(job, group, space.pi, block, space, tally, rhat)
            if space.marginals is not None:
                space.marginals.add(j, space.pi, block, space.logged[j])


def _observe_group(
    job: Job, group: Group, scores: Any, block: Block, space: Workspace, tally: Tally, rhat: Any
) -> None:
    first_bad = observing.observe(
        scores,
        group.intercept,
        group.kinds,
        group.epsilons,
        group.slots,
        group.places,
        rhat,
        block.eligible_bits,
        block.action,
        tally.mass,
        space.logged,
        space.all_terms,
    )
    if first_bad >= 0:
        j, event = divmod(first_bad, len(block))
        pi = scores[j * job.n_actions : (j + 1) * job.n_actions, event].astype(np.float64)
        name = job.policies[int(group.slots[j])].name
        if group.kinds[j] == ARGMAX:
            raise PolicyError(
                f"policy {name!r} has a score that is not finite at {block.where(event)}: "
                f"[{', '.join(f'{score:.6g}' for score in pi[:6])}{', ...' if len(pi) > 6 else ''}]"
            )
        raise invalid_probabilities(f"policy {name!r}", pi, block.where(event), block.eligible, event)


def _weigh(job: Job, group: WeightTerms, places: Ints, block: Block, space: Workspace, p: Floats) -> None:
    """Fill in the terms of one kind of weight, for all policies."""
    terms, r, logged = space.all_terms, block.reward, space.logged
    if group.weight.marginal:
        assert space.marginals is not None
        logged, p = space.marginals.whole, space.marginals.propensity
    if group.code == kernels.GIVEN:
        assert callable(group.weight.kernel)
        for j, place in enumerate(places):
            group.weight.kernel(logged[j], p, *group.parameters, terms[place])
    kernels.weigh(
        group.code,
        group.values,
        group.codes,
        places,
        job.predicted,
        logged,
        p,
        r,
        space.logged_rhat,
        job.pivot,
        terms,
    )


def _note_weights(
    job: Job, group: WeightTerms, k: int, block: Block, space: Workspace, p: Floats, tally: Tally
) -> None:
    """Count the weights of kind k that are smaller than ν / p, or larger than they can be."""
    for j, policy in enumerate(job.policies):
        w = space.terms[job.weights[k][j]]
        if group.reduced:
            tally.reduced[j, k] += kernels.count_reduced(w, space.logged[j], p)
        elif job.bounds.max_weight is not None:
            most = job.bounds.max_weight * (1 + (ROUNDING if job.precision == "float32" else 0.0))
            tally.note_outside("weight", policy.name, w, 0.0, most, block)


def _finish_terms(job: Job, group: WeightTerms, places: Ints, block: Block, space: Workspace, p: Floats) -> None:
    """Fill in the terms that explain an estimate, and weigh stretches of time."""
    terms, r = space.all_terms, block.reward
    for j, place in enumerate(places):
        out = terms[place : place + len(group.terms)]
        if group.with_extra:
            models_of = space.logged_rhat, space.logged_second
            kernels.fill_extra_terms(group.codes, space.logged[j], p, r, *models_of, out)
        if group.weight.marginal:
            assert space.marginals is not None
            of_event = space.logged[j], p, r, space.logged_rhat
            space.marginals.fill_direct(j, group.terms, *of_event, job.typical_reward, out)
        if group.weight.power:
            assert job.overlaps is not None
            out *= job.overlaps.shares(j, block.rows, group.weight.power)
