"""What the first rewards of a log are like. Sums of rewards that lie far from 0 are made about a pivot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drstream.log.facts import SourceFacts
from drstream.log.kinds.rankings.reading import totals
from drstream.log.schema import Roles

FAR = 1e5  # in standard deviations: so far from 0, sums of squares about 0 lose ten of sixteen digits


@dataclass(frozen=True)
class FirstRewards:
    """The first finite rewards: their mean, 0 if there are none, and whether they are all the same."""

    typical: float
    same: bool
    far: bool  # whether they lie far from 0, compared with their spread


def first_rewards(facts: SourceFacts, roles: Roles) -> FirstRewards:
    return facts.of(("rewards", roles.reward, roles.negated), lambda: _find(facts, roles))


def _find(facts: SourceFacts, roles: Roles) -> FirstRewards:
    batch = facts.first([roles.reward])
    first = np.empty(0) if batch is None else totals(batch.column(0))
    first = first[np.isfinite(first)]
    if not len(first):
        return FirstRewards(0.0, same=True, far=False)
    mean, spread = float(first.mean()), float(first.std())
    return FirstRewards(-mean if roles.negated else mean, not spread, abs(mean) > FAR * spread)
