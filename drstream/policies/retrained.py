"""A policy of scikit-learn models that are fitted again at regular intervals."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import scipy.sparse

from drstream.errors import PolicyError
from drstream.log import Log
from drstream.policies.sets import spread_over
from drstream.types import Bools, Floats


class Retrained:
    """ε-greedy over scikit-learn models of the reward, one for each action, that are retrained at regular intervals.

    model    Classifier, whose classes are the rewards (0 and 1), or regressor. For each action, a clone is fitted on
             the events in which that action was taken.
    every    Number of accepted events between trainings.
    epsilon  Probability of a random action: in a log with eligible sets, of one of the set.
    start    (X, R): contexts (n, d), which may be sparse, and the rewards (n, K) of all actions. All models are fitted
             on these data before the first event, and the data stay in their training sets.

    The models get sparse contexts if the log's contexts are sparse. The score of an action without events is the mean
    of all rewards so far. With LogisticRegression, every=15, epsilon=0.1 and a start, this is the policy of the paper's
    section 6.2.
    """

    def __init__(
        self,
        model: Any,
        *,
        every: int = 15,
        epsilon: float = 0.1,
        start: tuple[Any, Any] | None = None,
    ) -> None:
        if isinstance(model, type) or not hasattr(model, "fit"):
            raise PolicyError(f"Retrained: {model!r} is not a scikit-learn model; pass an instance")
        if not isinstance(every, int) or every < 1:
            raise PolicyError(f"Retrained: every={every!r}: a whole number, at least 1")
        if not 0 <= epsilon <= 1:
            raise PolicyError(f"Retrained: epsilon={epsilon} must be in [0, 1]")
        self.model, self.every, self.epsilon = model, every, epsilon
        self.start: tuple[Any, Floats] | None = None
        if start is not None:
            X = scipy.sparse.csr_array(start[0]) if scipy.sparse.issparse(start[0]) else np.asarray(start[0])
            self.start = X, np.asarray(start[1], dtype=np.float64)
        if self.start and (self.start[1].ndim != 2 or self.start[0].shape[:1] != self.start[1].shape[:1]):
            raise PolicyError(
                f"Retrained: start has contexts of shape {self.start[0].shape} and rewards of shape "
                f"{self.start[1].shape}; they must be (n, d) and (n, K)"
            )
        self.n_actions = self.start[1].shape[1] if self.start else None
        self.version = 0
        self._first: list[Any] | None = None  # models fitted on `start`, the same for every replicate

    def bind(self, log: Log) -> Self:
        """Check that `start` fits the log, and return a copy of the policy that knows the number of actions."""
        log.refuse_candidates("Retrained, which has a model for each action,")
        if self.n_actions not in (None, log.n_actions):
            raise PolicyError(f"Retrained: start has {self.n_actions} actions, the log has {log.n_actions}")
        if self.start and self.start[0].shape[1:] != (log.n_features,):
            raise PolicyError(
                f"Retrained: start has contexts of shape {self.start[0].shape}; the log has {log.n_features} features"
            )
        bound = copy.copy(self)
        bound.n_actions = log.n_actions
        if self.start:
            bound.start = _as_in(log, self.start[0]), self.start[1]
        return bound

    def reset(self) -> None:
        if self.n_actions is None:
            raise PolicyError("Retrained: how many actions there are is known from a log or from start= only")
        self._contexts: list[list[Any]] = [[] for _ in range(self.n_actions)]
        self._rewards: list[list[float]] = [[] for _ in range(self.n_actions)]
        self._waiting = 0
        if self._first is None:
            self._first = self._train()
        self._models = self._first
        self.version = 0

    def probabilities(self, X: Any, eligible: Bools | None = None) -> Floats:
        """Probabilities (n, K), of eligible actions only if booleans (n, K) say which events could choose which."""
        scores = np.column_stack([_expected_reward(model, X) for model in self._models])
        out = np.zeros(scores.shape)
        if eligible is not None:
            scores[~eligible] = -np.inf
        out[np.arange(X.shape[0]), scores.argmax(axis=1)] = 1.0
        return spread_over(out, self.epsilon, eligible)

    def update(self, x: Any, action: int, reward: float) -> None:
        self._contexts[action].append(x.copy())  # x is a view of the log
        self._rewards[action].append(reward)
        self._waiting += 1
        if self._waiting == self.every:
            self._models = self._train()
            self._waiting = 0
            self.version += 1

    def _train(self) -> list[Any]:
        rewards = [*self._rewards, *([] if self.start is None else self.start[1].T)]
        known = np.concatenate([np.asarray(r, dtype=np.float64) for r in rewards])
        mean = float(known.mean()) if len(known) else 0.0
        return [self._fit(action, mean) for action in range(len(self._rewards))]

    def _fit(self, action: int, mean: float) -> Any:
        from sklearn.base import clone

        X = [] if self.start is None else [self.start[0]]
        X += self._contexts[action]
        r = np.array(self._rewards[action])
        if self.start is not None:
            r = np.concatenate([self.start[1][:, action], r])
        if len(np.unique(r)) < 2:  # a classifier would raise an error
            return float(r[0]) if len(r) else mean
        if hasattr(self.model, "predict_proba") and (r != np.round(r)).any():
            raise PolicyError(
                f"Retrained: {type(self.model).__name__} is a classifier, whose classes are the rewards, and one is "
                f"{r[r != np.round(r)][0]:g}: pass a regressor"
            )
        return clone(self.model).fit(_stack(X), r)


def _as_in(log: Log, X: Any) -> Any:
    """Convert contexts to sparse or dense, as in the log."""
    if not log.is_sparse:
        return X.toarray() if scipy.sparse.issparse(X) else X
    return scipy.sparse.csr_array(X)


def _stack(contexts: list[Any]) -> Any:
    """Stack matrices (n, d) and single contexts into one matrix."""
    if scipy.sparse.issparse(contexts[-1]):
        return scipy.sparse.vstack(contexts, format="csr")
    return np.vstack(contexts)


def _expected_reward(model: Any, X: Any) -> Floats:
    if isinstance(model, float):
        return np.full(X.shape[0], model)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X) @ model.classes_)
    return np.asarray(model.predict(X))
