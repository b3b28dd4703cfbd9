"""Where the variance of an estimate comes from, and the bias that a limit of the weights causes.

Lemma 3.3 and Theorem 3.5 of the paper: an event's score is b + z, b = r̂(x, ν) and z = w (r - r̂(x, a)), and its variance
is T1 - T2 + T3 + T4. With Δ = r̂ - r*, the error of the model, and ϱ = μ / μ̂, that of the propensities,

    contexts      T1 - T2 = V_x[E_ν[r* + (1 - ϱ)Δ]] - E_x[(E_ν[ϱΔ])²] = V(b) + 2 Cov(b, z) - (E z)²
    importance    T3 + T4 = E[z²], in which
    reward noise  T3 = E_ν[w ϱ V(r)] and
    model error   T4 = E_ν[w ϱ Δ²].

A log tells T1 - T2 and T3 + T4, for any μ̂. It does not tell T3 from T4: with r = r* they would be the same to it. If
rewards are deterministic, T3 = 0. A second model r̃ gives E[w² (r - r̂)(r̃ - r̂)] = T4 - E_ν[w ϱ Δ Δ̃], which is T4 if
r̃ = r*. For IPS, r̂ = 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drstream.errors import DrstreamError, parameter, phrase, printable
from drstream.evaluation.estimators import ALL, Estimator
from drstream.evaluation.statistics import Statistics


@dataclass(frozen=True)
class Explain:
    """What is known about a log beside its events, for `result.explain`.

    second_model           Another reward model, fitted on other events than those that are evaluated, or unfitted with
                           crossfit=. It splits the importance part into reward noise and model error.
    deterministic_rewards  Whether the reward of an action in a context is always the same. Then there is no noise.
    """

    second_model: Any = None
    deterministic_rewards: bool = False

    @classmethod
    def of(cls, explain: Any) -> Explain | None:
        """Check `explain=` of `evaluate`."""
        if isinstance(explain, bool) or explain is None:
            return cls() if explain else None
        if not isinstance(explain, cls):
            raise DrstreamError(f"{parameter('explain', explain)}: it must be True or False, or drs.Explain(...)")
        return explain


@dataclass(frozen=True)
class Explanation:
    """The variance of one event's score, in parts, and the bias of a limit. Unknown numbers are NaN.

    variance      contexts + importance. The standard error is √(variance / n), up to n / (n - 1).
    contexts      T1 - T2: contexts differ in their value. It can be negative: the model's error then cancels with it.
    importance    T3 + T4: rewards are seen for some actions only, and count with weights.
    reward_noise  T3: the reward of an action in a context varies.
    model_error   T4: the model's error for the logged actions. For IPS, whose model is 0, it is that of 0.
    bias          E[(w - w₀)(r - r̂)], w₀ = ν / p: what a limit of the weights adds to the estimate; 0 without a limit.
    notes         What to know before these numbers are used.
    """

    policy: str
    estimator: str
    n: int
    variance: float
    contexts: float
    importance: float
    reward_noise: float
    model_error: float
    bias: float
    bias_stderr: float
    width: float  # of the interval that is shown
    notes: tuple[str, ...] = ()

    def share(self, part: str) -> float:
        """The share of a part in the variance. Those of contexts and importance sum to 1."""
        return float(getattr(self, part)) / self.variance if self.variance > 0 else math.nan

    def part_width(self, part: str) -> float:
        """The width that the interval would have with this part alone. Widths of parts add up in squares."""
        share = self.share(part)
        return self.width * math.sqrt(share) if share >= 0 else math.nan

    @property
    def parts(self) -> list[dict[str, Any]]:
        """One row for each part: its variance, its share in the whole, and the width of an interval of it alone."""
        return [
            {"part": name, "variance": getattr(self, name), "share": self.share(name), "width": self.part_width(name)}
            for name in PARTS
        ]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as a dictionary, as in JSON."""
        return {**vars(self), "parts": self.parts, "notes": list(self.notes)}

    @printable
    def __str__(self) -> str:
        head = f"{self.policy}, {self.estimator}: variance of an event {self.variance:.6g}, {self.n:,} events"
        lines = [head, f"  {'part':<14} {'variance':>11} {'share':>8} {'width':>11}"]
        for row in self.parts:
            if not math.isnan(row["variance"]):
                name = ("  " if row["part"] in INNER else "") + row["part"].replace("_", " ")
                width = "" if math.isnan(row["width"]) else f"{row['width']:.6g}"
                lines.append(f"  {name:<14} {row['variance']:>11.6g} {row['share']:>8.1%} {width:>11}".rstrip())
        if self.bias or self.bias_stderr:
            lines.append(f"  bias of the limit: {self.bias:.6g} ± {self.bias_stderr:.2g}")
        return "\n".join([*lines, *(f"  {sentence}" for sentence in self.notes)])


PARTS = ("contexts", "importance", "reward_noise", "model_error")
INNER = PARTS[2:]  # parts of "importance"


@dataclass(frozen=True)
class Explained:
    """What an explanation takes from a result beside its sums."""

    policy: str
    estimator: str  # its name, also if its limit comes from a grid
    width: float
    estimated_propensities: bool
    clustered: bool
    grid: bool
    explain: Explain = field(default_factory=Explain)
    blind: bool = False  # the second model knows nothing about the first events


def explain(sums: Statistics, j: int, estimator: Estimator, facts: Explained) -> Explanation:
    """Explain the estimate of policy j."""
    require(sums, estimator, facts.estimator)
    mean, covariance = sums.combined(j, estimator, _score_parts(sums, estimator))
    contexts = covariance[0, 0] + 2 * covariance[0, 1] - mean[1] ** 2
    importance = covariance[1, 1] + mean[1] ** 2
    variance = covariance[0, 0] + 2 * covariance[0, 1] + covariance[1, 1]
    noise, error = _inner(sums, j, estimator, facts.explain, float(importance))
    by_second = not math.isnan(error) and estimator.weight is not None and not facts.explain.deterministic_rewards
    notes = tuple(_notes(facts, estimator, blind=facts.blind and by_second))
    parts = float(variance), float(contexts), float(importance), noise, error
    about = facts.policy, facts.estimator, sums.n, *parts, *cut_bias(sums, j, estimator)
    return Explanation(*about, facts.width, notes)


def require(sums: Statistics, estimator: Estimator, name: str) -> None:
    """Raise an error if the parts of an estimator are not known."""
    if sums.down_sampled:
        raise DrstreamError(
            "explain: the parts of the variance are not known for a down-sampled log, whose rows count for several "
            "events each: evaluate a log of all events"
        )
    if not estimator.is_mean:
        known = ", ".join(e.name for e in ALL.values() if e.is_mean)
        raise DrstreamError(f"explain: the parts of {name!r} are not known: it is not a mean of scores, as {known} are")
    if not has_parts(sums, estimator):
        told = phrase("explain=True", "--explain")
        raise DrstreamError(
            f"explain: this evaluation did not gather what the parts of {name!r} are made of: pass {told} to evaluate"
        )


def has_parts(sums: Statistics, estimator: Estimator) -> bool:
    """Whether the pass gathered what the parts are made of."""
    if sums.down_sampled or not estimator.is_mean:
        return False
    terms = [term for combination in _score_parts(sums, estimator) for term in combination]
    return all(sums.gathered(estimator, term) for term in terms)


def _score_parts(sums: Statistics, estimator: Estimator) -> list[dict[str, float]]:
    """b and z, as combinations of terms."""
    if estimator.score == "robust":  # b is not gathered beside the two
        return [{"robust": 1.0, "residual": -1.0}, {"residual": 1.0}]
    if estimator.score == "predicted":
        return [{"predicted": 1.0}, {}]
    return [{}, {"weight": sums.pivot, "centred": 1.0}]


def _inner(sums: Statistics, j: int, estimator: Estimator, told: Explain, importance: float) -> tuple[float, float]:
    """T3 and T4; NaN if neither the user nor a second model tells them apart."""
    if estimator.weight is None:
        return 0.0, 0.0
    if told.deterministic_rewards:
        return 0.0, importance
    term = "disagreement" if estimator.score == "robust" else "second"
    if not sums.gathered(estimator, term):
        return math.nan, math.nan
    mean, covariance = sums.combined(j, estimator, [_score_parts(sums, estimator)[1], {term: 1.0}])
    error = float(covariance[0, 1] + mean[0] * mean[1])
    return importance - error, error


def cut_bias(sums: Statistics, j: int, estimator: Estimator) -> tuple[float, float]:
    """E[(w - w₀)(r - r̂)], w₀ = ν / p, and its standard error: 0 without a limit, NaN if it was not gathered."""
    if estimator.weight is None or not estimator.weight.reduced:
        return 0.0, 0.0
    term = "cut" if estimator.score == "robust" else "cut_reward"
    if sums.down_sampled or not sums.gathered(estimator, term):
        return math.nan, math.nan
    mean, covariance = sums.combined(j, estimator, [{term: 1.0}])
    stderr = math.sqrt(float(covariance[0, 0]) / (sums.n - 1)) if sums.n > 1 else math.nan
    return float(mean[0]), stderr


def _notes(facts: Explained, estimator: Estimator, *, blind: bool) -> Iterator[str]:
    if facts.estimated_propensities and estimator.weight is not None:
        yield "The propensities are estimated. The parts hold only if the logging policy did not learn while it logged."
    if blind:
        yield (
            "The second model is fitted on earlier events only, and predicts 0 for the first ones. What it tells about "
            "noise and error is wrong there. Take a longer log, or a second model of other events."
        )
    if facts.clustered or facts.grid:
        wider = ["events of one cluster that depend on each other"] * facts.clustered
        wider += ["the choice of the limit from a grid"] * facts.grid
        yield f"The parts are about single events. The interval also allows for {' and for '.join(wider)}."
