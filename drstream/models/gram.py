"""Weighted means and products of (x, r) for groups of events: all that a linear regression needs to know of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drstream.types import Floats


class Gram:
    """For each group: events, weight, means, and products about the means, which keep digits that those about 0 lose.

    Parts merge as Chan, Golub and LeVeque (1983) have it, so the order of the parts alone decides on every bit.
    """

    def __init__(self, groups: int, variables: int) -> None:
        self.count = np.zeros(groups, np.int64)
        self.weight = np.zeros(groups)
        self.mean = np.zeros((groups, variables))
        self.products = np.zeros((groups, variables, variables))

    def add(self, features: Floats, reward: Floats, group: NDArray[np.integer], weight: Floats | None = None) -> None:
        """Events: features (d, n), reward (n), the group of each, and perhaps weights."""
        groups = len(self.count)
        small = group.astype(np.int16) if groups < 2**15 else group  # sorted in linear time
        order = np.argsort(small, kind="stable")
        bounds = np.searchsorted(small[order], np.arange(groups + 1))
        terms = np.empty((len(features) + 1, len(reward)))
        np.take(features, order, axis=1, out=terms[:-1], mode="clip")  # "raise" would make a copy of `out`
        np.take(reward, order, out=terms[-1], mode="clip")
        weight = None if weight is None else weight[order]
        for g in np.flatnonzero(np.diff(bounds)).tolist():
            rows = slice(bounds[g], bounds[g + 1])
            self._add_group(g, terms[:, rows], None if weight is None else weight[rows])

    def _add_group(self, g: int, terms: Floats, weight: Floats | None) -> None:
        n = terms.shape[1]
        total = float(n) if weight is None else float(weight.sum())
        self.count[g] += n
        if total == 0:
            return
        mean = terms.mean(axis=1) if weight is None else terms @ weight / total
        terms -= mean[:, None]
        if weight is not None:
            terms *= np.sqrt(weight)
        self._merge(g, total, mean, terms @ terms.T)

    def _merge(self, g: int, weight: float, mean: Floats, products: Floats) -> None:
        both = self.weight[g] + weight
        shift = mean - self.mean[g]
        self.products[g] += products
        self.products[g] += (self.weight[g] * weight / both) * np.outer(shift, shift)
        self.mean[g] += shift * (weight / both)
        self.weight[g] = both

    def merge(self, other: Gram) -> None:
        self.count += other.count
        for g in np.flatnonzero(other.weight).tolist():
            self._merge(g, other.weight[g], other.mean[g], other.products[g])

    def about_zero(self, g: int) -> Floats:
        """Sums of products as they are, not about the means."""
        return self.products[g] + self.weight[g] * np.outer(self.mean[g], self.mean[g])

    def of_all_but(self, fold: int, folds: int) -> Gram:
        """Groups are (fold, action): the actions' groups over all other folds."""
        actions = len(self.count) // folds
        out = Gram(actions, self.mean.shape[1])
        for other in range(folds):
            if other != fold:
                part = slice(other * actions, (other + 1) * actions)
                taken = object.__new__(Gram)
                taken.count, taken.weight = self.count[part], self.weight[part]
                taken.mean, taken.products = self.mean[part], self.products[part]
                out.merge(taken)
        return out
