"""The estimators: each is a smooth function of the means of a few per-event terms, and so has a standard error.

The terms of a policy ν, for event k with weight w = ν(a_k|x_k) / p_k:

    w    the weight                      wc   the capped weight (section 3.4, footnote)
    y    w r                             yc   wc r
    u    w (r - c), c a typical reward   z    w (r - r̂(x, a))
    b    r̂(x, ν)
    dr   b + w (r - r̂(x, a)), eq. (3.1)  drc  b + wc (r - r̂(x, a))

SNIPS is a ratio of means, whose standard error is a difference of their co-moments: about a typical reward c, not about
0, these do not cancel where rewards are far from 0.

Terms that an estimator combines stand in one group, whose covariances are gathered: among the terms of one policy, and
with those of every other policy and with the reward, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drstream.errors import DrstreamError, near
from drstream.types import Floats


@dataclass(frozen=True)
class Estimator:
    """value(means of the terms), and its gradient (the delta method's influence of each term)."""

    name: str
    terms: tuple[str, ...]
    weight: str | None  # the term that is its weight
    value: Callable[[Floats, float], float]  # of the means of the terms, and c
    gradient: Callable[[Floats], list[float]]

    def __reduce__(self) -> tuple[Callable[[str], Estimator], tuple[str]]:
        return named, (self.name,)  # pickled by its name

    @property
    def needs_model(self) -> bool:
        return bool({"b", "z", "dr", "drc"} & set(self.terms))

    @property
    def capped(self) -> bool:
        return self.weight == "wc"


def _mean(name: str, term: str, weight: str | None) -> Estimator:
    return Estimator(name, (term,), weight, lambda m, c: m[0], lambda m: [1.0])


ALL = {
    e.name: e
    for e in (
        _mean("dm", "b", None),
        _mean("ips", "y", "w"),
        Estimator("snips", ("w", "u"), "w", lambda m, c: c + m[1] / m[0], lambda m: [-m[1] / m[0] ** 2, 1 / m[0]]),
        _mean("dr", "dr", "w"),
        Estimator(
            "sndr",
            ("w", "b", "z"),
            "w",
            lambda m, c: m[1] + m[2] / m[0],
            lambda m: [-m[2] / m[0] ** 2, 1.0, 1 / m[0]],
        ),
        _mean("ips-capped", "yc", "wc"),
        _mean("dr-capped", "drc", "wc"),
    )
}


def named(name: str) -> Estimator:
    return ALL[name]


NO_PROPENSITIES = (
    "and the log has none: name their column with propensity= where you open it; or pass propensity=, here a model, "
    "e.g. drs.models.Propensity() with crossfit=5, or the logging policy itself, e.g. drs.policies.Uniform()"
)


def choose(
    names: Sequence[str] | str | None, *, with_model: bool, with_cap: bool, with_propensity: bool = True
) -> list[Estimator]:
    """The estimators asked for; by default, all that models and caps allow, but SNDR only on request."""
    if names is None:
        possible = [
            e
            for e in ALL.values()
            if e.name != "sndr"
            and (with_model or not e.needs_model)
            and (with_cap or not e.capped)
            and (with_propensity or not e.weight)
        ]
        if not possible:
            raise DrstreamError(f"estimators without a reward model need propensities, {NO_PROPENSITIES}")
        return possible
    chosen = []
    for name in dict.fromkeys([names] if isinstance(names, str) else names):
        key = str(name).lower()
        if key not in ALL:
            raise DrstreamError(f"there is no estimator {name!r}: {near(key, ALL)}")
        chosen.append(ALL[key])
        if ALL[key].needs_model and not with_model:
            raise DrstreamError(
                f"estimator {key!r} needs a reward model: pass model=, e.g. drs.models.Ridge().fit(other_events), "
                "or model=drs.models.Ridge() with crossfit=5"
            )
        if ALL[key].weight and not with_propensity:
            raise DrstreamError(f"estimator {key!r} needs propensities, {NO_PROPENSITIES}")
        if ALL[key].capped and not with_cap:
            raise DrstreamError(
                f"estimator {key!r} needs a limit: pass cap= (on weights), floor= (on propensities) or both"
            )
    if not chosen:
        raise DrstreamError("estimators= is empty: name at least one of " + ", ".join(ALL))
    return chosen
