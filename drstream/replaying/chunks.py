"""Prepares events for all lanes: contexts, random numbers, propensities, predictions, sets, fixed probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import sampling
from drstream.buffers import check_predictions, fill_by_pieces, read_only
from drstream.errors import ModelError
from drstream.kernels import replay as kernels
from drstream.kernels import sparse, tiles
from drstream.kernels.tiles import TILE
from drstream.log import Coded, Csr, Events, Reader
from drstream.models.base import RewardModel
from drstream.models.binding import BoundModels
from drstream.models.calibration import Calibration
from drstream.policies.base import FixedPolicy
from drstream.types import Floats, Ints

SPARSE_FEATURES = 100  # assumed number of nonzero features in a sparse context, for the size of chunks


class Spaces:
    """Arrays for chunks, used again and again: new memory for each would take 50 ns an event. Threads may share it."""

    def __init__(self) -> None:
        self._free: dict[tuple[Any, ...], list[NDArray[Any]]] = {}

    def take(self, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        """Return an array of this shape. It is a part of a longer one, if there is one."""
        try:
            found = self._free[shape[1:], np.dtype(kind)].pop()
        except (KeyError, IndexError):
            return np.empty(shape, kind)[:]
        return found[: shape[0]] if len(found) >= shape[0] else np.empty(shape, kind)[:]  # short ones are given up

    def give(self, view: NDArray[Any]) -> None:
        """Take back an array, by a view of it."""
        whole = view.base
        if isinstance(whole, np.ndarray) and whole.size and whole.ndim == view.ndim:
            self._free.setdefault((whole.shape[1:], whole.dtype), []).append(whole)


@dataclass
class Chunk:
    """Events that are prepared for all lanes, in read-only arrays."""

    block: Events
    rows: Ints
    action: NDArray[np.int32]
    reward: Floats
    contexts: NDArray[Any] | Csr  # from `contexts_of`, without features if no compiled policy uses them
    uniforms: dict[int, Floats]  # by seed
    propensity: Floats
    predictions: Floats  # r̂ in tiles of K actions, or of none; 0 for actions that are not eligible
    totals: Floats  # sums of r̂ over all actions
    gaps: Floats  # r - r̂ of the logged actions
    eligible: NDArray[np.uint8]  # 1 for eligible actions, in tiles of K actions; of none in a log without eligible sets
    sizes: Ints  # numbers of eligible actions; none in a log without eligible sets
    fixed: dict[str, Floats]  # probabilities (n, K) of fixed policies, by name
    calibration: Calibration  # of the predictions

    spaces: Spaces  # where its largest arrays come from

    def release(self) -> None:
        """Give the space of contexts and predictions to another chunk. This one must not be used any more."""
        if not isinstance(self.contexts, Csr):
            self.spaces.give(self.contexts)
        for array in (self.predictions, self.totals, self.gaps, self.eligible):
            self.spaces.give(array)

    @property
    def predicted(self) -> Floats:
        """Predictions (n, K), or (n, 0): NaN for actions that are not eligible, and in places without an event."""
        found = by_event(self.predictions)
        if self.eligible.size and found.size:
            found = np.where(by_event(self.eligible) != 0, found, np.nan)
        return found

    def events(self, seed: int) -> kernels.ReplayEvents:
        columns: list[NDArray[Any]] = [self.action, self.reward, self.propensity, self.uniforms[seed]]
        columns += [self.rows, self.predictions, self.totals, self.gaps, self.eligible, self.sizes]
        return kernels.ReplayEvents(*map(read_only, columns))


@dataclass(frozen=True)
class Preparation:
    """Makes chunks of what lanes need to know about events. It can be pickled if models and policies can."""

    models: BoundModels
    fixed: dict[str, FixedPolicy]
    seeds: frozenset[int]
    n_actions: int
    n_features: int
    sparse: bool
    for_compiled: bool  # some compiled policy uses contexts
    for_python: bool  # some policy is Python code
    typical_reward: float
    single: bool  # whether linear models multiply contexts in float32
    sets: bool  # whether events have eligible sets
    unchecked: Reader | None  # that has not looked for contexts that are not finite: predictions show them

    @property
    def event_bytes(self) -> int:
        """Memory for a prepared event. For sparse contexts, the number of nonzero features is a guess."""
        features = 12 * min(self.n_features, SPARSE_FEATURES) if self.sparse else 8 * self.n_features
        matrices = (self.models.model is not None) + len(self.fixed)
        return 80 + 8 * len(self.seeds) + features + (8 * matrices + self.sets) * self.n_actions

    @property
    def usual_bytes(self) -> int:
        """Memory for an event like the first ones."""
        return self.event_bytes

    def chunk_bytes(self, rows: int) -> int:
        """Memory for a chunk of so many rows."""
        return rows * self.event_bytes

    @property
    def precision(self) -> str:
        """The type of the products that make predictions."""
        return "float32" if self.single and self.models.model is not None and self.models.model.single else "float64"

    def blocks(self, batch: Events, rows: int) -> Iterator[Events]:
        """Yield the blocks of a batch that chunks are made of, of at most so many rows."""
        return batch.blocks(rows)

    def chunk(self, block: Events, spaces: Spaces) -> Chunk:
        rows, action, reward = block.numbers, block.action, block.reward
        uniforms = {seed: sampling.at_rows(seed, rows.view(np.uint64)) for seed in self.seeds}
        contexts: NDArray[Any] | Csr = NO_CONTEXTS
        if self.for_compiled or (self.models.model is not None and self.models.model.uses_context):
            contexts = contexts_of(block, spaces)
        if self.for_python:
            block.matrix, block.eligible_mask  # noqa: B018  # made here, on the reading thread, and not in each lane
        eligible, sizes = self._sets(block, spaces)
        calibration = Calibration(self.typical_reward)
        predictions = NO_PREDICTIONS
        totals, gaps = (spaces.take((len(rows),), np.float64) for _ in range(2))
        if self.models.model is not None:
            predictions = self._predict(self.models.model, block, contexts, eligible, spaces, calibration)
            tiles.of_actions(predictions, action, gaps)
            calibration.add(gaps, reward, self.models.unpredicted(block))
            tiles.totals(predictions, totals)
            np.subtract(reward, gaps, out=gaps)
        else:
            totals[:], gaps[:] = 0.0, reward
        propensity = self.models.propensities_of_many(block, self.n_actions)
        if self.models.logger is not None:
            calibration.least_propensity = float(propensity.min())
        fixed = {name: self._probabilities(policy, block) for name, policy in self.fixed.items()}
        known = read_only(totals), read_only(gaps)
        columns = rows, action, reward, contexts, uniforms, propensity, predictions, *known, eligible, sizes
        return Chunk(block, *columns, fixed, calibration, spaces)

    def _sets(self, block: Events, spaces: Spaces) -> tuple[NDArray[np.uint8], Ints]:
        """The eligible sets in tiles, and their sizes."""
        if block.eligible is None:
            return NO_SETS
        out = spaces.take((-(-len(block) // TILE), self.n_actions, TILE), np.uint8)
        tiles.from_sets(block.eligible.lists.starts, block.eligible.lists.values, out)
        return read_only(out), block.eligible.sizes

    def _predict(
        self,
        model: RewardModel,
        block: Events,
        contexts: Any,
        eligible: NDArray[np.uint8],
        spaces: Spaces,
        calibration: Calibration,
    ) -> Floats:
        """r̂ in tiles."""
        whole, rest = divmod(len(block), TILE)
        out = spaces.take((whole + (rest > 0), self.n_actions, TILE), np.float64)
        model.fill_tiles(block, contexts, out, self.single)
        if self.unchecked is not None:
            self._check_contexts(self.unchecked, out, block)
        if self.sets and self.models.clamp is not None:
            tiles.hide(out, eligible, float(np.clip(0.0, *self.models.clamp)))  # so that they do not count as clamped
        self.models.clamp_predictions(out[:whole], calibration)
        if rest:
            last = out[whole, :, :rest].copy()  # without the places that have no event, which must not be counted
            self.models.clamp_predictions(last, calibration)
            out[whole, :, :rest] = last
        if self.sets:
            tiles.hide(out, eligible, 0.0)
            calibration.predictions = int(block.eligible.sizes.sum()) if self.models.clamp else 0  # type: ignore[union-attr]
        if self.unchecked is None:
            check_predictions(out, block)
        return read_only(out)

    def _check_contexts(self, reader: Reader, rhat: Floats, block: Events) -> None:
        """Raise an error if a prediction is not finite, before it is clamped: about the context, if that is why."""
        try:
            check_predictions(rhat, block)
        except ModelError:
            reader.check_finite(block)
            raise

    def _probabilities(self, policy: FixedPolicy, block: Events) -> Floats:
        """ν (n, K) of a fixed policy."""
        out = np.empty((len(block), self.n_actions))
        fill_by_pieces(policy, block, out)
        return read_only(out)


def contexts_of(block: Events, spaces: Spaces) -> NDArray[Any] | Csr:
    """Contexts for compiled policies, in read-only arrays, because kernels are compiled for those.

    Dense contexts are tiles of float32 or float64. Sparse rows have no index twice: the values of a
    repeated index are added up, because a policy that squares values would get them wrong.
    """
    rows = block.sparse
    if rows is None:
        return read_only(_tiles_of(block, spaces))
    if sparse.first_unsorted(rows.indptr, rows.indices) < 0:
        return Csr(read_only(rows.indptr), read_only(rows.indices), read_only(rows.values), rows.dim)
    size = int(rows.indptr[-1] - rows.indptr[0])
    starts, at, sums = np.empty(len(rows) + 1, np.int64), np.empty(size, np.int32), np.empty(size)
    sparse.add_up(rows.indptr, rows.indices, rows.values, np.zeros(rows.dim, np.int64), starts, at, sums)
    return Csr(read_only(starts), read_only(at), read_only(sums), rows.dim)


def _tiles_of(block: Events, spaces: Spaces) -> NDArray[Any]:
    """Dense contexts in tiles, in float32 if the log has float32, else in float64."""
    context = list(block.matrix.T) if isinstance(block.context, Coded) else block.context
    assert not isinstance(context, Csr)
    columns = [context] if isinstance(context, np.ndarray) else context
    whole, rest = divmod(len(block), TILE)
    kind = np.result_type(*columns) if columns else np.float64
    out = spaces.take((whole + (rest > 0), block.n_features if columns else 0, TILE), kind)
    if isinstance(context, np.ndarray):
        tiles.from_rows(context, out)
        return out
    middle = len(block) - rest
    for j, column in enumerate(context):
        out[:whole, j] = column[:middle].reshape(whole, TILE)
        out[whole:, j, :rest] = column[middle:]
    out[whole:, :, rest:] = 0.0
    return out


def by_event(values: NDArray[Any]) -> NDArray[Any]:
    """Predictions or sets (n, K) from tiles; n is a multiple of their size."""
    count, actions, events = values.shape
    return values.swapaxes(1, 2).reshape(count * events, actions)


NO_CONTEXTS = read_only(np.empty((0, 0, TILE)))
NO_PREDICTIONS = read_only(np.empty((0, 0, TILE)))
NO_SETS = read_only(np.empty((0, 0, TILE), np.uint8)), np.empty(0, np.int64)
