"""Weighted means and products of (x, r) for groups of events, which are all that a linear regression needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drstream.types import Floats


class Gram:
    """Number of events, weight, means, and products about the means, for each group.

    Products about the means keep digits that products about 0 lose. Parts merge by the rule of Chan, Golub and LeVeque
    (1983), so only the order of the parts decides on every bit.
    """

    def __init__(self, groups: int, variables: int) -> None:
        self.count = np.zeros(groups, np.int64)
        self.weight = np.zeros(groups)
        self.mean = np.zeros((groups, variables))
        self.products = np.zeros((groups, variables, variables))

    def add(self, features: Floats, reward: Floats, group: NDArray[np.integer], weight: Floats | None = None) -> None:
        """Add events: features (d, n), rewards (n), the group of each event, and perhaps weights (n)."""
        groups = len(self.count)
        small = group.astype(np.int16) if groups < 2**15 else group  # NumPy sorts int16 in linear time
        order = np.argsort(small, kind="stable")
        bounds = np.searchsorted(small[order], np.arange(groups + 1))
        terms = np.empty((len(features) + 1, len(reward)))
        np.take(features, order, axis=1, out=terms[:-1], mode="clip")  # mode="raise" would copy `out`
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
        """Return the sums of products about 0 for group g."""
        return self.products[g] + self.weight[g] * np.outer(self.mean[g], self.mean[g])

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
        taken.mean, taken.products = self.mean[part], self.products[part]
        return taken
