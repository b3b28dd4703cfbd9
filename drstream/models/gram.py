"""Weighted means and products of (x, r) for groups of events, which are all that a linear regression needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.kernels import grams, order
from drstream.types import Floats

NONE = np.empty(0)


class Gram:
    """Number of events, weight, means, and products about the means, for each group.

    Products about the means keep digits that products about 0 lose. Parts merge by the rule of Chan, Golub and LeVeque
    (1983), so only the order of the parts decides on every bit.
    """

    def __init__(self, groups: int, variables: int) -> None:
        self.count = np.zeros(groups, np.int64)
        self.weight = np.zeros(groups)
        self.mean = np.zeros((groups, variables))
        self._products = np.zeros((groups, variables * variables))  # upper triangles
        self._space = NONE  # for events in the order of their groups: fresh memory each time would cost 10 ns per event

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_space": NONE}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it holds, by names of arrays in a state."""
        return {
            "count.ints": self.count,
            "weight.floats": self.weight,
            "mean.floats": self.mean,
            "products.floats": self._products,
        }

    def add(self, features: Floats, reward: Floats, group: NDArray[np.integer], weight: Floats | None = None) -> None:
        """Add events: features (d, n), rewards (n), the group of each event, and perhaps weights (n)."""
        starts = np.empty(len(self.count) + 1, np.int64)
        places = np.empty(len(reward), np.int64)
        order.sort_by_group(group, starts, places)
        size = (len(features) + 1) * len(reward)
        if len(self._space) < size:
            self._space = np.empty(size)
        terms = self._space[:size].reshape(-1, len(reward))
        order.gather_columns(features, places, terms)
        order.gather(reward, places, terms[-1])
        weight = NONE if weight is None else weight[places]
        self.count += np.diff(starts)
        grams.add_groups(terms, weight, np.sqrt(weight), starts, self.weight, self.mean, self._products)

    def merge(self, other: Gram) -> None:
        self.count += other.count
        grams.merge_groups(other.weight, other.mean, other._products, self.weight, self.mean, self._products)

    def products(self, g: int) -> Floats:
        """Return the products about the means for group g."""
        variables = self.mean.shape[1]
        upper = np.triu(self._products[g].reshape(variables, variables))
        return upper + np.triu(upper, 1).T

    def about_zero(self, g: int) -> Floats:
        """Return the sums of products about 0 for group g."""
        return self.products(g) + self.weight[g] * np.outer(self.mean[g], self.mean[g])

    def of_all_but(self, fold: int, folds: int) -> Gram:
        """Return one group for each action, over all folds but this one. Groups here are (fold, action)."""
        actions = len(self.count) // folds
        out = Gram(actions, self.mean.shape[1])
        for other in range(folds):
            if other != fold:
                out.merge(self.of_fold(other, actions))
        return out

    def of_fold(self, fold: int, actions: int) -> Gram:
        """Return the groups of one fold, without a copy. Groups here are (fold, action)."""
        part = slice(fold * actions, (fold + 1) * actions)
        taken = object.__new__(Gram)
        taken.count, taken.weight = self.count[part], self.weight[part]
        taken.mean, taken._products = self.mean[part], self._products[part]
        return taken
