"""What is linear in contexts: the weights of all policies and of the model, which one call multiplies with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.kernels.observe import IDENTITY, NOTHING, padded
from drstream.models.base import RewardModel
from drstream.models.crossfit import CrossFitted
from drstream.models.linear import LinearModel
from drstream.policies.base import FixedPolicy, older, rule_of, steady_rule
from drstream.types import Floats, Ints

Matrix = NDArray[Any]  # float32 or float64
LARGEST_SINGLE = 1e20  # weights and intercepts of which one is larger are multiplied in float64


@dataclass(frozen=True)
class Stack:
    """Weights of linear policies, K rows for each, and below them those of a linear model. Picklable.

    weights    A matrix for each fold, or one; the rows of the model differ.
    intercept  Of the policies' rows.
    kinds, epsilons, slots
               For each policy: SOFTMAX or ARGMAX, how often it takes a random action, and its number.
    model      Intercepts of the model (folds, K). No columns if there is no model.
    links      By fold, what turns scores of the model into predictions.
    """

    weights: Matrix
    intercept: Matrix
    kinds: Ints
    epsilons: Floats
    slots: Ints
    model: Matrix
    links: Ints

    @property
    def kind(self) -> np.dtype[Any]:
        return self.weights.dtype

    @cached_property
    def padded(self) -> Matrix:
        """The weights as kernels take them. Made once, not for each part."""
        return padded(self.weights)

    @property
    def with_model(self) -> bool:
        return self.model.shape[1] > 0

    @classmethod
    def of(
        cls, policies: Sequence[FixedPolicy], model: RewardModel | None, find_kind: Callable[[], np.dtype[Any]]
    ) -> Stack | None:
        """Stack what is linear, and beside it policies that look at nothing. None if nothing is linear.

        find_kind  Returns the type of contexts, which may have to be read.
        """
        rules = {j: rule for j, policy in enumerate(policies) if (rule := rule_of(policy)) is not None}
        models = linear_models(model)
        if not rules and not models:
            return None
        kind = find_kind()
        known = [m for m in models if m is not None]
        shape = (next(iter(rules.values())).weights if rules else known[0].coef_).shape
        steady = {j: rule for j, policy in enumerate(policies) if (rule := steady_rule(policy, *shape)) is not None}
        rules = dict(sorted((rules | steady).items()))
        own, none = [rule.weights for rule in rules.values()], np.zeros(shape)
        stacked = [np.concatenate([*own, none if m is None else m.coef_]) for m in models] or [np.concatenate(own)]
        weights = np.stack(stacked)
        intercept = np.concatenate([np.empty(0), *(rule.intercept for rule in rules.values())])
        of_models = np.stack([np.zeros(shape[0]) if m is None else m.intercept_ for m in models] or [np.empty(0)])
        if max(np.abs(part).max(initial=0.0) for part in (weights, intercept, of_models)) > LARGEST_SINGLE:
            kind = np.dtype(np.float64)
        return cls(
            weights.astype(kind),
            intercept.astype(kind),
            np.array([rule.kind for rule in rules.values()], np.int64),
            np.array([rule.epsilon for rule in rules.values()], np.float64),
            np.array(list(rules), np.int64),
            of_models.astype(kind),
            np.array([NOTHING if m is None else m.linked for m in models] or [IDENTITY], np.int64),
        )


def linear_models(model: RewardModel | None) -> list[LinearModel | None]:
    """The linear models that predict: one for each fold, or one in all; None for folds without one.

    Empty if there are others, too.
    """
    found: Sequence[Any] = model.models if isinstance(model, CrossFitted) else [model]
    known = [m for m in found if m is not None]
    plain = all(isinstance(m, LinearModel) and not older(type(m), "linked", "link", "fill") for m in known)
    return list(found) if known and plain else []
