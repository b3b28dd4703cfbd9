"""What a replay keeps of the policy that it simulates: its states, step by step, with weights.

Step t covers the events B(t) between two acceptances, through which π(·|·, h_{t-1}) does not change; its weight is
c_t |B(t)|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from drstream.types import Floats


@dataclass(frozen=True)
class Recorded:
    """A replay's policies h_0, ..., h_{T-1}, or those that stand for them, and the sums of Algorithm 1."""

    snapshots: list[Any]  # a compiled policy's states, or copies of a Python policy
    weights: Floats  # of the steps that a snapshot stands for, Σ c_t |B(t)|
    value: float  # V / C
    weight: float  # C
    steps: int  # T
    events: int  # N: those after the last acceptance are in no step
    least_propensity: float
    rewards: tuple[float, float]  # the least and the largest


@dataclass
class Seen:
    """Some events, in sum."""

    events: int = 0
    least_propensity: float = math.inf
    least_reward: float = math.inf
    largest_reward: float = -math.inf

    def add(self, other: Seen) -> None:
        self.events += other.events
        self.least_propensity = min(self.least_propensity, other.least_propensity)
        self.least_reward = min(self.least_reward, other.least_reward)
        self.largest_reward = max(self.largest_reward, other.largest_reward)

    @classmethod
    def of(cls, propensity: Floats, reward: Floats) -> Seen:
        if not len(reward):
            return cls()
        return cls(len(reward), float(propensity.min()), float(reward.min()), float(reward.max()))


@dataclass
class _Group:
    """Consecutive snapshots, and the one among them that stands for all."""

    snapshot: Any
    weight: float
    size: int = 1


class Recorder:
    """Keeps at most `most` snapshots, whatever the number of steps.

    Where there are more, neighbours form groups: 2, 4, 8, ... to a group. The one that stands for its group, with the
    weight of all, is drawn with probability proportional to its own weight. So the mixture of those that are kept has,
    over this draw, the mixture of all as its mean.
    """

    def __init__(self, most: int, seed: int) -> None:
        self.most = most
        self.size = 1  # snapshots to a group
        self.groups: list[_Group] = []
        self.seen, self.waiting = Seen(), Seen()  # events of complete steps, and those since
        self._random = np.random.default_rng([seed & (2**64 - 1), 0x50560001])  # apart from those that accept events
        self._last: _Group | None = None  # steps in the same state, until it changes

    def add(self, snapshot: Any, weight: float) -> None:
        """A step in which the policy was in this state. While the state does not change, it must be the same object."""
        if self._last is not None and self._last.snapshot is snapshot:
            self._last.weight += weight
        else:
            self._close()
            self._last = _Group(snapshot, weight)

    def pass_over(self, propensity: Floats, reward: Floats, complete: int) -> None:
        """Events that were replayed; the first `complete` of them belong to complete steps."""
        self.waiting.add(Seen.of(propensity[:complete], reward[:complete]))
        if complete:
            self.seen.add(self.waiting)
            self.waiting = Seen()
        self.waiting.add(Seen.of(propensity[complete:], reward[complete:]))

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
        )

    def _close(self) -> None:
        """Put the last state into its group, or into one of its own."""
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
        """Two groups become one; where their number is odd, the last stays and is the next to grow."""
        for one, other in zip(self.groups[::2], self.groups[1::2], strict=False):
            self._join(one, other)
        self.groups = self.groups[::2]
        self.size *= 2

    def _join(self, group: _Group, other: _Group) -> None:
        group.weight += other.weight
        group.size += other.size
        if self._random.random() * group.weight < other.weight:
            group.snapshot = other.snapshot
