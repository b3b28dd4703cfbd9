"""Records of sums and co-moments: create, update, merge, and read means and co-moments. Kernels do the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from drstream.kernels import account
from drstream.kernels import moments as kernels
from drstream.types import Floats, Ints

FIRST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Layout:
    """The form of a record. `kernels/moments.py` and `kernels/account.py` say what is in it.

    groups   Groups of variables whose covariances are needed.
    weights  Number of variables that are weights, about which more is known.
    """

    variables: int
    groups: tuple[tuple[int, ...], ...]
    weights: int = 0

    @cached_property
    def members(self) -> Ints:
        return np.array([v for group in self.groups for v in group], dtype=np.int64)

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum([0, *map(len, self.groups)], dtype=np.int64)

    @cached_property
    def _facts(self) -> int:
        """Where what is known about weights begins."""
        return 1 + 2 * self.variables + sum(len(group) ** 2 for group in self.groups)

    @cached_property
    def width(self) -> int:
        """Number of fields."""
        return self._facts + account.FACTS * self.weights

    def create(self) -> Floats:
        return np.zeros(self.width)

    def update(self, record: Floats, terms: Floats) -> None:
        """Add events, the columns of terms (variables, events)."""
        kernels.update(terms, self.members, self.starts, record)

    def merge(self, records: Floats, others: Floats, place: Ints = FIRST) -> None:
        """Add records of other events to those at these places."""
        mine, others = records.reshape(-1, self.width), others.reshape(-1, self.width)
        account.merge_moments(self.weights, place, self.members, self.starts, mine, others, np.empty(self.variables))

    def count(self, record: Floats) -> int:
        return int(record[0])

    def sums(self, records: Floats) -> Floats:
        """The sums of the variables, of one record or of several."""
        v = self.variables
        return records[..., 1 : 1 + v] + records[..., 1 + v : 1 + 2 * v]

    def means(self, record: Floats) -> Floats:
        return self.sums(record) / record[0] if record[0] else np.full(self.variables, np.nan)

    def comoment(self, records: Floats, group: Sequence[int]) -> Any:
        """The symmetric matrices Σ (x - mean)(y - mean) over events, for the variables of a group."""
        g, size = self.groups.index(tuple(group)), len(group)
        start = 1 + 2 * self.variables + sum(len(other) ** 2 for other in self.groups[:g])
        upper = np.triu(records[..., start : start + size * size].reshape(*records.shape[:-1], size, size))
        return upper + np.triu(upper, 1).swapaxes(-1, -2)

    def facts(self, record: Floats) -> Floats:
        """What is known about the weights (weights, fields)."""
        return record[self._facts :].reshape(self.weights, account.FACTS)
