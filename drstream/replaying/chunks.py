"""Events made ready for all lanes: contexts, random numbers, propensities, predictions, fixed probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import bad_prediction, fill_by_pieces
from drstream.kernels import replay as kernels
from drstream.kernels.checks import first_not_finite
from drstream.log import Block, Csr
from drstream.models.binding import Used
from drstream.models.calibration import Calibration
from drstream.policies.base import FixedPolicy
from drstream.types import Floats, Ints


@dataclass
class Chunk:
    """Events that were made ready for all lanes, with read-only arrays."""

    block: Block
    contexts: NDArray[Any] | Csr  # as `contexts_of` makes them; (n, 0) where no compiled policy looks at them
    rows: Ints
    uniforms: dict[int, Floats]  # by seed
    propensity: Floats
    predictions: Floats  # r̂, (n, K) or (n, 0)
    fixed: dict[str, Floats]  # probabilities (n, K) of fixed policies, by name
    calibration: Calibration  # of the predictions

    def __len__(self) -> int:
        return len(self.rows)

    def events(self, seed: int) -> kernels.Events:
        block = self.block
        columns: list[NDArray[Any]] = [block.action, block.reward, self.propensity, self.uniforms[seed]]
        columns += [self.rows, self.predictions]
        return kernels.Events(*map(read_only, columns))


def contexts_of(block: Block) -> NDArray[Any] | Csr:
    """For compiled policies: (n, d), float32 or float64, row after row; or sparse rows in which no index stands twice.

    An index that does counts twice, which a policy that squares its values would get wrong.
    """
    rows = block.sparse
    if rows is None:
        return block.by_row
    from drstream.kernels import sparse  # compiled only where contexts are

    if sparse.first_unsorted(rows.indptr, rows.indices) < 0:
        return rows
    size = int(rows.indptr[-1] - rows.indptr[0])
    starts, at, sums = np.empty(len(rows) + 1, np.int64), np.empty(size, np.int32), np.empty(size)
    sparse.add_up(rows.indptr, rows.indices, rows.values, np.zeros(rows.dim, np.int64), starts, at, sums)
    return Csr(starts, at, sums, rows.dim)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view; Numba tells tuples of writable arrays from those of read-only ones."""
    view = array.view()
    view.flags.writeable = False
    return view


def _predict(used: Used, block: Block, n_actions: int, calibration: Calibration) -> Floats:
    """r̂ (n, K), event by event."""
    assert used.model is not None
    out = np.empty((len(block), n_actions))
    used.model.fill_rows(block, out)
    used.hold(out, calibration)
    event, action = divmod(int(first_not_finite(out.reshape(-1))), n_actions)
    if event >= 0:
        raise bad_prediction(out[event, action], action, block.row(event))
    calibration.add(out[np.arange(len(block)), block.action], block.reward)
    return read_only(out)


def _probabilities(policy: FixedPolicy, block: Block, n_actions: int) -> Floats:
    """ν (n, K) of a fixed policy."""
    out = np.empty((len(block), n_actions))
    fill_by_pieces(policy, block, out)
    return read_only(out)
