"""What a pass computes, and whether each policy and model is observed by compiled code or asked in Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from drstream.evaluation.adaptive import Overlaps
from drstream.evaluation.embedding import Categories, Embedding
from drstream.evaluation.stacking import Stack
from drstream.evaluation.terms import PolicyTerms
from drstream.models.binding import BoundModels
from drstream.policies.base import FixedPolicy


@dataclass(frozen=True)
class Bounds:
    """What the caller said about rewards and weights. An event outside of it is an error. None: nothing was said."""

    reward_range: tuple[float, float] | None = None
    max_weight: float | None = None
    predictions: bool = False  # whether predictions must lie in the range, too
    smoothing: float = math.nan  # λ, for intervals that smooth the terms w r

    def smoothed(self, term: str) -> tuple[float, float]:
        """For logarithmic smoothing: the end of the range that rewards are counted from, and λ / its length."""
        assert self.reward_range is not None
        low, high = self.reward_range
        scale = self.smoothing / (high - low)
        return (low, scale) if term == "smooth_gain" else (high, -scale)


@dataclass(frozen=True)
class Job:
    """What to compute for each block. It can be pickled if policies and models can."""

    policies: list[FixedPolicy]
    models: BoundModels
    terms: PolicyTerms
    n_actions: int
    pivot: float
    bounds: Bounds = field(default_factory=Bounds)
    down_sampled: bool = False  # a row counts as 1 / sample rate rows
    overlaps: Overlaps | None = None  # for estimators that weigh stretches of time
    stack: Stack | None = None  # what compiled code observes: all that is linear in the contexts
    candidates: bool = False  # each event has candidates of its own, so there is no number of actions: n_actions is 0
    ranking: bool = False  # each event is a list
    with_sets: bool = False  # whether events have eligible sets
    embedding: Embedding | Categories | None = None  # for weights of categories: they need all actions' probabilities

    @property
    def first(self) -> int:
        """Where the terms of policies begin: after the reward and, in a down-sampled log, 1 / sample rate."""
        return 1 + self.down_sampled

    @property
    def variables(self) -> int:
        """Number of variables: the reward, perhaps 1 / sample rate, and the terms of each policy."""
        return self.first + len(self.policies) * len(self.terms)

    @cached_property
    def stacked(self) -> list[bool]:
        """For each policy, whether compiled code observes it."""
        slots = () if self.stack is None else self.stack.slots.tolist()
        return [j in slots for j in range(len(self.policies))]

    @cached_property
    def direct(self) -> list[bool]:
        """For each policy, whether it gives ν of the logged actions alone: it knows no other, or none is needed."""
        enough = self.models.model is None and self.embedding is None
        return [
            not stacked and (policy.only_logged or (policy.direct and enough))
            for stacked, policy in zip(self.stacked, self.policies, strict=True)
        ]

    @property
    def all_stacked(self) -> bool:
        """Whether compiled code observes all policies, apart from what they find in columns of the log."""
        return all(map(any, zip(self.stacked, self.direct, strict=True)))

    @property
    def asks_model(self) -> bool:
        """Whether the reward model is asked in Python."""
        return self.models.model is not None and (self.stack is None or not self.stack.with_model)

    @cached_property
    def asks(self) -> bool:
        """Whether a policy or a model is asked in Python."""
        models = self.models
        more = models.second is not None or self.embedding is not None or self.candidates or self.ranking
        by_python = models.logger is not None and not models.logger.policy.direct
        return more or by_python or self.asks_model or not self.all_stacked

    @property
    def bytes_an_event(self) -> int:
        """Bytes that the (K, n) buffers of policies and models have for each event; 8 if there are none."""
        models = self.models
        own = models.logger is not None and not models.logger.policy.direct
        asked = (own or not all(self.direct), models.model is not None, models.second is not None)
        return 8 * self.n_actions * (sum(asked) + 2 * (self.embedding is not None)) or 8

    @property
    def precision(self) -> str:
        """The type of scores, probabilities and predictions."""
        return "float64" if self.stack is None else self.stack.kind.name
