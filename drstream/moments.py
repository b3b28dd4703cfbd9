"""A state of sums and co-moments: create, update, merge, and read means and co-moments. Kernels do the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drstream.kernels import moments as kernels
from drstream.types import Floats, Ints

State = NDArray[np.void]  # one record
Fields = tuple[Ints, Floats, Floats, Floats]  # its arrays


@dataclass(frozen=True)
class Layout:
    """The number of variables, and the groups of variables whose covariances are needed."""

    variables: int
    groups: tuple[tuple[int, ...], ...]

    @cached_property
    def members(self) -> Ints:
        return np.array([v for group in self.groups for v in group], dtype=np.int64)

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum([0, *map(len, self.groups)], dtype=np.int64)

    @cached_property
    def products(self) -> int:
        """Number of products of all groups."""
        return sum(len(group) ** 2 for group in self.groups)

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        return np.dtype(
            [
                ("count", "i8", (1,)),  # events
                ("sums", "f8", (self.variables,)),  # of each variable
                ("carries", "f8", (self.variables,)),  # rounding errors of `sums`
                ("comoments", "f8", (self.products,)),  # matrices of the groups, upper triangles
            ],
            align=True,
        )

    def create(self) -> State:
        return np.zeros(1, self.dtype)

    def update(self, state: State, terms: Floats) -> None:
        """Add events, the columns of terms (variables, events). This overwrites terms."""
        self.updater(state)(terms)

    def updater(self, state: State) -> Callable[[Floats], None]:
        """Return a function that does the same, and needs no time to find the fields of the state."""
        members, starts, fields = self.members, self.starts, fields_of(state)
        return lambda terms: kernels.update(terms, members, starts, *fields)

    def merge(self, state: State, other: State) -> State:
        """Add the second state to the first, in place."""
        self.merge_fields(fields_of(state), fields_of(other))
        return state

    def merge_fields(self, fields: Fields, others: Fields) -> None:
        kernels.merge(self.members, self.starts, *fields, *others)

    def count(self, state: State) -> int:
        return int(state["count"][0, 0])

    def means(self, state: State) -> Floats:
        n = self.count(state)
        return (state["sums"][0] + state["carries"][0]) / n if n else np.full(self.variables, np.nan)

    def comoment(self, state: State, group: Sequence[int]) -> Floats:
        """Return the symmetric matrix Σ (x - mean)(y - mean) over events, for the variables of a group."""
        g = self.groups.index(tuple(group))
        start = sum(len(other) ** 2 for other in self.groups[:g])
        size = len(group)
        upper = np.triu(state["comoments"][0, start : start + size * size].reshape(size, size))
        return upper + np.triu(upper, 1).T


def fields_of(state: State) -> Fields:
    """Return count, sums, carries and co-moments of a state, as arrays."""
    return state["count"][0], state["sums"][0], state["carries"][0], state["comoments"][0]
