"""Prepares events with candidates of their own: flat predictions and probabilities, and where each event's begin."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream import sampling
from drstream.buffers import read_only
from drstream.kernels.replay_ragged import RaggedEvents
from drstream.log import Events
from drstream.log.kinds.candidates.reading import Dense
from drstream.models.calibration import Calibration
from drstream.policies.base import FixedPolicy
from drstream.replaying.chunks import NO_SETS, SPARSE_FEATURES, Chunk, Preparation, Spaces
from drstream.types import Floats, Ints

FLAT_BYTES = 1 << 24  # of the features, probabilities and predictions of candidates in a chunk
NOTHING = read_only(np.empty(0))


@dataclass
class OfferedChunk(Chunk):
    """Events with candidates. `contexts` are (n, d) in float64, predictions and fixed probabilities are flat."""

    starts: Ints
    features: NDArray[Any]  # (M, d) of all candidates; (M, 0) if no compiled policy looks at them

    def events(self, seed: int) -> RaggedEvents:  # type: ignore[override]
        columns: list[NDArray[Any]] = [self.action, self.reward, self.propensity, self.uniforms[seed]]
        columns += [self.rows, self.starts, self.predictions]
        return RaggedEvents(*map(read_only, columns))

    @property
    def most(self) -> int:
        """Number of candidates of the event that has most."""
        return int(np.diff(self.starts).max())


@dataclass(frozen=True)
class OfferedPreparation(Preparation):
    """Makes chunks of events with candidates."""

    item_features: int  # number of features of a candidate that are read
    for_features: bool  # some policy is compiled, and so looks at them
    usual_candidates: float  # number of candidates of the first events, on average

    @property
    def event_bytes(self) -> int:
        """Memory for a prepared event, without its candidates."""
        features = min(self.n_features, SPARSE_FEATURES) if self.sparse else self.n_features
        return 72 + 8 * len(self.seeds) + 8 * features

    @property
    def candidate_bytes(self) -> int:
        """Memory for a candidate of a prepared event."""
        return 8 * (self.item_features + (self.models.model is not None) + len(self.fixed)) + 1

    @property
    def usual_bytes(self) -> int:
        return self.event_bytes + math.ceil(self.candidate_bytes * self.usual_candidates)

    def chunk_bytes(self, rows: int) -> int:
        return rows * self.event_bytes + FLAT_BYTES

    def blocks(self, batch: Events, rows: int) -> Iterator[Events]:
        """Yield blocks with a bound on their candidates, too."""
        return batch.blocks(rows, FLAT_BYTES // self.candidate_bytes)

    def chunk(self, block: Events, spaces: Spaces) -> OfferedChunk:
        rows, action, reward = block.numbers, block.action, block.reward
        offered = block.candidates
        uniforms = {seed: sampling.at_rows(seed, rows.view(np.uint64)) for seed in self.seeds}
        contexts: NDArray[Any] = np.empty((len(block), 0))
        features: NDArray[Any] = np.empty((offered.count, 0))
        if self.for_features:
            assert isinstance(offered.features, Dense)  # compiled policies are refused if features are sparse
            features = np.ascontiguousarray(offered.features.matrix)
        if self.for_compiled and self.n_features:
            contexts = spaces.take((len(block), self.n_features), np.float64)
            contexts[:] = block.matrix
        if self.for_python:
            block.matrix  # noqa: B018  # made here, on the reading thread, and not in each lane
        calibration = Calibration(self.typical_reward)
        predictions = NOTHING
        if self.models.model is not None:
            rhat, logged = spaces.take((offered.count,), np.float64), np.empty(len(block))
            self.models.predict_flat(self.models.model, block, rhat, logged, calibration)
            calibration.add(logged, reward, self.models.unpredicted(block))
            predictions = read_only(rhat)
        propensity = self.models.propensities_of_many(block, 0)
        if self.models.logger is not None:
            calibration.least_propensity = float(propensity.min())
        fixed = {name: _probabilities(policy, block) for name, policy in self.fixed.items()}
        none = NOTHING, NOTHING, *NO_SETS
        columns = rows, action, reward, read_only(contexts), uniforms, propensity, predictions, *none
        return OfferedChunk(block, *columns, fixed, calibration, spaces, read_only(offered.starts), read_only(features))


def _probabilities(policy: FixedPolicy, block: Events) -> Floats:
    """ν of a fixed policy, flat."""
    out = np.empty(block.candidates.count)
    policy.fill_flat(block, out)
    return read_only(out)
