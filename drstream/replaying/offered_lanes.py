"""Lanes of events that have candidates of their own: how a chunk of them passes through one simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import read_only
from drstream.errors import PolicyError
from drstream.kernels.lanes import LaneArrays
from drstream.kernels.replay_ragged import RaggedEvents, SharedLearner, learn_ragged, replay_given_ragged
from drstream.log.ragged import Ragged
from drstream.policies.online import AnyCompiled, Fixed
from drstream.replaying.chunks import Chunk
from drstream.replaying.lanes import CompiledLane, FixedLane, Lane, PythonLane
from drstream.replaying.offered import OfferedChunk, OfferedPreparation
from drstream.types import Ints


class Given(Ragged):
    """Probabilities of candidates for consecutive events."""

    def __getitem__(self, place: int | slice) -> Any:
        """Return the probabilities of one event, or those of all events from one on."""
        if isinstance(place, slice):
            return Given(self.starts[place.start :], self.values)
        return self[place : place + 1].flat


@dataclass
class OfferedCompiledLane(CompiledLane):
    """The policy is compiled: one call replays the whole chunk."""

    preparation: OfferedPreparation

    def __post_init__(self) -> None:
        Lane.__post_init__(self)
        name, width = self.options.policy, self.preparation.item_features
        features = self.preparation.n_features if self.policy.uses_context else 0
        self.functions = self.policy.functions(name, checked=self.debug)
        initial = self.policy.checked_state(name, features, width)
        self.learner: Any = SharedLearner(initial.copy(), read_only(initial), np.empty((0, width)), np.empty(0))

    def _learn(self, chunk: Chunk, events: Any, lane: LaneArrays, first: int, last: int) -> int:
        assert isinstance(chunk, OfferedChunk)
        if (most := chunk.most) > len(self.learner.pi):
            self.learner = self.learner._replace(z=np.empty((most, chunk.features.shape[1])), pi=np.empty(most))
        assert isinstance(chunk.contexts, np.ndarray)
        contexts = chunk.contexts if self.policy.uses_context else read_only(np.empty((len(chunk.rows), 0)))
        probabilities, update = self.functions
        given = events, contexts, chunk.features, lane, self.learner
        return int(learn_ragged(*given, probabilities, update, first, last))

    def _refuse(self, pi: Any, event: int, chunk: Chunk) -> None:
        assert isinstance(chunk, OfferedChunk)
        super()._refuse(pi[: int(chunk.starts[event + 1] - chunk.starts[event])], event, chunk)


class OfferedFixedLane(FixedLane):
    """The policy does not change: its probabilities for the whole chunk are known."""

    def _walk(self, chunk: Chunk, events: Any, lane: LaneArrays, first: int, last: int) -> None:
        assert isinstance(chunk, OfferedChunk)
        pi, starts = chunk.fixed[self.options.policy], chunk.starts
        taken = int(replay_given_ragged(events, lane, pi[starts[first] :], first, last, 0))
        if self.now["improper"]:
            self._refuse(pi[starts[taken] : starts[taken + 1]], taken, chunk)


@dataclass
class OfferedPythonLane(PythonLane):
    """The policy is Python code, with probabilities(X, Z, starts) and update(x, z, reward)."""

    def _given(self, events: RaggedEvents, lane: LaneArrays, pi: Given, first: int) -> int:
        return int(replay_given_ragged(events, lane, read_only(pi.flat), first, first + len(pi), 1))

    def _lesson(self, chunk: Chunk, event: int) -> tuple[Any, ...]:
        x, position, reward = super()._lesson(chunk, event)
        offered = chunk.block.candidates
        if offered.features is None:
            return x, None, reward
        return x, _unchangeable(offered.features.row(int(offered.starts[event]) + position)), reward

    def _ask(self, chunk: Chunk, first: int, last: int) -> Given:
        offered = chunk.block.candidates[first:last]
        Z = None if offered.features is None else _unchangeable(offered.features.array())
        values = self._call("probabilities", chunk.block.matrix[first:last], Z, offered.starts, at=(chunk, first))
        found, wanted = np.asarray(values), (offered.count,)
        where = f", at t = {self.now['t'] + 1}, {chunk.block.where(first)}"
        who = f"policy {self.options.policy!r}"
        if found.shape != wanted:
            raise PolicyError(
                f"{who} returned an array of shape {found.shape} for {last - first} events with {offered.count} "
                f"candidates{where}: on a log of candidates, probabilities(X, Z, starts) returns a number for each "
                f"candidate, of shape {wanted}"
            )
        if found.dtype.kind not in "fiub":
            raise PolicyError(f"{who} returned {found.dtype}{where}, where numbers are needed")
        return Given(offered.starts, np.array(found, dtype=np.float64))  # a copy: the policy may reuse its array

    def _changed(self, now: Given, pi: Given) -> NDArray[np.bool_]:
        changed = ~np.isclose(now.flat, pi.flat, rtol=1e-9, atol=1e-12)
        begin: Ints = pi.starts[:-1] - pi.starts[0]
        return np.logical_or.reduceat(changed, begin)


def kind_of_lane(policy: Any) -> type[Lane]:
    """Return the lane that simulates a policy on a log of candidates."""
    if isinstance(policy, AnyCompiled):
        return OfferedCompiledLane
    return OfferedFixedLane if isinstance(policy, Fixed) else OfferedPythonLane


def _unchangeable(features: Any) -> Any:
    """Return features that a policy cannot change: other lanes see them, too. Sparse matrices are so already."""
    return read_only(features) if isinstance(features, np.ndarray) else features
