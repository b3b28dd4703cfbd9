"""A policy that plays the best action of a reward model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from drstream.buffers import Rule, as_matrix, check_predictions, fill_from
from drstream.errors import ModelError, PolicyError, parameter, phrase
from drstream.kernels.observe import ARGMAX
from drstream.kernels.scores import argmax
from drstream.log import Events, Log
from drstream.log.rows import Origin
from drstream.parameters import check_estimator, number
from drstream.policies.base import FixedPolicy
from drstream.policies.candidates import Best, Mixed
from drstream.policies.sets import given_bits, given_mask, spread, spread_over
from drstream.types import Floats


class Greedy(FixedPolicy):
    """Takes the action with the largest predicted reward, the first one in a tie, or a random one.

    model    A fitted reward model: one of `drs.models`, or any object with predict(X) -> (n, K).
    epsilon  Probability of a uniformly random action. All actions share it; in a log with eligible sets, those of the
             set.

    If the policy is evaluated on events that the model was fitted on, there is a warning.

    >>> import drstream as drs
    >>> Greedy(drs.models.Constant([0.1, 0.3]), epsilon=0.5).probabilities(np.zeros((1, 2)))
    array([[0.25, 0.75]])
    """

    command = "fit"

    def __init__(self, model: Any, epsilon: float = 0.0) -> None:
        _check(model)
        self.model = model
        self.epsilon = number("epsilon", epsilon, 0, 1, who="Greedy")
        self.n_actions = getattr(model, "n_actions", None)
        self.uses_context = getattr(model, "uses_context", True)
        self.columns = tuple(getattr(model, "columns", ())) if hasattr(model, "fill") else ()

    @property
    def known_labels(self) -> Sequence[Any] | None:
        return getattr(self.model, "known_labels", None)

    @property
    def fitted_on(self) -> Origin | None:
        """The events that the model was fitted on."""
        return getattr(self.model, "fitted_on", None)

    @property
    def learned_on(self) -> tuple[Origin, ...]:  # type: ignore[override]
        return () if self.fitted_on is None else (self.fitted_on,)

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        if not hasattr(self.model, "bind_to"):
            raise PolicyError(
                f"policy {name!r}: a log of candidates takes a model of drstream.models: wrap a function of (contexts, "
                "features, starts) with drs.models.from_function"
            )
        best = Best(name, self.model.bind_to(log))
        return Mixed(name, best, self.epsilon) if self.epsilon else best

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        if hasattr(self.model, "fill"):
            bound.model = self.model.bind(log)
            bound.uses_context, bound.columns = bound.model.uses_context, bound.model.columns
        return bound

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        scores = np.array(as_matrix(self.model.predict(X)).T, dtype=np.float64, order="C")
        actions, rows = scores.shape
        mask = given_mask(eligible, rows, actions, "Greedy")
        argmax(scores, np.zeros(actions), given_bits(eligible, rows, actions, "Greedy"))
        return spread_over(scores.T, self.epsilon, mask) if self.epsilon else scores.T

    def fill(self, block: Events, out: Floats) -> None:
        if hasattr(self.model, "fill"):
            self.model.fill(block, out)
        else:
            fill_from(self.model.predict, f"the reward model of policy {self.name!r}", ModelError, block, out)
        block.hide(out)  # predictions for other actions may be NaN
        check_predictions(out, block)
        argmax(out, np.zeros(len(out)), block.eligible_bits)
        if self.epsilon:
            spread(out, self.epsilon, block)

    @property
    def rule(self) -> Rule | None:
        ranking = getattr(self.model, "ranking", None)
        return None if ranking is None else Rule(ARGMAX, ranking[0], ranking[1], self.epsilon)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model and epsilon to a file, if the model can be saved. `drs.optimize.load` reads it."""
        if not hasattr(self.model, "kept"):
            raise PolicyError(f"Greedy: only a model that was fitted to a log can be saved, not {self.model!r}")
        self.model._save(path, {"epsilon": self.epsilon})

    def __repr__(self) -> str:
        return f"Greedy({self.model!r}{f', epsilon={self.epsilon:g}' if self.epsilon else ''})"


def _check(model: Any) -> None:
    """Raise an error unless it is a fitted reward model."""
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    if isinstance(model, type):
        raise PolicyError(f"Greedy: {name} is a class: pass a fitted model, {name}().fit(other_events)")
    if isinstance(model, FixedPolicy):
        raise PolicyError(f"Greedy: {name} is a policy already: pass a reward model, which predicts rewards")
    if not callable(getattr(model, "predict", None)):
        raise PolicyError(
            f"Greedy: {name} is not a reward model: pass one of drstream.models, fitted, or an object with "
            "predict(X) -> (n, K)"
        )
    if not hasattr(model, "fill") and hasattr(model, "get_params"):
        kinds = check_estimator(model, "Greedy", "reward model", PolicyError)
        raise PolicyError(
            f"Greedy: wrap {name} first, drs.models.from_sklearn(...), whose predict tells actions apart"
            if any(kinds)
            else f"Greedy: {name} is neither a regressor nor a classifier"
        )
    if not getattr(model, "fitted", True):
        first = phrase("call .fit(log) on other events first", "write one to a file first, with drstream fit --share")
        raise PolicyError(
            f"Greedy: the reward model {model!r} is not fitted: {first}. {parameter('crossfit')} does not fit it, as a "
            "policy is learned before it is evaluated"
        )
