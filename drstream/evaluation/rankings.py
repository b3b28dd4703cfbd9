"""The estimators of rankings. Each is one entry of `ALL`; nothing else in the package knows its name.

A ranking is a list of items that were shown together. Its value is the expected sum of its rewards. With
w_l = π_l / p_l at position l, a weight v_l of each position is w_l, or the product w_1 ... w_l, and the terms of a list
are

    weight   the mean of v_l            shown l            1 if the list has a position l
    reward   Σ v_l r_l                  position weight l  v_l, or 0
    robust   Σ v_l (r_l - q_l) + v_(l-1) e_l               position reward l  v_l r_l, or 0

Other weights are about the whole list: terms are then those of `estimators.py`, with the sum of the rewards as reward.
Each estimator assumes something about the users who saw the lists. `assumes` says what.

This module imports no NumPy and no kernels, so `drstream evaluate --help` lists the estimators at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drstream.errors import DrstreamError, parameter
from drstream.evaluation import estimators
from drstream.evaluation.estimators import CAPPED, IMPORTANCE, Available, Estimator, TermMeans, Weight
from drstream.evaluation.lacking import PROPENSITIES
from drstream.findings import LOOK, Finding

__all__ = ["ALL"]

MARGINAL, CONDITIONAL, INDEPENDENT = "marginal", "conditional", "independent"  # as in `Log(..., positions=)`
BY_POSITION = ("shown", "position weight", "position reward")  # terms that each position has
MOST_POSITIONS = 64  # of estimators with terms for each: their covariances grow with the square


@dataclass(frozen=True)
class ListWeight(Weight):
    """A way to weigh lists, from the weights w_l of their items.

    kernel  "positions": v_l = w_l. "cascade": v_l = w_1 ... w_l. "pseudo": 1 + Σ (w_l - 1), of the whole list.
    fits    What the propensities by position may be.
    called  The name of the weight in findings.
    """

    fits: tuple[str, ...] = ()
    called: str = "weight"

    def __post_init__(self) -> None:
        assert self.kernel in ("positions", "cascade", "pseudo")

    @property
    def reduced(self) -> bool:
        return False

    @property
    def by_position(self) -> bool:
        """Whether each position has a weight of its own."""
        return self.kernel != "pseudo"


POSITIONS = ListWeight("wi", "positions", fits=(MARGINAL, INDEPENDENT), called="weight by position")
CASCADE = ListWeight("wk", "cascade", fits=(CONDITIONAL, INDEPENDENT), called="weight from the top")
PSEUDO = ListWeight("wp", "pseudo", fits=(INDEPENDENT,), called="pseudo-inverse weight")
WHOLE = (CONDITIONAL, INDEPENDENT)  # what propensities by position are for weights of whole lists, their product


@dataclass(frozen=True)
class Ranked(Estimator):
    """An estimator of rankings.

    assumes    What it assumes about users and propensities, in words.
    positions  Number of positions, if it has terms for each. An entry of `ALL` has 0, and `at_positions` sets it.
    """

    assumes: str = ""
    positions: int = 0

    def __post_init__(self) -> None:
        """Terms are those of lists."""

    def __reduce__(self) -> tuple[Callable[..., Estimator], tuple[Any, ...]]:
        return (named, (self.name,)) if not self.positions else (_form_of, (self.name, self.positions))

    @property
    def own(self) -> bool:
        return False

    @property
    def by_position(self) -> bool:
        """Whether it needs rewards by position."""
        return isinstance(self.weight, ListWeight) and self.weight.by_position


INDEPENDENT_USERS = (
    "a reward depends on its own item and position alone; propensities are those of an item at its position"
)
CASCADE_USERS = (
    "users go from top to bottom, so a reward depends on its item and those above; propensities are given the items "
    "above"
)
ADDITIVE_USERS = (
    "the reward of a list is a sum of effects of its items at their positions; positions were filled independently"
)
ANY_USERS = "nothing about users, rewards may depend on the whole list; propensities are given the items above"


def _mean(name: str, term: str, weight: ListWeight, assumes: str, **more: Any) -> Ranked:
    return Ranked(name, ("weight", term), weight, lambda s: s.mean[1], assumes=assumes, **more)


def _normalised(name: str, weight: ListWeight, assumes: str) -> Ranked:
    """Σ_l (share of the lists that have position l) (Σ v_l r_l / Σ v_l), with sums over the lists that have it."""
    return Ranked(name, BY_POSITION, weight, _value, default=False, assumes=assumes)


def _value(sample: TermMeans) -> Any:
    """Of means of whether a list has position l, of its weight v_l there, and of v_l r_l, for all l in this order."""
    import numpy as np

    shown, weight, reward = np.split(np.asarray(sample.mean), 3)
    with np.errstate(all="ignore"):  # a position that no list has counts as 0
        return np.where(np.real(shown) == 0, 0.0, shown * (reward / weight)).sum(axis=0)


def _like(entry: str, name: str, weight: Weight, assumes: str, **more: Any) -> Ranked:
    """An estimator of events, for lists: with the weight and the reward of the whole list."""
    of = estimators.ALL[entry]
    return Ranked(name, of.terms, weight, of.value, assumes=assumes, **more)


ALL: dict[str, Ranked] = {
    e.name: e
    for e in (
        # Kiyohara, Saito, Matsuhiro, Narita, Shimizu, Yamamoto 2022
        _mean("cascade-dr", "robust", CASCADE, CASCADE_USERS, headline=True),
        _mean("rips", "reward", CASCADE, CASCADE_USERS, headline=True),  # McInerney et al. 2020
        _mean("iips", "reward", POSITIONS, INDEPENDENT_USERS),  # Li et al. 2018
        _like("ips", "pi", PSEUDO, ADDITIVE_USERS),  # Swaminathan et al. 2017
        _normalised("snrips", CASCADE, CASCADE_USERS),
        _normalised("sniips", POSITIONS, INDEPENDENT_USERS),
        _like(estimators.SELF_NORMALISED, "snpi", PSEUDO, ADDITIVE_USERS, default=False),
    )
}


def named(name: str) -> Ranked:
    return ALL[name]


def _form_of(name: str, positions: int) -> Ranked:
    """Return an entry of `ALL` with the terms of so many positions."""
    terms = tuple(f"{term} {place}" for term in BY_POSITION for place in range(positions))
    return replace(ALL[name], terms=terms, positions=positions)


def has_position_terms(chosen: Sequence[Estimator]) -> bool:
    """Whether some estimators have terms for each position, so that the longest list must be known."""
    return any(isinstance(e, Ranked) and e.terms == BY_POSITION for e in chosen)


def at_positions(chosen: Sequence[Estimator], positions: int) -> list[Estimator]:
    """Return the estimators with the terms of so many positions, where they have such."""
    by_position = [e.name for e in chosen if has_position_terms([e])]
    if by_position and positions > MOST_POSITIONS:
        raise DrstreamError(
            f"estimators {', '.join(by_position)} take lists of up to {MOST_POSITIONS} items, and the longest one has "
            f"{positions}: leave them out, or cut the lists"
        )
    return [_form_of(e.name, positions) if e.name in by_position else e for e in chosen]


KNOWN: dict[str, Estimator] = {**ALL, **estimators.ALL}  # some of the latter take whole lists for events


@dataclass(frozen=True)
class ListFacts:
    """What is known about the lists of a log of rankings, beside the estimates."""

    shortest: int
    longest: int
    items: int  # in all lists
    listed: bool  # whether propensities are by position
    positions: str | None  # what those are, if the user said so

    def __str__(self) -> str:
        if self.shortest == self.longest:
            return f"{self.longest} item{'s' * (self.longest != 1)}"
        return f"{self.shortest} to {self.longest} items"

    def about_propensities(self, chosen: Sequence[Estimator]) -> Finding | None:
        """Say so if estimators need different propensities, and the user did not say which ones the log has."""
        if not self.listed or self.positions is not None:
            return None
        needs: dict[tuple[str, ...], list[str]] = {}
        for estimator in chosen:
            needs.setdefault(_fits(estimator), []).append(estimator.of or estimator.name)
        if len(needs) == 1:
            return None
        said = "; ".join(f"{', '.join(names)}: {' or '.join(fits)}" for fits, names in needs.items())
        text = (
            "The log does not say whether its propensities by position are those of an item at its position (marginal) "
            "or given the items above (conditional). They are the same only if positions were filled independently. "
            f"Estimators need others ({said}). Say which ones the log has (positions), and trust those estimators only."
        )
        return Finding(LOOK, "positions", None, math.nan, text)


def _fits(estimator: Estimator) -> tuple[str, ...]:
    """What the propensities by position may be for an estimator."""
    return estimator.weight.fits if isinstance(estimator.weight, ListWeight) else WHOLE


def _takes_lists(weight: Weight) -> bool:
    """Whether a weight of events is one of whole lists, too: ν / p, a limited one, or one of the user's own."""
    return weight in (IMPORTANCE, CAPPED) or (
        callable(weight.kernel) and not (weight.power or weight.balanced or weight.marginal)
    )


def assumption(estimator: Estimator) -> str:
    return estimator.assumes if isinstance(estimator, Ranked) else ANY_USERS


def refuse_for_events(names: Any) -> None:
    """Raise an error if an estimator of rankings is named for a log of events with one action."""
    for name in [names] if isinstance(names, str | Estimator) else names or ():
        if isinstance(name, Ranked) or (str(name).lower() in ALL and not isinstance(name, Estimator)):
            called = name.name if isinstance(name, Ranked) else str(name).lower()
            raise DrstreamError(
                f"estimator {called!r} is about rankings, and this log has one action for each event: in a log of "
                f"rankings, {parameter('action')} and {parameter('propensity')} name columns of lists"
            )


@dataclass(frozen=True)
class AvailableLists(Available):
    """The inputs that estimators of rankings can use."""

    by_position: bool = True  # whether all rewards are by position
    listed: bool = True  # whether propensities are
    positions: str | None = None  # what those are, if the user said so

    def lacks(self, estimator: Estimator) -> str | None:
        weight = estimator.weight
        of_lists = isinstance(weight, ListWeight)
        if not of_lists and (weight is None or estimator.needs_model or not _takes_lists(weight)):
            return "one action"
        if not self.propensities:
            return PROPENSITIES
        if of_lists and not self.listed:
            return "position propensities"
        if isinstance(estimator, Ranked) and estimator.by_position and not self.by_position:
            return "position rewards"
        fits = _fits(estimator)
        if self.listed and self.positions is not None and self.positions not in fits:
            return f"{fits[0]} propensities"
        if estimator.needs_model:
            return None if self.model else "position predictions"
        return super().lacks(estimator)
