"""The estimators. Each is one entry of `ALL`; nothing else in the package knows its name.

An estimator is a smooth function of the means of a few terms, and so has a standard error (the delta method). For a
policy ν and event k, with weight w, the terms are

    weight     w                              robust    r̂(x, ν) + w (r - r̂(x, a)), eq. (3.1)
    reward     w r                            residual  w (r - r̂(x, a))
    centred    w (r - r₀), r₀ the pivot       predicted r̂(x, ν), which has no weight
    share      1, or h if stretches of time are weighed; then all terms with this weight are multiplied by h

and w is the importance weight ν(a_k|x_k) / p_k, or another `Weight` made of ν and p, perhaps of all actions that are in
one category with a_k. SNIPS is a ratio of means, and its
standard error is a difference of co-moments. If rewards are far from 0, co-moments of w r would cancel. So SNIPS uses
rewards about the pivot: a typical reward if rewards are far from 0, else 0. IPS uses the same terms, so the two share
their sums.

The terms that an estimator combines form one group. The covariances of a group are gathered: between the terms of one
policy, with the terms of every other policy, and with the reward. So differences are paired.

To add an estimator, add an entry to `ALL`. Or pass an estimator of your own to `evaluate` as an object:

    estimators=["dr", Estimator("half", ("predicted", "robust"), IMPORTANCE, value=...)]

This module imports no NumPy and no kernels, so `drstream evaluate --help` lists the estimators at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from drstream.errors import DrstreamError, parameter, suggest
from drstream.evaluation.lacking import PARAMETERS, PROPENSITIES, lacks

__all__ = ["ALL", "IMPORTANCE", "Estimator", "TermMeans", "Weight"]

if TYPE_CHECKING:
    from drstream.types import Floats

AUTO = "auto"  # a limit that is chosen from a grid
PREDICTED = "predicted"
WITH_WEIGHT = ("weight", "reward", "centred", "residual", "robust", "share")
KERNELS = {"importance": 0, "capped": 3, "shrunk": 1, "switched": 1}  # number of parameters; to add one, see `Weight`
CARRIERS = frozenset({"reward", "centred", "residual", "robust"})  # terms that have w r in them
WITH_MODEL = frozenset({PREDICTED, "residual", "robust"})


@dataclass(frozen=True)
class Weight:
    """A way to weigh events, from ν(a_k|x_k) and p_k.

    kernel      A function (pi, p, *parameters, out) that fills `out`, or a name in `KERNELS`. A new name is an entry
                there and in `OPS` of program.py, and an instruction of kernels/account.py.
    parameters  The parameters of `evaluate` that the kernel takes, each with the value that changes nothing. The caller
                of `evaluate` must give at least one of them.
    fixed       Values of the parameters, if the caller does not give them: the points of a grid.
    gradual     Whether a weight changes at most in proportion to p: if p grows or falls by a factor, the weight does so
                by this factor or less. Then it is known what wrong propensities can do.
    power       Weighs stretches of time: h = (mean of Σ_a ν(a|x)²/μ(a|x) over the stretch before)^-power.
    balanced    Whether p is the propensity of all loggers of the log together, Σ_j (n_j / n) p_j(a|x).
    marginal    Whether ν and p are those of the logged action's category: sums over all actions that are in it.
    """

    name: str
    kernel: str | Callable[..., None]
    parameters: tuple[tuple[str, float], ...] = ()
    fixed: tuple[float, ...] | None = None
    gradual: bool = False
    power: float = 0.0
    balanced: bool = False
    marginal: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, str):
            return
        if self.kernel not in KERNELS:
            near = suggest(self.kernel, KERNELS)
            raise DrstreamError(f"weight {self.name!r}: there is no kernel {self.kernel!r}: {near}")
        given, wanted = len(self.parameters if self.fixed is None else self.fixed), KERNELS[self.kernel]
        if given != wanted:
            raise DrstreamError(f"weight {self.name!r}: its kernel takes {wanted} parameters, and it has {given}")

    @property
    def reduced(self) -> bool:
        """Whether some weights are made smaller than ν / p."""
        return not self.plain and not self.balanced and not self.marginal

    @property
    def plain(self) -> bool:
        """Whether it is ν / p, with the propensities that were logged."""
        return self == IMPORTANCE


IMPORTANCE = Weight("w", "importance", gradual=True)
CAPPED = Weight("wc", "capped", (("floor", 0.0), ("cap", math.inf), ("inflation", 1.0)), gradual=True)
SHRUNK = Weight("wo", "shrunk", (("lambda_", math.inf),), gradual=True)
SWITCHED = Weight("ws", "switched", (("lambda_", math.inf),))
STABLE = Weight("wv", "importance", power=0.5)
LEAST = Weight("wm", "importance", power=1.0)
BALANCED = Weight("wb", "importance", balanced=True)
MARGINAL = Weight("we", "importance", gradual=True, marginal=True)

# What the score of an event is. Its expectation is the policy's value, if the weight is the importance weight.
SCORES: dict[str, dict[str, float | None]] = {
    "reward": {"weight": None, "centred": 1.0},  # w r = r₀ w + w (r - r₀); None stands for the pivot r₀
    "robust": {"robust": 1.0, PREDICTED: 1.0, "residual": 1.0},
    "predicted": {PREDICTED: 1.0},
}


class TermMeans(NamedTuple):
    """The input of an estimator: the means of its terms, their covariances, and the pivot."""

    mean: Floats  # complex while derivatives are taken
    covariance: Floats
    pivot: float


@dataclass(frozen=True)
class Estimator:
    """A function of the means of `terms`, with weights of one kind.

    value     Computes the estimate from a `TermMeans`, as a smooth function of the means. Its derivatives, for the
              delta method, come from complex means or, if it does not take these, from central differences.
    score     The kind of an event's score, "reward", "robust" or "predicted", for intervals that need one; or None.
    is_mean   Whether the value is the mean of that score, with the weights that the estimator uses: b + z, where
              z = w (r - r̂(x, a)) and b = r̂(x, ν), or z = w r and b = 0, or z = 0. Then `explain` knows its parts.
    is_ratio  Whether it is Σ z / Σ w, z = w r, or mean b + Σ z / Σ w, z = w (r - r̂(x, a)).
    default   Whether `evaluate` computes it when no estimators are named.
    headline  Whether policies are compared by it when no estimator is named.
    """

    name: str
    terms: tuple[str, ...]
    weight: Weight | None
    value: Callable[[TermMeans], float]
    score: str | None = None
    default: bool = True
    headline: bool = False
    of: str = ""  # the entry of `ALL` that it is a form of, with another weight
    is_mean: bool = False
    is_ratio: bool = False

    def __post_init__(self) -> None:
        for term in self.terms:
            if term not in (PREDICTED, *WITH_WEIGHT):
                names = (PREDICTED, *WITH_WEIGHT)
                raise DrstreamError(f"estimator {self.name!r}: there is no term {term!r}: {suggest(term, names)}")
            if term != PREDICTED and self.weight is None:
                raise DrstreamError(f"estimator {self.name!r}: the term {term!r} needs a weight, and it has none")

    def __reduce__(self) -> tuple[Callable[..., Estimator], tuple[Any, ...]]:
        if ALL.get(self.name) is self:
            return named, (self.name,)
        if self.of:
            return form_of, (self.of, self.name, self.weight)
        return Estimator, tuple(getattr(self, field.name) for field in fields(self))

    @property
    def own(self) -> bool:
        """Whether it is the user's own, and not one of this package."""
        return not self.of and ALL.get(self.name) is not self

    @property
    def needs_model(self) -> bool:
        return not WITH_MODEL.isdisjoint(self.terms)

    @property
    def needs_all_propensities(self) -> bool:
        """Whether it needs the propensities of all actions, not of the logged one alone."""
        return self.weight is not None and (self.weight.power > 0 or self.weight.marginal)

    @property
    def given_the_model(self) -> bool:
        """Whether it trusts the reward model: its interval leaves out the error of the model."""
        return self.weight is None

    @property
    def has_score(self) -> bool:
        """Whether an event has a score whose expectation is the value, as some intervals need.

        With balanced weights, only the mean of all events has that expectation: those of one logger have another.
        """
        return self.score is not None and (self.weight is None or self.weight.plain or self.weight.marginal)

    def score_coefficients(self, pivot: float) -> list[float] | None:
        """The score of an event as a sum of its terms; None if it has no score whose expectation is the value."""
        if self.score is None or not self.has_score:
            return None
        if "reward" in self.terms:
            return [float(term == "reward") for term in self.terms]
        parts = [SCORES[self.score].get(term, 0.0) for term in self.terms]
        return [pivot if part is None else part for part in parts]

    def explained_by(self, wanted: frozenset[str]) -> list[str]:
        """The terms, beside its own, that explain an estimate.

        wanted  "parts" of the variance, with a "second" model, what a limit of the weights "cut", the "spread" of
                rewards about the model, and terms that are "smooth" or "explored", for intervals.
        """
        if self.weight is None or self.score is None:
            return []
        reduced, robust = self.weight.reduced, self.score == "robust"
        plain = self.has_score and self.weight.kernel == IMPORTANCE.kernel
        terms = {
            "residual": robust and bool(wanted & {"parts", "second", "spread"}),
            "disagreement": robust and "second" in wanted,
            "cut": robust and reduced and "cut" in wanted,
            "cut_reward": not robust and reduced and "cut" in wanted,
            "second": not robust and "second" in wanted,
            "absolute": robust and "spread" in wanted,
            "squared": robust and "spread" in wanted,
            "absolute_reward": not robust and "spread" in wanted,
            "squared_reward": not robust and "spread" in wanted,
            "smooth_gain": plain and "smooth" in wanted,
            "smooth_loss": plain and "smooth" in wanted,
            "explored": plain and "explored" in wanted,
            "explored_reward": plain and "explored" in wanted,
        }
        return [term for term, needed in terms.items() if needed]

    @property
    def carrier(self) -> int:
        """The place of the term that has the weighted reward w r in it."""
        return next(i for i, term in enumerate(self.terms) if term in CARRIERS)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its terms among those of all estimators."""
        return tuple(map(self.column, self.terms))

    def column(self, term: str) -> str:
        return term if term == PREDICTED or self.weight is None else f"{self.weight.name}.{term}"


def _second(name: str, term: str, weight: Weight, score: str | None = None, **more: Any) -> Estimator:
    """The mean of a term. The weight is beside it in its group, as intervals use that its expectation is 1."""
    more = {"is_mean": score is not None, **more}
    return Estimator(name, ("weight", term), weight, lambda s: s.mean[1], score, **more)


def _ips(name: str, weight: Weight, is_mean: bool = True) -> Estimator:
    return Estimator(
        name,
        ("weight", "centred"),
        weight,
        lambda s: s.pivot * s.mean[0] + s.mean[1],
        "reward",
        is_mean=is_mean,
    )


def _snips(name: str, weight: Weight, is_ratio: bool = True) -> Estimator:
    return Estimator(
        name,
        ("weight", "centred"),
        weight,
        lambda s: s.pivot + s.mean[1] / s.mean[0],
        "reward",
        is_ratio=is_ratio,
    )


def _by_time(name: str, weight: Weight) -> Estimator:
    """Σ h Γ / Σ h. The delta method's standard error is what the papers studentise by: √Σ h²(Γ - value)² / Σ h."""
    return Estimator(name, ("share", "robust"), weight, lambda s: s.mean[1] / s.mean[0], default=False)


def _control(s: TermMeans) -> float:
    """β = Cov(w r, w) / Var(w), minus the pivot, as rewards are about the pivot here.

    Where all weights are the same, up to rounding, w controls nothing: β is 0, and the estimate is that of IPS.
    """
    spread = s.covariance[0, 0]
    return float(s.covariance[0, 1] / spread) if spread > (1e-14 * abs(s.mean[0])) ** 2 else -s.pivot


SELF_NORMALISED = "snips"  # estimators of rankings have its form, too
ALL: dict[str, Estimator] = {
    e.name: e
    for e in (
        _ips("ips", IMPORTANCE),
        _snips(SELF_NORMALISED, IMPORTANCE),
        _second("dr", "robust", IMPORTANCE, "robust", headline=True),
        Estimator(
            "sndr",
            ("weight", PREDICTED, "residual"),
            IMPORTANCE,
            lambda s: s.mean[1] + s.mean[2] / s.mean[0],
            "robust",
            default=False,
            is_ratio=True,
        ),
        _ips("ips-capped", CAPPED),
        _second("dr-capped", "robust", CAPPED, "robust"),
        # IPS with the optimal control variate w, whose mean is known to be 1: mean(w r) - β (mean(w) - 1)
        Estimator(
            "ips-cv",
            ("weight", "centred"),
            IMPORTANCE,
            lambda s: s.pivot + s.mean[1] - _control(s) * (s.mean[0] - 1),
            "reward",
            default=False,
        ),
        _second("dros", "robust", SHRUNK, "robust"),  # Su, Dimakopoulou, Krishnamurthy, Dudík 2020
        _second("switch-dr", "robust", SWITCHED, "robust"),  # Wang, Agarwal, Dudík 2017
        _by_time("dr-stablevar", STABLE),  # Hadad et al. 2021, Zhan et al. 2021: see evaluation/adaptive.py
        _by_time("dr-minvar", LEAST),
        # Agarwal, Basu, Schnabel, Joachims 2017. The variance is that of a sample stratified by logger, so neither its
        # parts nor what wrong propensities do are known
        _ips("balanced-ips", BALANCED, is_mean=False),
        _snips("balanced-snips", BALANCED, is_ratio=False),
        _second("balanced-dr", "robust", BALANCED, "robust", is_mean=False),
        _ips("mips", MARGINAL),  # Saito, Joachims 2022
        _snips("snmips", MARGINAL),
        _second("offcem", "robust", MARGINAL, "robust"),  # Saito, Ren, Joachims 2023
        # DM is last: its interval leaves out the error of the model, so it looks surer than it is
        Estimator("dm", (PREDICTED,), None, lambda s: s.mean[0], "predicted", is_mean=True),
    )
}


def named(name: str) -> Estimator:
    return ALL[name]


def form_of(entry: str, name: str, weight: Weight) -> Estimator:
    """Return an entry of `ALL` with another name and weight."""
    return replace(ALL[entry], name=name, weight=weight, of=entry)


@dataclass(frozen=True)
class Available:
    """The inputs that estimators can use."""

    model: bool
    propensities: bool
    parameters: Mapping[str, float | None]  # of weights, as given to `evaluate`
    grid: frozenset[str] = frozenset()  # parameters of weights that are chosen from a grid
    all_propensities: bool = False  # those of all actions, not of the logged one alone
    forward: bool = False  # the first events have no prediction: models are fitted on earlier events only
    balance: str | None = "logger propensities"  # what balanced weights lack, as a key of `SENTENCES`
    embedding: bool = False  # the categories of actions
    distribution: bool = False  # what all actions' propensities are: logged, uniform, or by a model
    candidates: bool = False  # each event has candidates of its own

    def lacks(self, estimator: Estimator) -> str | None:
        """What an estimator needs that was not given, as a key of `SENTENCES`, or None."""
        if estimator.needs_model and not self.model:
            return "model"
        if estimator.weight is None:
            return "predictions" if self.forward else None
        if not self.propensities:
            return PROPENSITIES
        if estimator.weight.power and (self.candidates or not self.all_propensities):
            return "one set of actions" if self.candidates else "all propensities"
        if estimator.weight.balanced and self.balance is not None:
            return self.balance
        if estimator.weight.marginal and not (self.embedding and self.distribution):
            return "distribution" if self.embedding else "embedding"
        names = [name for name, _ in estimator.weight.parameters]
        given = any(name in self.grid or self.parameters.get(name) is not None for name in names)
        return PARAMETERS if names and not given else None


def choose(
    names: Any, available: Available, no_propensities: str, known: Mapping[str, Estimator] = ALL
) -> list[Estimator]:
    """The estimators that were named. By default, all default estimators whose inputs are available.

    no_propensities  What the error says if propensities are missing.
    known            The estimators that can be named.
    """
    if names is None:
        usual = {e: available.lacks(e) for e in known.values() if e.default}
        for e, what in usual.items():
            if available.embedding and e.weight is not None and e.weight.marginal and what not in (None, "model"):
                raise lacks(e.name, what, no_propensities, ())  # who gives categories wants them to be used
        possible = [e for e, what in usual.items() if what is None]
        if not possible:
            raise DrstreamError(f"estimators without a reward model need propensities, {no_propensities}")
        return possible
    found: dict[str, Estimator] = {}
    weights: dict[str, Weight] = {}
    for name in [names] if isinstance(names, str | Estimator) else names:
        estimator = name if isinstance(name, Estimator) else known.get(str(name).lower())
        if estimator is None:
            raise DrstreamError(f"there is no estimator {name!r}: {suggest(str(name).lower(), known)}")
        _check_parameters(estimator.weight, available)
        if lacking := available.lacks(estimator):
            limits = () if estimator.weight is None else estimator.weight.parameters
            raise lacks(estimator.name, lacking, no_propensities, [name for name, _ in limits])
        if found.setdefault(estimator.name, estimator) is not estimator:
            raise DrstreamError(f"two estimators are called {estimator.name!r}: give one of them another name")
        weight = estimator.weight
        if weight is not None and weights.setdefault(weight.name, weight) != weight:
            raise DrstreamError(f"two weights are called {weight.name!r}: give one of them another name")
    if not found:
        raise DrstreamError(f"{parameter('estimators')} is empty: name at least one of {', '.join(known)}")
    return list(found.values())


def _check_parameters(weight: Weight | None, available: Available) -> None:
    for name, _ in () if weight is None else weight.parameters:
        if name not in available.parameters:
            assert weight is not None
            known = suggest(name, available.parameters)
            raise DrstreamError(f"weight {weight.name!r} has the parameter {name!r}, which evaluate has not: {known}")
