"""Fill and check a block's (K, n) buffers: products with weights, a user's function, probabilities, predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import ModelError, PolicyError
from drstream.kernels.scores import affine_rows
from drstream.log import Block, Csr
from drstream.types import Floats


def bad_prediction(value: float, action: int, where: str) -> ModelError:
    return ModelError(f"the reward model predicts {value} for action {action} at {where}")


class Weights:
    """A matrix (K, d) to multiply contexts with."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float64)

    def __reduce__(self) -> tuple[type[Weights], tuple[Floats]]:
        return Weights, (self.matrix,)

    @cached_property
    def by_feature(self) -> Floats:
        """(d, K), for sparse rows."""
        return np.ascontiguousarray(self.matrix.T)

    def fill(self, block: Block, out: Floats) -> None:
        """out (K, n) <- matrix @ x."""
        rows = block.sparse
        if rows is None:
            np.matmul(self.matrix, block.features, out=out)
        else:
            out[:] = self._of_sparse(rows, np.zeros(len(self.matrix))).T

    def fill_rows(self, block: Block, intercept: Floats, out: Floats) -> None:
        """out (n, K) <- x @ matrix.T + intercept."""
        rows = block.sparse
        if rows is None:
            affine_rows(self.matrix, intercept, block.by_row, out)
        else:
            out[:] = self._of_sparse(rows, intercept)

    def _of_sparse(self, rows: Csr, intercept: Floats) -> Floats:
        from drstream.kernels import sparse  # compiled only where contexts are

        out = np.empty((len(rows), len(self.matrix)))
        sparse.affine(self.by_feature, intercept, rows.indptr, rows.indices, rows.values, out)
        return out

    def of(self, X: Any) -> Floats:
        """(n, K), for contexts (n, d) as a user has them: an array, or a sparse one of SciPy's."""
        if hasattr(X, "tocsr"):
            return np.asarray(X @ self.matrix.T)
        return np.asarray(X, dtype=np.float64) @ self.matrix.T


PIECE = 2048  # events to fill in at a time, so that it stays in cache


def fill_from(
    function: Callable[[NDArray[Any]], NDArray[Any]], who: str, error: type[Exception], block: Block, out: Floats
) -> None:
    """Ask a user's function for (n, K) and store it as (K, n)."""
    try:
        values = np.asarray(function(block.matrix))
    except Exception as problem:
        problem.add_note(f"raised by {who} for {len(block)} events from {block.row(0)} on")
        raise
    wanted = (len(block), len(out))
    if values.shape != wanted:
        raise error(
            f"{who} returned an array of shape {values.shape} for {len(block)} events and {len(out)} actions: "
            f"it must be {wanted}"
        )
    if values.dtype.kind not in "fiub":
        raise error(f"{who} returned {values.dtype} where numbers are needed")
    out[:] = values.T


def refuse(first_bad: int, who: str, pi: Floats, sums: Floats, block: Block) -> None:
    """An error about the first event whose probabilities are none, if there is one (>= 0)."""
    if first_bad >= 0:
        low, total = pi[:, first_bad].min(), sums[first_bad]
        what = f"a probability of {low:g}" if low < 0 else f"probabilities that sum to {total:.9g}, not 1,"
        what = "NaN among its probabilities" if np.isnan(total) else what
        raise PolicyError(f"{who} gives {what} at {block.row(first_bad)}")


def fill_by_pieces(who: Any, block: Block, out: Floats) -> None:
    """What a policy or a model fills in, event by event: (n, K)."""
    for piece in block.pieces(PIECE):
        values = np.empty((out.shape[1], len(piece)))
        who.fill(piece, values)
        start = piece.start - block.start
        out[start : start + len(piece)] = values.T
