"""What the pass of an audit gathers: states that merge, part by part, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.auditing.columns import ColumnSums
from drstream.auditing.copies import IDS_KEPT, ROWS_KEPT, Copies, Repeats
from drstream.auditing.eligible import Eligible
from drstream.auditing.merging import Merging, joined_by
from drstream.auditing.shift import LagSums
from drstream.auditing.times import Times
from drstream.kernels import audit as kernels
from drstream.sources.base import Place
from drstream.types import Bools, Floats, Ints

DISTINCT = 10_000  # different propensities that are counted exactly


@dataclass(frozen=True)
class Spot:
    """Where a value is stored."""

    place: Place
    row: int  # number in the log
    value: Any

    def __str__(self) -> str:
        return self.place.of_row(self.row)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON. The row is counted in the log."""
        value = self.value if isinstance(self.value, int | float | str | bool | None) else str(self.value)
        where = {"file": self.place.name or None, "row_group": self.place.row_group, "row": self.row}
        return {**where, "value": value}


@dataclass
class Bad:
    """Rows that cannot be used for one reason."""

    count: int
    first: Spot


@dataclass
class Inverses(Merging):
    """Sums of 1{a}/p by action."""

    counts: Ints
    sums: Floats
    squares: Floats
    least: Floats = field(metadata=joined_by(np.minimum))
    largest: Floats = field(metadata=joined_by(np.maximum))

    @classmethod
    def create(cls, actions: int) -> Inverses:
        none = np.zeros(actions)
        return cls(np.zeros(actions, np.int64), none, none.copy(), np.full(actions, np.inf), none.copy())

    def add(self, action: NDArray[np.int32], propensity: Floats) -> None:
        kernels.add_inverses(action, propensity, self.counts, self.sums, self.squares, self.least, self.largest)


@dataclass
class Offers(Merging):
    """Sums over events with candidates of their own, m each: how many have a choice, and (1/m) / p, whose mean is 1."""

    choices: int = 0  # events with more than one candidate
    inverse: float = 0.0
    squares: float = 0.0
    largest: float = field(default=0.0, metadata=joined_by(max))

    def add(self, sizes: Ints, propensity: Floats) -> None:
        self.choices += int((sizes > 1).sum())
        if len(propensity):
            with np.errstate(over="ignore"):
                found = 1 / (sizes * propensity)
                self.merge(Offers(0, float(found.sum()), float((found * found).sum()), float(found.max())))


@dataclass
class Guessed(Merging):
    """How often the action was the guessed one (see `guess.py`), and sums of 1/p over these events."""

    rows: int = 0
    hits: int = 0
    inverse: float = 0.0
    squares: float = 0.0

    def add(self, hit: Bools, propensity: Floats) -> None:
        with np.errstate(over="ignore"):
            inverse = 1 / propensity[hit]
            self.merge(Guessed(len(hit), len(inverse), float(inverse.sum()), float((inverse * inverse).sum())))


@dataclass
class Propensities:
    """Values of the propensities, whatever the action."""

    counts: Ints = field(default_factory=lambda: np.zeros(3, np.int64))  # that are 1; of two digits; of three digits
    excess: Floats = field(default_factory=lambda: np.zeros(2))  # sums of h and h² (see the kernel)
    distinct: NDArray[np.uint64] | None = field(default_factory=lambda: np.empty(0, np.uint64))  # None: too many
    smallest: Spot | None = None

    def add(self, propensity: Floats, place: Place, rows: Ints) -> None:
        i = kernels.add_propensities(propensity, self.counts, self.excess)
        self._keep(Spot(place, int(rows[i]), float(propensity[i])))
        if self.distinct is not None:
            self._count(np.ascontiguousarray(propensity).view(np.uint64))

    def merge(self, other: Propensities) -> None:
        self.counts += other.counts
        self.excess += other.excess
        self._keep(other.smallest)
        if other.distinct is None:
            self.distinct = None
        elif self.distinct is not None:
            self._count(other.distinct)

    def _count(self, bits: NDArray[np.uint64]) -> None:
        found = np.union1d(self.distinct, bits)  # type: ignore[arg-type]
        self.distinct = None if len(found) > DISTINCT else found

    def _keep(self, spot: Spot | None) -> None:
        if spot is not None and (self.smallest is None or spot.value < self.smallest.value):
            self.smallest = spot


@dataclass
class Rewards(Merging):
    """The range and the sum of the rewards, less the log's typical one."""

    low: float = field(default=np.inf, metadata=joined_by(min))
    high: float = field(default=-np.inf, metadata=joined_by(max))
    total: float = 0.0
    squares: float = 0.0

    def add(self, reward: Floats) -> None:
        total, squares = float(reward.sum()), float(reward @ reward)
        self.merge(Rewards(float(reward.min()), float(reward.max()), total, squares))


def both(bad: dict[str, Bad], later: dict[str, Bad]) -> dict[str, Bad]:
    """Return bad rows and later ones together, by reason."""
    again = {r: Bad(bad[r].count + later[r].count, bad[r].first) for r in later if r in bad}
    return {**bad, **later, **again}


def merged(ids: dict[str, Copies], later: dict[str, Copies]) -> dict[str, Copies]:
    for name, more in later.items():
        ids.setdefault(name, Copies(more.most)).merge(more)
    return ids


@dataclass
class Tally(Merging):
    """All that is gathered."""

    inverses: Inverses
    columns: ColumnSums
    lags: LagSums | None  # None if there is nothing to compare rewards with
    eligible: Eligible | None = None  # in a log with eligible sets
    guessed: Guessed = field(default_factory=Guessed)
    offers: Offers = field(default_factory=Offers)  # of a log of candidates
    rows: int = 0
    good: int = 0  # rows without a bad value
    bad: dict[str, Bad] = field(default_factory=dict, metadata=joined_by(both))  # by reason
    propensities: Propensities = field(default_factory=Propensities)
    rewards: Rewards = field(default_factory=Rewards)
    copies: Copies = field(default_factory=lambda: Copies(ROWS_KEPT))
    ids: Copies = field(default_factory=lambda: Copies(IDS_KEPT))
    ids_missing: int = 0
    users: dict[str, Copies] = field(default_factory=dict, metadata=joined_by(merged))  # ids in columns without a role
    repeats: Repeats = field(default_factory=Repeats)
    times: Times = field(default_factory=Times)

    def count_bad(self, reason: str, count: int, first: Spot) -> None:
        self.bad = both(self.bad, {reason: Bad(count, first)})
