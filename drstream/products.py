"""Products of weights with contexts, whatever form these have."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.kernels.scores import affine_rows
from drstream.log import Block, Csr

Floats = NDArray[np.float64]


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
