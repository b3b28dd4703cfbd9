"""Pairs of a context and a candidate, as one row of numbers: what a model with shared weights is fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.log.events import Context, Events
from drstream.log.kinds.candidates.columns import Numbered
from drstream.log.kinds.candidates.reading import NOT_OFFERED
from drstream.log.sparse import Csr


@dataclass(frozen=True)
class Pairs:
    """How contexts x (d) and the features z (m) of candidates become rows [x, z], perhaps with all products x_i z_j.

    Rows are sparse if either is.
    """

    context: int
    items: Sequence[str]  # names of the features of candidates: a tuple or, if they are sparse, `Numbered`
    interactions: bool = False

    @property
    def width(self) -> int:
        """Number of features of a row."""
        d, m = self.context, len(self.items)
        return d + m + (d * m if self.interactions else 0)

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse even where contexts are dense."""
        return isinstance(self.items, Numbered)

    def rows(self, X: NDArray[Any], Z: NDArray[Any]) -> NDArray[Any]:
        """Return a row for each context (n, d) and candidate (n, m)."""
        n, d = X.shape
        kind = np.result_type(X, Z) if d else Z.dtype
        out = np.empty((n, self.width), np.float64 if self.interactions else kind)  # float32 would round products
        out[:, :d] = X
        out[:, d : d + Z.shape[1]] = Z
        if self.interactions:
            products = out[:, d + Z.shape[1] :].reshape(n, d, -1)
            np.multiply(X[:, :, None], Z[:, None, :], out=products, dtype=np.float64)
        return out

    def logged(self, events: Events) -> Events:
        """Return the events of a batch with the logged pair as their context, and one action for all."""
        offered, position = events.candidates, events.action
        events = replace(events, action=np.zeros(len(events), np.int32), candidates=NOT_OFFERED)
        if offered.features is None:
            return events
        chosen = offered.features.take(offered.starts[:-1] + position)
        context: Context
        if isinstance(chosen, Csr) or events.sparse is not None:
            context = contexts_of(events).beside(chosen if isinstance(chosen, Csr) else Csr.of(chosen.matrix))
        else:
            context = self.rows(events.matrix, chosen.matrix)
            context.flags.writeable = False
        return replace(events, context=context, n_features=self.width)

    def all(self, block: Events, first: int, last: int) -> Any:
        """Return the rows of a block's candidates first..last-1: an array, or a sparse array of SciPy."""
        offered = block.candidates
        assert offered.features is not None
        event = np.searchsorted(offered.starts, np.arange(first, last), side="right") - 1
        features = offered.features[first:last]
        if isinstance(features, Csr) or block.sparse is not None:
            items = features if isinstance(features, Csr) else Csr.of(features.matrix)
            return contexts_of(block).take(event).beside(items).array()
        return self.rows(block.matrix[event], features.matrix)

    def names(self, context: Sequence[str]) -> list[str]:
        """Return the names of the features of a row."""
        products = [f"{x} * {z}" for x in context for z in self.items] if self.interactions else []
        return [*context, *self.items, *products]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        names = [self.items.column, self.items.dim] if isinstance(self.items, Numbered) else list(self.items)
        return {"context": self.context, "items": names, "interactions": self.interactions, "sparse": self.sparse}

    @classmethod
    def from_dict(cls, found: dict[str, Any] | None) -> Pairs | None:
        if found is None:
            return None
        items = Numbered(*found["items"]) if found.get("sparse") else tuple(found["items"])
        return cls(int(found["context"]), items, bool(found["interactions"]))


def contexts_of(block: Events) -> Csr:
    """Return the contexts of a block as sparse rows."""
    rows = block.sparse
    return Csr.of(block.matrix) if rows is None else rows
