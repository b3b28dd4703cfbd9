"""What the pass of an audit gathers: states that merge, part by part, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.auditing.copies import IDS_KEPT, ROWS_KEPT, Copies
from drstream.auditing.eligible import Eligible
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
class Inverses:
    """Sums of 1{a}/p by action."""

    counts: Ints
    sums: Floats
    squares: Floats
    largest: Floats

    @classmethod
    def create(cls, actions: int) -> Inverses:
        return cls(np.zeros(actions, np.int64), np.zeros(actions), np.zeros(actions), np.zeros(actions))

    def add(self, action: NDArray[np.int32], propensity: Floats) -> None:
        kernels.add_inverses(action, propensity, self.counts, self.sums, self.squares, self.largest)

    def merge(self, other: Inverses) -> None:
        self.counts += other.counts
        self.sums += other.sums
        self.squares += other.squares
        np.maximum(self.largest, other.largest, out=self.largest)


@dataclass
class Offers:
    """Sums over events with candidates of their own, m each: how many have a choice, and (1/m) / p, whose mean is 1."""

    choices: int = 0  # events with more than one candidate
    inverse: float = 0.0
    squares: float = 0.0
    largest: float = 0.0

    def add(self, sizes: Ints, propensity: Floats) -> None:
        self.choices += int((sizes > 1).sum())
        if len(propensity):
            with np.errstate(over="ignore"):
                found = 1 / (sizes * propensity)
                self.merge(Offers(0, float(found.sum()), float((found * found).sum()), float(found.max())))

    def merge(self, other: Offers) -> None:
        self.choices += other.choices
        self.inverse += other.inverse
        self.squares += other.squares
        self.largest = max(self.largest, other.largest)


@dataclass
class Guessed:
    """How often the action was the guessed one (see `guess.py`), and sums of 1/p over these events."""

    rows: int = 0
    hits: int = 0
    inverse: float = 0.0
    squares: float = 0.0

    def add(self, hit: Bools, propensity: Floats) -> None:
        with np.errstate(over="ignore"):
            inverse = 1 / propensity[hit]
            self.merge(Guessed(len(hit), len(inverse), float(inverse.sum()), float((inverse * inverse).sum())))

    def merge(self, other: Guessed) -> None:
        self.rows += other.rows
        self.hits += other.hits
        self.inverse += other.inverse
        self.squares += other.squares


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
class Rewards:
    """The range of the rewards, less the log's typical one."""

    low: float = np.inf
    high: float = -np.inf

    def add(self, reward: Floats) -> None:
        self.low, self.high = min(self.low, float(reward.min())), max(self.high, float(reward.max()))

    def merge(self, other: Rewards) -> None:
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass
class Tally:
    """All that is gathered."""

    inverses: Inverses
    eligible: Eligible | None = None  # in a log with eligible sets
    guessed: Guessed = field(default_factory=Guessed)
    offers: Offers = field(default_factory=Offers)  # of a log of candidates
    rows: int = 0
    good: int = 0  # rows without a bad value
    bad: dict[str, Bad] = field(default_factory=dict)  # by reason
    propensities: Propensities = field(default_factory=Propensities)
    rewards: Rewards = field(default_factory=Rewards)
    copies: Copies = field(default_factory=lambda: Copies(ROWS_KEPT))
    ids: Copies = field(default_factory=lambda: Copies(IDS_KEPT))
    ids_missing: int = 0
    times: Times = field(default_factory=Times)

    def count_bad(self, reason: str, count: int, first: Spot) -> None:
        if reason in self.bad:
            self.bad[reason].count += count
        else:
            self.bad[reason] = Bad(count, first)

    def merge(self, other: Tally) -> None:
        """Add the rows that come after these."""
        self.rows += other.rows
        self.good += other.good
        for reason, bad in other.bad.items():
            self.count_bad(reason, bad.count, bad.first)
        self.inverses.merge(other.inverses)
        if self.eligible is not None and other.eligible is not None:
            self.eligible.merge(other.eligible)
        self.guessed.merge(other.guessed)
        self.offers.merge(other.offers)
        self.propensities.merge(other.propensities)
        self.rewards.merge(other.rewards)
        self.copies.merge(other.copies)
        self.ids.merge(other.ids)
        self.ids_missing += other.ids_missing
        self.times.merge(other.times)
