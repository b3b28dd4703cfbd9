"""Records the states of a simulated policy step by step, with weights.

Step t covers the events B(t), which end with the t-th acceptance. During step t the policy is π(·|·, h_{t-1}). The
weight of the step is c_t |B(t)|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from drstream.states.tree import Free, Varying
from drstream.types import Floats


@dataclass(frozen=True)
class Recorded:
    """A replay's policies h_0, ..., h_{T-1}, or a sample that represents them, and the sums of Algorithm 1."""

    snapshots: list[Any]  # a compiled policy's states, or copies of a Python policy
    weights: Floats  # Σ c_t |B(t)| over the steps that a snapshot represents
    value: float  # V / C
    weight: float  # C
    steps: int  # T
    events: int  # N, without those after the last acceptance, which are in no step
    least_propensity: float
    rewards: tuple[float, float]  # the smallest and the largest
    predictions: tuple[float, float]  # likewise of r̂, for all actions; 0 without a model


@dataclass
class Seen:
    """A summary of some events: their number, smallest propensity, and range of rewards and of predictions."""

    events: int = 0
    least_propensity: float = math.inf
    least_reward: float = math.inf
    largest_reward: float = -math.inf
    least_prediction: float = math.inf
    largest_prediction: float = -math.inf

    def add(self, other: Seen) -> None:
        self.events += other.events
        self.least_propensity = min(self.least_propensity, other.least_propensity)
        self.least_reward = min(self.least_reward, other.least_reward)
        self.largest_reward = max(self.largest_reward, other.largest_reward)
        self.least_prediction = min(self.least_prediction, other.least_prediction)
        self.largest_prediction = max(self.largest_prediction, other.largest_prediction)

    @classmethod
    def of(cls, propensity: Floats, reward: Floats, predictions: Floats) -> Seen:
        if not len(reward):
            return cls()
        least, largest = np.fmin, np.fmax  # which pass over NaN, the predictions for actions that are not eligible
        predicted = (0.0, 0.0)
        if predictions.size:
            predicted = float(least.reduce(predictions, axis=None)), float(largest.reduce(predictions, axis=None))
        return cls(len(reward), float(propensity.min()), float(reward.min()), float(reward.max()), *predicted)


@dataclass
class _Group:
    """Consecutive snapshots, and the one that represents them."""

    snapshot: Any
    weight: float
    size: int = 1


class Recorder:
    """Keeps at most `most` snapshots, whatever the number of steps.

    If there are more, neighbours form groups of 2, 4, 8, ... snapshots. One snapshot represents its group, with the
    weight of the whole group. It is drawn with probability proportional to its own weight. So the mean over this draw
    of the mixture that is kept is the mixture of all snapshots.
    """

    def __init__(self, most: int, seed: int) -> None:
        self.most = most
        self.size = 1  # snapshots in a full group
        self.groups: list[_Group] = []
        self.seen, self.waiting = Seen(), Seen()  # events of complete steps, and events since then
        self._random = np.random.default_rng([seed & (2**64 - 1), 0x50560001])  # not the numbers that accept events
        self._last: _Group | None = None  # the steps so far in the present state

    def add(self, snapshot: Any, weight: float) -> None:
        """Add a step in which the policy had this state. While the state does not change, pass the same object."""
        if self._last is not None and self._last.snapshot is snapshot:
            self._last.weight += weight
        else:
            self._close()
            self._last = _Group(snapshot, weight)

    def pass_over(self, propensity: Floats, reward: Floats, predictions: Floats, complete: int) -> None:
        """Count events that were replayed. The first `complete` of them belong to complete steps."""
        self.waiting.add(Seen.of(propensity[:complete], reward[:complete], predictions[:complete]))
        if complete:
            self.seen.add(self.waiting)
            self.waiting = Seen()
        self.waiting.add(Seen.of(propensity[complete:], reward[complete:], predictions[complete:]))

    def recorded(self, value: float, weight: float, steps: int) -> Recorded:
        self._close()
        return Recorded(
            snapshots=[group.snapshot for group in self.groups],
            weights=np.array([group.weight for group in self.groups]),
            value=value,
            weight=weight,
            steps=steps,
            events=self.seen.events,
            least_propensity=self.seen.least_propensity,
            rewards=(self.seen.least_reward, self.seen.largest_reward),
            predictions=(self.seen.least_prediction, self.seen.largest_prediction),
        )

    def contents(self, like: Floats) -> dict[str, Any]:
        """All that a checkpoint holds of it. Snapshots are arrays of the form of `like`."""
        groups = [*self.groups, *([] if self._last is None else [self._last])]
        return {
            "size": self.size,
            "open": self._last is not None,
            "seen": self.seen,
            "waiting": self.waiting,
            "random": Free(self._random.bit_generator.state),
            "snapshots": Varying(np.array([g.snapshot for g in groups]).reshape(len(groups), *like.shape)),
            "weights": Varying(np.array([g.weight for g in groups], np.float64)),
            "sizes": Varying(np.array([g.size for g in groups], np.int64)),
        }

    def take_up(self, kept: dict[str, Any]) -> Any:
        """Go on from what a checkpoint holds of it. Return the last snapshot."""
        self.size, self.seen, self.waiting = kept["size"], kept["seen"], kept["waiting"]
        self._random.bit_generator.state = kept["random"].value
        columns = (kept[name].array for name in ("snapshots", "weights", "sizes"))
        groups = [_Group(state, float(weight), int(size)) for state, weight, size in zip(*columns, strict=True)]
        self._last = groups.pop() if kept["open"] else None
        self.groups = groups
        return None if self._last is None else self._last.snapshot

    def _close(self) -> None:
        """Put the last state into the last group, or into a new one."""
        new, self._last = self._last, None
        if new is None:
            return
        if len(self.groups) == self.most and self.groups[-1].size == self.size:
            self._halve()
        if self.groups and self.groups[-1].size < self.size:
            self._join(self.groups[-1], new)
        else:
            self.groups.append(new)

    def _halve(self) -> None:
        """Join groups in pairs. If their number is odd, the last one stays as it is and grows next."""
        for one, other in zip(self.groups[::2], self.groups[1::2], strict=False):
            self._join(one, other)
        self.groups = self.groups[::2]
        self.size *= 2

    def _join(self, group: _Group, other: _Group) -> None:
        group.weight += other.weight
        group.size += other.size
        if self._random.random() * group.weight < other.weight:
            group.snapshot = other.snapshot
