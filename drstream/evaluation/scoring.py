"""Linear scores: the weights of all linear policies and of the model, multiplied with the contexts once per block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import Weights
from drstream.inheritance import older
from drstream.kernels.policies import READY
from drstream.log import Block
from drstream.models.base import RewardModel
from drstream.models.crossfit import CrossFitted
from drstream.models.linear import LinearModel
from drstream.policies.base import FixedPolicy, rule_of, steady_rule
from drstream.types import Floats, Ints

Matrix = NDArray[Any]  # float32 or float64
LARGEST_SINGLE = 1e20  # weights and intercepts of which one is larger are multiplied in float64


@dataclass(frozen=True)
class Group:
    """Policies whose rows are in one matrix, K for each: what `kernels.policies.observe` needs to know about them."""

    slots: Ints  # which policies
    places: Ints  # their rows of r̂(x, ν)
    kinds: Ints
    epsilons: Floats
    intercept: Matrix

    @classmethod
    def ready(cls, slot: int, place: int, n_actions: int) -> Group:
        """One policy that gives its probabilities itself."""
        return cls(np.array([slot]), np.array([place]), np.array([READY]), np.zeros(1), np.zeros(n_actions))


@dataclass(frozen=True)
class Stack:
    """Weights of linear policies, K rows for each, and below them those of a linear model. Picklable.

    policies  The linear policies.
    weights   All weights, for each fold; the rows of the model differ. One matrix without folds.
    intercepts, link
              Of the model, for each fold. No intercepts if the model is not linear.
    """

    policies: Group
    weights: list[Weights]
    intercepts: list[Matrix]
    link: int = 0

    @property
    def kind(self) -> np.dtype[Any]:
        return self.weights[0].matrix.dtype

    @property
    def rows(self) -> int:
        return len(self.weights[0].matrix)

    @cached_property
    def split(self) -> int:
        """Where the rows of the model begin."""
        return len(self.policies.intercept)

    @property
    def has_model(self) -> bool:
        return bool(self.intercepts)

    def fold(self, block: Block) -> int:
        """The fold of a block, all of whose events are in one."""
        return int(block.fold[0]) if len(self.weights) > 1 else 0

    def fill(self, block: Block, out: Matrix) -> None:
        """out (rows, n) <- scores, without intercepts."""
        self.weights[self.fold(block)].fill(block, out)

    @classmethod
    def of(
        cls, policies: Sequence[FixedPolicy], places: Ints, model: RewardModel | None, kind: np.dtype[Any]
    ) -> Stack | None:
        """Stack what is linear, and beside it policies that look at nothing. None if nothing is linear."""
        rules = {j: rule for j, policy in enumerate(policies) if (rule := rule_of(policy)) is not None}
        models = linear_models(model)
        if not rules and not models:
            return None
        shape = (next(iter(rules.values())).weights if rules else models[0].coef_).shape
        steady = {j: rule for j, policy in enumerate(policies) if (rule := steady_rule(policy, *shape)) is not None}
        rules = dict(sorted((rules | steady).items()))
        own = [rule.weights for rule in rules.values()]
        stacked = [np.concatenate([*own, m.coef_]) for m in models] or [np.concatenate(own)]
        numbers = [*stacked, *(rule.intercept for rule in rules.values()), *(m.intercept_ for m in models)]
        if any(np.abs(part).max(initial=0.0) > LARGEST_SINGLE for part in numbers):
            kind = np.dtype(np.float64)
        group = Group(
            np.array(list(rules), np.int64),
            places[list(rules)],
            np.array([rule.kind for rule in rules.values()], np.int64),
            np.array([rule.epsilon for rule in rules.values()], np.float64),
            np.concatenate([np.empty(0), *(rule.intercept for rule in rules.values())]).astype(kind),
        )
        link = models[0].linked if models else 0
        return cls(
            group, [Weights(matrix, kind) for matrix in stacked], [np.asarray(m.intercept_, kind) for m in models], link
        )


def linear_models(model: RewardModel | None) -> list[LinearModel]:
    """The linear models that predict: one for each fold, or one in all. Empty if there are others, too."""
    found: Sequence[Any] = model.models if isinstance(model, CrossFitted) else [model]
    plain = all(isinstance(m, LinearModel) and not older(type(m), "linked", "link", "fill") for m in found)
    return list(found) if plain and len({m.linked for m in found}) == 1 else []
