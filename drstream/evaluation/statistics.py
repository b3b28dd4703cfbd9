"""Means, co-moments and counts of a pass, and the statistics of which estimates and intervals are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError
from drstream.evaluation import derivatives
from drstream.evaluation.estimators import BALANCED, IMPORTANCE, Estimator, TermMeans
from drstream.evaluation.form import MOST_PAIRED
from drstream.intervals.statistic import Exploring, Groups, Side, Smooth, Spread, Statistic
from drstream.types import Floats, Ints

Place = list[int]  # of a policy's terms in a group


@dataclass(frozen=True)
class Moments:
    """Means and co-moments of a group of variables: the reward, perhaps 1 / sample rate, and the same terms of every
    policy. Also their sums by bucket and by stretch, if these were gathered.

    within  Co-moments about the means of each logger, for balanced weights: the variance of a mean is within / n².
    """

    means: Floats
    comoment: Floats
    buckets: Groups | None = None
    stretches: Groups | None = None
    within: Floats | None = None

    @property
    def spread(self) -> Floats:
        """The co-moments that tell how far means may be from their expectations."""
        return self.comoment if self.within is None else self.within

    @cached_property
    def finite(self) -> bool:
        """Whether all numbers are. One weight of 1e155 has an infinite square."""
        return bool(np.isfinite(self.means).all() and np.isfinite(self.comoment).all())

    def only(self, used: NDArray[Any]) -> Moments:
        """The group with 0 for all variables but those that are used, so that 0 times infinity does not spoil them."""
        if self.finite:
            return self
        both = np.outer(used, used)
        buckets, stretches = self.buckets, self.stretches
        return Moments(
            np.where(used, self.means, 0.0),
            np.where(both, self.comoment, 0.0),
            buckets and replace(buckets, sums=np.where(used, buckets.sums, 0.0)),
            stretches
            and replace(
                stretches,
                sums=np.where(used, stretches.sums, 0.0),
                gram=None if stretches.gram is None else np.where(both, stretches.gram, 0.0),
            ),
            None if self.within is None else np.where(both, self.within, 0.0),
        )

    def scaled(self, ratio: float) -> Moments:
        """The group over so many times as many events. Sums by stretch are left out."""
        within = None if self.within is None else self.within * ratio
        buckets = self.buckets and replace(self.buckets, times=self.buckets.times * ratio)
        return Moments(self.means, self.comoment * ratio, buckets, within=within)


def _used(gradient: Floats, sides: Sequence[Side]) -> NDArray[Any]:
    """Which variables (V,) matter to a statistic."""
    used = gradient != 0
    for side in sides:
        for coefficients in (side.score, side.clicks, side.share):
            used = used if coefficients is None else used | (coefficients != 0)
        if side.weight is not None:
            used[side.weight] = True
    return used


def stratified(whole: Statistics, loggers: Sequence[Statistics]) -> Statistics:
    """The sums over all events, with co-moments within loggers for balanced weights.

    Given n_j, the number of events of logger j, the variance of a mean is Σ_j (n_j/n)² s_j²/n_j, with s_j² the variance
    among the events of logger j: balanced terms have other expectations for each logger, and those differences are no
    chance. The balanced mean is unbiased for any n_j, so this holds as well if chance decides on the logger of a row.
    The pooled variance has these differences in it, so it is never smaller, up to n_j/(n_j-1). It stands in if a logger
    has a single event, whose variance is unknown.
    """
    if any(one.n < 2 for one in loggers):
        return whole
    groups = dict(whole.groups)
    for terms, parts in groups.items():
        if f"{BALANCED.name}.weight" in terms:
            of_loggers = [[part.comoment * (one.n / (one.n - 1)) for part in one.groups[terms]] for one in loggers]
            within = [np.sum(found, axis=0) * ((whole.n - 1) / whole.n) for found in zip(*of_loggers, strict=True)]
            groups[terms] = [replace(part, within=one) for part, one in zip(parts, within, strict=True)]
    return replace(whole, groups=groups)


@dataclass(frozen=True)
class Inspected:
    """What is known about weights, by policy and kind of weight."""

    largest: Floats
    thin: Floats  # sum of the weights of events with a small propensity


@dataclass(frozen=True)
class Overlap:
    """Where policies put their mass, and where the log has events."""

    mass: Floats  # sum of ν(a|x) over events, by policy and action; NaN if unknown
    logged: Ints  # number of events, by logged action; empty if no policy needed actions
    clicks: bool  # whether all rewards are 0 or 1


@dataclass(frozen=True)
class Statistics:
    """Sums over all events."""

    n: int  # events
    groups: dict[tuple[str, ...], list[Moments]]  # by the columns of the terms: of all policies together, or of each
    weights: list[str]  # columns of the weights, in the order of `inspected` and `reduced`
    inspected: Inspected
    reduced: Ints  # number of weights smaller than ν / p, by policy and kind of weight; -1 if unknown
    pivot: float
    down_sampled: bool
    overlap: Overlap
    octaves: Ints | None = None  # number of weights by policy, kind of weight, and size, if they were counted

    @property
    def first(self) -> int:
        """Where the terms of policies begin in a group."""
        return 1 + self.down_sampled

    @property
    def paired(self) -> bool:
        """Whether the covariances between policies are known. Otherwise each has moments of its own."""
        return all(len(parts) == 1 for parts in self.groups.values())

    def scaled(self, ratio: float) -> Statistics:
        """The sums over so many times as many events like these. Sums by stretch are left out."""
        found, overlap = self.inspected, self.overlap
        return replace(
            self,
            n=max(round(self.n * ratio), 1),
            groups={terms: [part.scaled(ratio) for part in parts] for terms, parts in self.groups.items()},
            inspected=Inspected(found.largest, found.thin * ratio),
            reduced=np.where(self.reduced < 0, self.reduced, np.rint(self.reduced * ratio).astype(np.int64)),
            overlap=replace(
                overlap, mass=overlap.mass * ratio, logged=np.ceil(overlap.logged * ratio).astype(np.int64)
            ),
        )

    def value(self, j: int, estimator: Estimator) -> Statistic:
        """The estimate of policy j, as a function of means."""
        columns, group = self._group(j, estimator)
        place = self._place(j, columns, estimator.columns)
        at = self._function(group, place, estimator)
        value, gradient = self._with_gradient(group, at, place, checked=estimator.own)
        sides = self._sides(j, columns, place, estimator, len(group.means))
        if estimator.weight and self.inspected.largest[j, self.kind(estimator)] == 0:
            gradient[:], sides = math.nan, ()  # no event has weight for this policy: no interval, not one of width 0
            if self.without_overlap(j, estimator):
                value = math.nan  # IPS would be 0 and DR be DM, whatever the policy is worth
        return self._statistic(group, value, gradient, at, sides)

    def without_overlap(self, j: int, estimator: Estimator) -> bool:
        """Whether policy j never takes a logged action. A limit of weights may drop them, too: then it is False."""
        assert estimator.weight is not None
        kind = self.kind(estimator)
        if self.inspected.largest[j, kind] > 0:
            return False
        if not estimator.weight.reduced or self.reduced[j, kind] == 0:
            return True
        plain = f"{IMPORTANCE.name}.weight"  # of a segment, it is not known how many weights a limit dropped
        return (
            self.reduced[j, kind] < 0
            and plain in self.weights
            and not self.inspected.largest[j, self.weights.index(plain)]
        )

    def _group(self, j: int, estimator: Estimator) -> tuple[tuple[str, ...], Moments]:
        """The group that has the terms of an estimator of policy j, with the names of its terms."""
        columns, parts = next(item for item in self.groups.items() if set(estimator.columns) <= set(item[0]))
        return columns, parts[j % len(parts)]

    def start(self, j: int, columns: Sequence[str]) -> int:
        """Where the terms of policy j begin in a group of these terms."""
        return self.first + (j if self.paired else 0) * len(columns)

    def _place(self, j: int, columns: Sequence[str], wanted: Sequence[str]) -> Place:
        return [self.start(j, columns) + columns.index(name) for name in wanted]

    def baseline(self, group: Moments | None = None) -> Statistic:
        """The logging policy's own mean reward."""
        group, at = group or next(iter(self.groups.values()))[0], self._scaled(lambda means: means[0])
        score = np.eye(1, len(group.means))[0]
        sides = () if self.down_sampled else (Side(1.0, "baseline", None, score, score, score, 1.0),)
        return self._statistic(group, *self._with_gradient(group, at, [0]), at, sides)

    def difference(self, j: int, other: int | None, estimator: Estimator, times: float = 1.0) -> Statistic:
        """The value of policy j minus so many times that of another, or of the logging policy (None)."""
        if other is not None and not self.paired:
            raise DrstreamError(
                "differences between two policies need their covariances, which are gathered for up to "
                f"{MOST_PAIRED} policies: evaluate these two alone"
            )
        _, group = self._group(j, estimator)
        left = self.value(j, estimator)
        right = self.baseline(group) if other is None else self.value(other, estimator)
        sides: tuple[Side, ...] = ()
        if left.sides and right.sides:
            mirrored = (replace(side, sign=-times * side.sign) for side in right.sides)
            sides = (*left.sides, *mirrored)

        def at(means: Floats) -> Any:
            return left.at(means) - times * right.at(means)

        value, gradient = left.value - times * right.value, left.gradient - times * right.gradient
        return self._statistic(group, value, gradient, at, sides)

    def _statistic(
        self, group: Moments, value: float, gradient: Floats, at: Callable[[Floats], Any], sides: tuple[Side, ...]
    ) -> Statistic:
        used = _used(gradient, sides)
        used[1 : self.first] = True  # 1 / sample rate: it may cancel from a derivative, but not from the value
        group = group.only(used)
        return Statistic(value, self.n, group.means, group.spread, gradient, at, sides, group.buckets, group.stretches)

    def _with_gradient(
        self, group: Moments, at: Callable[[Floats], Any], places: Place, *, checked: bool = False
    ) -> tuple[float, Floats]:
        """The value of a function of the means at some places, and of that of 1 / sample rate; and its derivatives."""
        places, gradient = [*range(1, self.first), *places], np.zeros(len(group.means))
        with np.errstate(all="ignore"):  # no weight at all: SNIPS is 0/0, undefined
            gradient[places] = derivatives.gradient(at, group.means, places, checked=checked)
            return float(at(group.means)), gradient

    def _scaled(self, at: Callable[[Floats], Any]) -> Callable[[Floats], Any]:
        """In a down-sampled log, a mean is that of what rows count, divided by how many rows they count as."""
        return (lambda means: at(means) / means[1]) if self.down_sampled else at

    def _function(self, group: Moments, place: Place, estimator: Estimator) -> Callable[[Floats], Any]:
        covariance = self._covariance(group, place)

        def at(means: Floats) -> Any:
            scale = means[1] if self.down_sampled else 1.0
            with np.errstate(all="ignore"):
                return estimator.value(TermMeans(means[place] / scale, covariance, self.pivot))

        return at

    def _covariance(self, group: Moments, place: Place) -> Floats:
        """Covariances of a policy's terms; in a down-sampled log, of what they contribute to the means."""
        if not self.down_sampled:
            return group.comoment[np.ix_(place, place)] / self.n
        scale = group.means[1]
        with np.errstate(all="ignore"):
            ratio = group.means[place] / scale
        pick = np.zeros((len(ratio), len(group.means)))
        pick[:, place] = np.eye(len(ratio)) / scale
        pick[:, 1] = -ratio / scale
        with np.errstate(all="ignore"):
            return pick @ group.only((pick != 0).any(axis=0)).comoment @ pick.T / self.n

    def _sides(
        self, j: int, columns: Sequence[str], place: Place, estimator: Estimator, variables: int
    ) -> tuple[Side, ...]:
        coefficients = None if self.down_sampled else estimator.score_coefficients(self.pivot)
        if coefficients is None:
            return ()
        score = np.zeros(variables)
        score[place] = coefficients
        if estimator.weight is None:
            return (Side(1.0, str(estimator.score), None, score),)
        clicks, share = np.zeros((2, variables))
        weight, centred = self._place(j, columns, [estimator.column("weight"), estimator.column("centred")])
        clicks[weight], clicks[centred] = self.pivot, 1.0
        share[place[estimator.carrier]] = 1.0
        largest = float(self.inspected.largest[j, self.kind(estimator)])
        spread = self.spread(j, estimator)
        smooth, explored = self._smooth(j, estimator), self._explored(j, estimator)
        return (Side(1.0, str(estimator.score), weight, score, clicks, share, largest, spread, smooth, explored),)

    def _smooth(self, j: int, estimator: Estimator) -> Smooth | None:
        """The terms of logarithmic smoothing; None if they were not gathered."""
        if not self.gathered(estimator, "smooth_gain"):
            return None
        means, _ = self.combined(j, estimator, [{"smooth_gain": 1.0}, {"smooth_loss": 1.0}])
        return Smooth(*map(float, means))

    def _explored(self, j: int, estimator: Estimator) -> Exploring | None:
        """The terms of implicit exploration; None if they were not gathered."""
        if not self.gathered(estimator, "explored"):
            return None
        means, _ = self.combined(j, estimator, [{"explored": 1.0}, {"explored_reward": 1.0}])
        return Exploring(*map(float, means))

    def spread(self, j: int, estimator: Estimator) -> Spread | None:
        """How far rewards are from the model of an estimator; for IPS, from 0. None if it was not gathered."""
        robust = estimator.score == "robust"
        absolute, squared = ("absolute", "squared") if robust else ("absolute_reward", "squared_reward")
        if not self.gathered(estimator, absolute):
            return None
        mean, covariance = self.combined(j, estimator, [self._z(estimator), {squared: 1.0}, {absolute: 1.0}])
        if self.down_sampled:  # the co-moments are those of terms times 1 / sample rate
            scale = float(self._group(j, estimator)[1].means[1])
            return Spread(math.nan, float(mean[1]) / scale, float(mean[2]) / scale)
        return Spread(float(covariance[0, 0] + mean[0] ** 2), float(mean[1]), float(mean[2]))

    def _z(self, estimator: Estimator) -> dict[str, float]:
        """w (r - r̂), or w r, as a sum of terms."""
        return {"residual": 1.0} if estimator.score == "robust" else {"weight": self.pivot, "centred": 1.0}

    def propensity_bias(self, j: int, estimator: Estimator, error: float) -> float:
        """How far an estimate can be off if true propensities are within `error` of those that are used.

        Theorem 3.4: |bias| <= E_ν[|1 - ϱ| |Δ|]. For a mean of b + z this is at most δ E_ν|y|, with y = r - r̂ or, for
        IPS, r. A log has E[w |y|] = E_ν[ϱ |y|] >= (1 - δ) E_ν|y|. For Σ z / Σ w, the bias is
        E_ν[(ϱ - 1)(y - E_ν y)] / E_ν[ϱ], at most δ √V_ν[y] / E[w], and V_ν[y] <= E[w (y - c)²] / (1 - δ) for any c.
        NaN if it is not known.
        """
        weight, spread = estimator.weight, None
        if weight is None:
            return 0.0
        if weight.gradual and (estimator.is_mean or (estimator.is_ratio and not weight.reduced)):
            spread = self.spread(j, estimator)
        if spread is None:
            return math.nan
        if estimator.is_mean:
            return error / (1 - error) * spread.absolute
        (z, w), _ = self.combined(j, estimator, [self._z(estimator), {"weight": 1.0}])
        scale = float(self._group(j, estimator)[1].means[1]) if self.down_sampled else 1.0
        z, w = float(z) / scale, float(w) / scale
        return error * math.sqrt(max(0.0, spread.squared - z * z / w) / (1 - error)) / w if w > 0 else math.nan

    def gathered(self, estimator: Estimator, term: str) -> bool:
        """Whether a term with the estimator's weight is in its group."""
        return estimator.column(term) in self._group(0, estimator)[0]

    def combined(
        self, j: int, estimator: Estimator, combinations: Sequence[Mapping[str, float]]
    ) -> tuple[Floats, Floats]:
        """Means and covariances (over n) of some sums of policy j's terms."""
        columns, group = self._group(j, estimator)
        pick = np.zeros((len(combinations), len(group.means)))
        for row, combination in zip(pick, combinations, strict=True):
            for term, coefficient in combination.items():
                row[self._place(j, columns, [estimator.column(term)])] = coefficient
        group = group.only((pick != 0).any(axis=0))
        with np.errstate(all="ignore"):  # weights of 1e155 and more give inf or NaN
            return pick @ group.means, pick @ group.comoment @ pick.T / self.n

    def kind(self, estimator: Estimator) -> int:
        """The index of the estimator's weight."""
        return self.weights.index(estimator.column("weight"))

    def _term(self, j: int, column: str) -> tuple[Moments, int]:
        """The group that has a term of policy j, and its place there."""
        terms, parts = next(item for item in self.groups.items() if column in item[0])
        return parts[j % len(parts)], self.start(j, terms) + terms.index(column)

    def mean_weight(self, j: int, kind: int) -> Statistic:
        """The mean of the weights of policy j, of one kind."""
        return self.mean_of(j, self.weights[kind])

    def mean_of(self, j: int, column: str, other: str = "", factor: float = 0.0) -> Statistic:
        """The mean of a term of policy j, minus that of another one of its group times a factor."""
        group, place = self._term(j, column)
        second = self._term(j, other)[1] if other else place
        at = self._scaled(lambda means: means[place] - factor * means[second])
        return self._statistic(group, *self._with_gradient(group, at, list({place, second})), at, ())

    def bucket_weights(self, j: int, kind: int) -> Floats:
        """Sums of the weights of policy j by bucket."""
        group, place = self._term(j, self.weights[kind])
        assert group.buckets is not None
        return group.buckets.sums[:, place]

    def weight_sums(self, j: int, kind: int) -> tuple[float, float]:
        """The sum of the weights of policy j, of one kind, and of their squares."""
        group, place = self._term(j, self.weights[kind])
        mean = float(group.means[place])
        with np.errstate(all="ignore"):
            return self.n * mean, float(group.comoment[place, place]) + self.n * mean * mean

    def ess(self, j: int, kind: int) -> float:
        """Effective sample size; NaN where no event has weight."""
        total, squares = self.weight_sums(j, kind)
        return total / squares * total if squares > 0 else math.nan
