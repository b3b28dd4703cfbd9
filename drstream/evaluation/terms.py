"""The terms that estimators need, by policy and kind of weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drstream.evaluation.estimators import IMPORTANCE, PREDICTED, Estimator, Weight


@dataclass(frozen=True)
class WeightTerms:
    """The terms that share one weight. The weight itself is the first of them."""

    weight: Weight
    terms: tuple[str, ...]
    parameters: tuple[float, ...]  # of the weight

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.weight.name}.{term}" for term in self.terms)

    @property
    def reduced(self) -> bool:
        return self.weight.reduced


@dataclass(frozen=True)
class PolicyTerms:
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
    ) -> PolicyTerms:
        """The terms of estimators, perhaps with those that explain them, and with the `plain` weights ν / p."""
        wanted: dict[Weight, dict[str, None]] = {IMPORTANCE: {"weight": None, "centred": None}} if plain else {}
        for estimator in chosen:
            if estimator.weight is not None:  # always a term: it gives the effective sample size
                terms = wanted.setdefault(estimator.weight, {"weight": None})
                if not estimator.weight.reduced:
                    terms["centred"] = None  # intervals are made from it, whatever the estimator
                if estimator.weight.marginal:  # tells whether actions matter beside their category
                    of_reward = {"direct": None, "direct_weight": None}  # centred at the end, by the mean reward
                    terms |= {"direct_residual": None} if estimator.needs_model else of_reward
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
