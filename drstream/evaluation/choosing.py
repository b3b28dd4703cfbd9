"""Several policies at once: the best one after the choice, bands for all of them, and lifts, which are ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from drstream.evaluation.checks import FEW_CARRIERS
from drstream.evaluation.estimators import Estimator
from drstream.evaluation.settings import Settings
from drstream.evaluation.statistics import Statistics
from drstream.findings import LOOK, Finding
from drstream.intervals import winners, z_score
from drstream.intervals.statistic import Statistic
from drstream.intervals.tails import few_clicks
from drstream.results import Estimate, plain, stamped
from drstream.types import Floats

LOGGING = "logging policy"
UNDEFINED = Estimate(math.nan, math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class Best(Estimate):
    """The estimate of the best policy, with an interval that is valid after the choice.

    policy     The policy with the highest estimate; empty if no policy has one.
    estimator  The estimator that it was chosen by.
    among      Number of policies that it was chosen among.
    left_out   Policies without an estimate, or without a standard error.
    unbiased   The value without the luck of the highest: half of the time, the truth is below it.
    gain       The difference to the logging policy, with an interval that is valid after the choice.
    stopped    Whether a finding says not to use it.
    """

    policy: str = ""
    estimator: str = ""
    among: int = 0
    left_out: tuple[str, ...] = ()
    unbiased: float = math.nan
    gain: Estimate = UNDEFINED
    stopped: bool = False

    @property
    def sentence(self) -> str:
        """What is to be said about it."""
        if not self.policy:
            return f"best: no policy has an estimate by {self.estimator}"
        out = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        out += "; but a finding says not to use it" if self.stopped else ""
        if math.isnan(self.low):
            return f"best: {self.policy}, {self} by {self.estimator}, without an interval{out}"
        return f"best: {self.policy}, {self} by {self.estimator}, valid after choosing it among {self.among}{out}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with null for an undefined value."""
        numbers = "value", "stderr", "low", "high"
        found = {name: getattr(self, name) for name in ("policy", "estimator", "among", *numbers, "unbiased")}
        gain = {name: getattr(self.gain, name) for name in numbers}
        return plain({**found, "gain": gain, "left_out": list(self.left_out)})


@dataclass(frozen=True)
class Lift(Estimate):
    """How much better than the base a policy is, as a share of the base's value.

    policy, base  The policies; the base may be the logging policy.
    finding       What is to be read before the lift is used: that an end of its interval is open; None if none is.
    """

    policy: str = ""
    base: str = LOGGING
    finding: Finding | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with null for an open end and for an undefined value."""
        found = {name: getattr(self, name) for name in ("policy", "base", "value", "stderr", "low", "high")}
        return plain({**found, "finding": None if self.finding is None else self.finding.to_dict()})


@dataclass(frozen=True)
class Joint:
    """Estimates of all policies by one estimator, and of their differences to the logging policy.

    values, gains  Of all policies, with the method's own intervals.
    kept           Places of the policies that have a value and a standard error.
    covariance     Of the values and then of the differences of those that are kept.
    """

    values: list[Estimate]
    gains: list[Estimate]
    kept: list[int]
    covariance: Floats


class Choosing:
    """What an evaluation says about several of its policies at once."""

    policies: list[str]
    confidence: float
    statistics: Statistics
    provenance: dict[str, Any]
    _settings: Settings

    if TYPE_CHECKING:

        @property
        def headline(self) -> str: ...
        def _find(self, policy: str, estimator: str) -> tuple[int, Estimator]: ...
        def __getitem__(self, key: tuple[str, str]) -> Estimate: ...
        def difference(
            self, policy: str, other: str | None = None, estimator: str | None = None, *, times: float = 1.0
        ) -> Estimate: ...
        @property
        def baseline(self) -> Estimate: ...
        def at_confidence(self, confidence: float) -> Self: ...
        def stops(self, policy: str, estimator: str) -> list[Finding]: ...

    def best(self, estimator: str | None = None) -> Best:
        """The policy with the highest estimate, with an interval that is valid although it was chosen for that.

        The highest of several estimates tends to be too high. Its interval is the hybrid one of Andrews, Kitagawa and
        McCloskey (2024). Policies without an estimate are left out. Without an estimator, it is the one that policies
        are compared by.
        """
        name = estimator or self.headline
        joint = self._joint(name)
        found = [(joint.values[j].value, -place) for place, j in enumerate(joint.kept)]
        out = tuple(policy for j, policy in enumerate(self.policies) if j not in joint.kept)
        if not found:
            return _as(Best, UNDEFINED, n=self.statistics.n, estimator=name, left_out=out)
        place = -max(found)[1]
        j, many = joint.kept[place], len(joint.kept)
        policy = self.policies[j]
        plain, plain_gain = joint.values[j], joint.gains[j]
        stopped = bool(self.stops(policy, name))
        about = {"policy": policy, "estimator": name, "among": many, "left_out": out, "stopped": stopped}
        if many == 1:
            return _as(Best, plain, unbiased=plain.value, gain=plain_gain, **about)
        inside = [_after_choice(joint, place, target, self.confidence) for target in (place, many + place)]
        low, unbiased, high = self._reached(plain, inside[0], gain=False)
        if self._is_rare(j, name):  # what is known of a choice is about normal estimates
            low, high = min(low, plain.low), max(high, plain.high)
        ends = {"low": low, "high": high, "intervals": {}, "method": _after(plain.method, many)}
        low, _, high = self._reached(plain_gain, inside[1], gain=True)
        if self._is_rare(j, name):
            low, high = min(low, plain_gain.low), max(high, plain_gain.high)
        gain = replace(plain_gain, low=low, high=high, intervals={}, method=_after(plain_gain.method, many))
        return _as(Best, plain, unbiased=unbiased, gain=gain, **ends, **about)

    def _is_rare(self, j: int, name: str) -> bool:
        """Whether few events carry an estimate, so that it is far from normal."""
        return few_clicks(self.statistics.value(j, self._find(self.policies[j], name)[1])) < FEW_CARRIERS

    def bands(self, estimator: str | None = None) -> pa.Table:
        """Bands for the values of all policies, and for their differences to the logging policy.

        One row for each: policy, base, value, low, high. The base of a value is null. The bands of values hold at once,
        and so do those of differences. Each is the interval of its estimate, by the same method, at the confidence
        level that belongs to the sup-t critical value.
        """
        name = estimator or self.headline
        joint = self._joint(name)
        rows, many = list[dict[str, Any]](), len(joint.kept)
        for base, first in ((None, 0), (LOGGING, many)):
            own = slice(first, first + many)
            score = winners.critical(winners.correlations(joint.covariance[own, own]), self.confidence)
            wider = self._at(score)
            for policy in self.policies:
                found = wider[policy, name] if base is None else wider.difference(policy, estimator=name)
                ends = {end: getattr(found, end) for end in ("value", "low", "high")}
                rows.append({"policy": policy, "base": base, **ends})
        texts = [pa.field(column, pa.string()) for column in ("policy", "base")]
        numbers = [pa.field(column, pa.float64()) for column in ("value", "low", "high")]
        return stamped(pa.Table.from_pylist(rows, pa.schema([*texts, *numbers])), self.provenance)

    def lift(self, policy: str, base: str | None = None, estimator: str | None = None) -> Lift:
        """How much better a policy is than another one, or than the logging policy: V(policy) / V(base) - 1.

        The base is estimated, too: the interval is Fieller's, which holds all q for which the interval of
        V(policy) - q V(base) has 0 in it. An end is infinite if the base may be 0. Then `finding` says so.
        """
        name = estimator or self.headline
        above, below = self[policy, name], self.baseline if base is None else self[base, name]
        about = {"policy": policy, "base": base or LOGGING}
        if not below.value or not math.isfinite(below.value) or math.isnan(above.value):
            lacking = math.isnan(above.value) or math.isnan(below.value)
            undefined = _lacking(**about) if lacking else _open(**about, found=below)
            return _as(Lift, UNDEFINED, n=above.n, finding=undefined, **about)
        ratio = above.value / below.value

        def bounds(q: float) -> tuple[float, float]:
            found = self.difference(policy, base, name, times=q)
            return found.low, found.high

        sign = 0.0 if not below.low * below.high > 0 else math.copysign(1.0, below.value)
        least = 0.0 if self.rewards_not_negative else -math.inf
        low, high = winners.ratio_bounds(bounds, ratio, sign, least)
        finding = _open(**about, found=below) if math.isinf(low) or math.isinf(high) else None
        away = self.difference(policy, base, name, times=ratio)
        ends = {"value": ratio - 1, "stderr": away.stderr / abs(below.value), "low": low - 1, "high": high - 1}
        return _as(Lift, away, intervals={}, finding=finding, **ends, **about)

    @property
    def rewards_not_negative(self) -> bool:
        """Whether it is known that no reward is negative."""
        known = self._settings.reward_range
        return self.statistics.overlap.clicks if known is None else known[0] >= 0

    def _joint(self, name: str) -> Joint:
        """The estimates of all policies, and their covariances."""
        forms = [self._find(policy, name) for policy in self.policies]
        values = [self[policy, name] for policy in self.policies]
        gains = [self.difference(policy, estimator=name) for policy in self.policies]
        kept = [j for j, e in enumerate(values) if math.isfinite(e.value) and math.isfinite(e.stderr)]
        sums = self.statistics
        found = [sums.value(*forms[j]) for j in kept] + [sums.difference(j, None, forms[j][1]) for j in kept]
        spread = np.array([values[j].stderr for j in kept] + [gains[j].stderr for j in kept])
        of_events = self._settings.cluster is None and sums.paired
        covariance = _of_events(found) if of_events else _by_bucket(found)
        return Joint(values, gains, kept, winners.correlations(covariance) * np.outer(spread, spread))

    def _reached(self, found: Estimate, inside: winners.AfterChoice, *, gain: bool) -> list[float]:
        """The low end, the middle and the high end, with the sides of an interval for so many standard errors.

        The estimate is between the ends. Distances are in proportion: where few events carry an estimate, quantiles
        that far out are unknown, and measured coverage does not need them.
        """
        least, most = self._settings.reward_range or (0.0 if self.rewards_not_negative else -math.inf, math.inf)
        ends = (least - most, most - least) if gain else (least, most)
        scores = np.array([min(inside.low, 0.0), inside.middle, max(inside.high, 0.0)]) / z_score(self.confidence)
        sides = np.where(scores < 0, found.value - found.low, found.high - found.value)
        return np.clip(found.value + scores * sides, *ends).tolist()

    def _at(self, score: float) -> Self:
        """The same with intervals of so many standard errors, as far as they are normal."""
        level = math.erf(score / math.sqrt(2))
        return self.at_confidence(min(max(level, 1e-9), 1 - 1e-15))


Kind = TypeVar("Kind", Best, Lift)


def _as(kind: type[Kind], found: Estimate, **about: Any) -> Kind:
    """Return an estimate with more to it."""
    return kind(**{**{one.name: getattr(found, one.name) for one in fields(Estimate)}, **about})


def _after(method: str, many: int) -> str:
    return f"{method}, after choosing among {many}" if method else ""


def _lacking(policy: str, base: str) -> Finding:
    """One of the two has no estimate."""
    text = f"The lift of {policy} over {base} is undefined, as one of them has no estimate."
    return Finding(LOOK, "lift", policy, math.nan, text)


def _open(policy: str, base: str, found: Estimate) -> Finding:
    """The base may be 0."""
    text = (
        f"The lift of {policy} over {base} has no interval, or one with an open end: the value of {base}, {found}, may "
        "be 0. Use the difference of the two, or more events."
    )
    return Finding(LOOK, "lift", policy, found.value, text)


def _after_choice(joint: Joint, place: int, target: int, confidence: float) -> winners.AfterChoice:
    """Where the truth of a target is: of the best policy's value, or of its difference to the logging policy."""
    many, covariance = len(joint.kept), joint.covariance
    of_kind = slice(target - place, target - place + many)  # the targets of all policies
    correlation = winners.correlations(covariance[of_kind, of_kind])
    spread = math.sqrt(covariance[target, target])
    if not spread > 0:
        return winners.AfterChoice(0.0, 0.0, 0.0)
    reach = winners.critical(correlation, 1 - winners.share_of_projection(confidence))
    values = np.array([joint.values[j].value for j in joint.kept])
    own, with_target = covariance[:many, :many], covariance[:many, target]
    return winners.after_choice(values, own, place, with_target, spread, reach, confidence)


def _of_events(found: Sequence[Statistic]) -> Floats:
    """The covariances of some statistics, by their gradients and co-moments, up to a factor."""
    if not found:
        return np.zeros((0, 0))
    with np.errstate(all="ignore"):
        rows = np.array([one.comoment @ one.gradient for one in found])
        both = rows @ np.array([one.gradient for one in found]).T
    return (both + both.T) / 2


def _by_bucket(found: Sequence[Statistic]) -> Floats:
    """The covariances of some statistics, by what each bucket adds to them, up to a factor."""
    away = []
    for one in found:
        assert one.buckets is not None
        away.append((one.buckets.sums - one.buckets.count[:, None] * one.means) @ one.gradient)
    return np.array(away) @ np.array(away).T if away else np.zeros((0, 0))
