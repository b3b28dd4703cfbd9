"""Scores of candidates by weights that all of them share: b + w_x . x + w_z . z + x' W z, without the pairs (x, z)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from drstream.buffers import Weights
from drstream.kernels import ragged, sparse
from drstream.log import Csr, Events
from drstream.log.kinds.candidates.pairs import Pairs, contexts_of
from drstream.types import Floats, Ints


@dataclass(frozen=True)
class SharedWeights:
    """Weights of contexts and of candidates, for each fold; one row of each without folds. It can be pickled.

    context  (folds, d): w_x. No columns if contexts do not count.
    items    (folds, m): w_z.
    products (folds, d, m): W, or None.
    intercept (folds)
    """

    context: Floats
    items: Floats
    products: Floats | None
    intercept: Floats

    @classmethod
    def of(cls, coef: Floats, intercept: float, pairs: Pairs) -> SharedWeights:
        """Return weights that are in the order of a row of pairs."""
        d, m = pairs.context, len(pairs.items)
        coef = np.ascontiguousarray(coef, np.float64).reshape(1, -1)
        products = coef[:, d + m :].reshape(1, d, m) if pairs.interactions else None
        return cls(coef[:, :d], coef[:, d : d + m], products, np.array([intercept], np.float64))

    @classmethod
    def folded(cls, each: Sequence[SharedWeights]) -> SharedWeights:
        """Return the weights of several folds as one."""
        products = [one.products for one in each if one.products is not None]
        return cls(
            np.concatenate([one.context for one in each]),
            np.concatenate([one.items for one in each]),
            np.concatenate(products) if products else None,
            np.concatenate([one.intercept for one in each]),
        )

    @property
    def uses_context(self) -> bool:
        return self.context.shape[1] > 0

    @cached_property
    def _by_context(self) -> Weights:
        """What contexts are multiplied with: for each fold w_x and, below it, W'."""
        parts = [self.context[:, None, :]]
        if self.products is not None:
            parts.append(self.products.swapaxes(1, 2))
        return Weights(np.concatenate(parts, axis=1).reshape(-1, self.context.shape[1]))

    @cached_property
    def _of_context(self) -> Weights:
        """w_x for each fold."""
        return Weights(self.context)

    def fill(self, block: Events, out: Floats, fold: Ints | None = None) -> None:
        """out (M) <- the scores of all candidates of a block. `fold` says which weights each event has."""
        offered = block.candidates
        assert offered.features is not None
        fold = np.zeros(len(block), np.int64) if fold is None else fold
        if isinstance(offered.features, Csr):
            self._fill_sparse(block, offered.features, fold, out)
            return
        by_event = self._of_contexts(block, fold) if self.uses_context else np.empty((len(block), 0))
        ragged.score(offered.starts, offered.features.flat, fold, by_event, self.items, self.intercept, out)

    def _fill_sparse(self, block: Events, rows: Csr, fold: Ints, out: Floats) -> None:
        """The same for candidates with sparse features."""
        starts, of_rows = block.candidates.starts, (rows.indptr, rows.indices, rows.values)
        by_event = np.empty((0, len(block)))
        if self.uses_context:
            by_event = np.empty((len(self.intercept), len(block)))
            self._of_context.fill(block, by_event)
        sparse.score(starts, *of_rows, fold, by_event, self.items, self.intercept, out)
        if self.products is not None:
            x = contexts_of(block)
            of_x = x.indptr, x.indices, x.values.astype(np.float64, copy=False)
            sparse.add_products(starts, *of_rows, *of_x, fold, self.products, out)

    def _of_contexts(self, block: Events, fold: Ints) -> Floats:
        """What contexts add to the intercept and, with products, to each weight of a candidate: (n, 1 + m)."""
        weights, folds = self._by_context, len(self.intercept)
        rows = len(weights.matrix) // folds
        if block.sparse is not None:
            found = np.empty((folds * rows, len(block)))
            weights.fill(block, found)
            return np.ascontiguousarray(found.reshape(folds, rows, -1)[fold, :, np.arange(len(block))])
        out = np.empty((len(block), rows))
        ragged.weigh(fold, block.features, weights.matrix, out)
        return out
