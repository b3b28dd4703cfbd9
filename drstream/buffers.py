"""Fill and check a block's (K, n) buffers: products with weights, a user's function, probabilities, predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import DrstreamError, ModelError, PolicyError
from drstream.kernels import sparse
from drstream.kernels.checks import first_not_finite
from drstream.kernels.scores import affine_rows
from drstream.log import Block, Csr
from drstream.types import Floats

PIECE = 2048  # events to fill in at a time, so that it stays in cache


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
        out = np.empty((len(rows), len(self.matrix)))
        sparse.affine(self.by_feature, intercept, rows.indptr, rows.indices, rows.values, out)
        return out

    def of(self, X: Any) -> Floats:
        """(n, K), for contexts (n, d) as a user has them: an array, or a sparse one of SciPy's."""
        if hasattr(X, "tocsr"):
            return np.asarray(X @ self.matrix.T)
        return np.asarray(X, dtype=np.float64) @ self.matrix.T


# A user's functions


def fill_from(
    function: Callable[[NDArray[Any]], Any], who: str, error: type[DrstreamError], block: Block, out: Floats
) -> None:
    """Ask a user's function for (n, K) and store it as (K, n)."""
    try:
        values = np.asarray(function(block.matrix))
    except Exception as problem:
        problem.add_note(f"raised by {who} for {len(block)} events from {block.where(0)} on")
        raise
    check_shape(values, (len(block), len(out)), who, error)
    out[:] = values.T


def check_shape(
    values: NDArray[Any], wanted: tuple[int, int], who: str, error: type[DrstreamError], where: str = ""
) -> None:
    """An error unless an array of the user's is numbers of shape (events, actions)."""
    if values.shape != wanted:
        raise error(
            f"{who} returned an array of shape {values.shape} for {wanted[0]} events and {wanted[1]} actions{where}: "
            f"it must be {wanted}"
        )
    if values.dtype.kind not in "fiub":
        raise error(f"{who} returned {values.dtype}{where}, where numbers are needed")


def fill_by_pieces(who: Any, block: Block, out: Floats) -> None:
    """Store what a policy or a model fills in as (n, K)."""
    for piece in block.pieces(PIECE):
        values = np.empty((out.shape[1], len(piece)))
        who.fill(piece, values)
        start = piece.start - block.start
        out[start : start + len(piece)] = values.T


# Checks of what was filled in


def invalid_probabilities(who: str, pi: Floats, where: str) -> PolicyError:
    """What is wrong with the probabilities of one event."""
    what = f"a probability of {pi.min():g}" if pi.min() < 0 else f"probabilities that sum to {pi.sum():.9g}, not 1,"
    what = "NaN among its probabilities" if np.isnan(pi).any() else what
    values = ", ".join(f"{p:.6g}" for p in pi[:6]) + (", ..." if len(pi) > 6 else "")
    return PolicyError(f"{who} gives {what} at {where}: [{values}]. They must be at least 0 and sum to 1")


def check_predictions(rhat: Floats, block: Block, *, by_event: bool = False) -> None:
    """An error unless all predictions, (K, n) or by event (n, K), are finite."""
    first_bad = int(first_not_finite(rhat.reshape(-1)))
    if first_bad >= 0:
        raise invalid_prediction(first_bad, rhat, block, by_event=by_event)


def invalid_prediction(place: int, rhat: Floats, block: Block, *, by_event: bool = False) -> ModelError:
    """What is wrong with the prediction at this place of the array, which is not finite."""
    row, column = divmod(place, rhat.shape[1])
    action, event = (column, row) if by_event else (row, column)
    return ModelError(f"the reward model predicts {rhat[row, column]} for action {action} at {block.where(event)}")
