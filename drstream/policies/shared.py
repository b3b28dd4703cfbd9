"""Compiled online policies on candidates: they score items by features, so that all items share what is learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from drstream.errors import PolicyError, parameter
from drstream.kernels import learners, shared
from drstream.kernels.replay_ragged import SHARED_PROBABILITIES, SHARED_UPDATE
from drstream.log import Log
from drstream.log.kinds.candidates.columns import Numbered
from drstream.policies.online import AnyCompiled, compile_function
from drstream.types import Floats

FORMS = (
    ("probabilities", SHARED_PROBABILITIES, "state, x, Z, out"),
    ("update", SHARED_UPDATE, "state, x, z, reward"),
)


class CompiledShared(AnyCompiled):
    """An online policy on a log of candidates whose functions Numba compiles.

    A subclass defines `initial_state(n_context, n_item_features)`, which returns an array of float64, and two static
    functions:

    probabilities(state, x, Z, out)   Sets out[k] to the probability of candidate k, whose features are Z[k]. The
                                      probabilities must sum to 1. There are out.shape[0] candidates, and their number
                                      may change from event to event.
    update(state, x, z, reward)       Learns from an event in which the candidate with features z was taken.

    x, Z and z are in float64, and read-only. Parameters of the policy go into the state. The functions are compiled
    once. If they are defined in a file, the compiled code is kept on disk.
    """

    def initial_state(self, n_context: int, n_item_features: int) -> Floats:
        """Return the state of a policy that has learned nothing, an array of float64."""
        raise NotImplementedError(f"{type(self).__name__} has no initial_state(n_context, n_item_features)")

    @staticmethod
    def probabilities(state: Any, x: Any, Z: Any, out: Any) -> None:
        """Set out[k] to the probability of candidate k."""
        raise NotImplementedError

    @staticmethod
    def update(state: Any, x: Any, z: Any, reward: Any) -> None:
        """Learn from an event."""
        raise NotImplementedError

    def functions(self, name: str, sparse: bool = False, checked: bool = False) -> list[Callable[..., None]]:
        kind = type(self)
        who = f"policy {name!r}: {kind.__name__}"
        for function, *_ in FORMS:
            if getattr(kind, function) is getattr(CompiledShared, function):
                raise PolicyError(f"{who} has no static function {function}")
        return [
            compile_function(getattr(kind, f), signature, wanted, f"{who}.{f}", checked)
            for f, signature, wanted in FORMS
        ]

    def bind_to(self, log: Log, name: str) -> AnyCompiled:
        if not log.has_candidates:
            raise PolicyError(
                f"policy {name!r}: {type(self).__name__} scores candidates by their features, and this log has no "
                f"{parameter('candidates')}: use a policy that knows the actions"
            )
        self._check(log, name)
        return self

    @property
    def _kind(self) -> str:
        """The name of the policy's class, as a user knows it."""
        return type(self).__name__

    def _check(self, log: Log, name: str) -> None:
        who = f"policy {name!r}: {self._kind}"
        if not log.candidate_features:
            raise PolicyError(
                f"{who} learns from features of candidates, and those of this log have none: name them with "
                f"{parameter('candidates')}"
            )
        if isinstance(log.candidate_features, Numbered):
            raise PolicyError(
                f"{who} takes dense features of candidates, and those of this log are sparse: name dense columns with "
                f"{parameter('candidates')}, or write the policy in Python, which is given features as a csr_array"
            )
        if log.is_sparse and self.uses_context:
            raise PolicyError(
                f"{who} takes dense contexts beside candidates, and those of this log are sparse: name fewer of them "
                f"with {parameter('context')}, or write the policy in Python, which is given contexts as a csr_array"
            )


class SharedForm(CompiledShared):
    """A built-in policy on candidates, where one linear model with an intercept scores all of them.

    policy  The policy as the user made it. `header()` has the numbers that its state begins with.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.unit_rewards = policy.unit_rewards

    @property
    def _kind(self) -> str:
        return type(self.policy).__name__

    def features(self, n_context: int, n_item_features: int) -> int:
        """Number of weights."""
        each = n_context + 1 if self.policy.interactions else 1
        return n_context + 1 + n_item_features * each

    def state_size(self, n_context: int, n_item_features: int) -> int:
        """Number of numbers in the state."""
        return learners.HEADER + self.features(n_context, n_item_features) + n_item_features

    def initial_state(self, n_context: int, n_item_features: int) -> Floats:
        """Return a header, weights of 0, and space to compute in."""
        state = np.zeros(self.state_size(n_context, n_item_features))
        for place, value in self.policy.header().items():
            state[place] = value
        state[shared.INTERACTIONS] = float(self.policy.interactions)
        return state


class SharedLinear(SharedForm):
    """Linear scores of candidates, learned by gradient descent."""

    probabilities = staticmethod(shared.shared_linear)
    update = staticmethod(shared.shared_descend)


class SharedLinUCB(SharedForm):
    """Upper confidence bounds of one ridge regression."""

    probabilities = staticmethod(shared.shared_lin_ucb)
    update = staticmethod(shared.shared_lin_ucb_update)

    def state_size(self, n_context: int, n_item_features: int) -> int:
        size = self.features(n_context, n_item_features)
        space = max(n_item_features + (n_item_features + 1) ** 2, size)
        return learners.HEADER + size + size * size + space

    def initial_state(self, n_context: int, n_item_features: int) -> Floats:
        size, state = self.features(n_context, n_item_features), super().initial_state(n_context, n_item_features)
        inverse = state[learners.HEADER + size : learners.HEADER + size + size * size].reshape(size, size)
        np.fill_diagonal(inverse, 1 / self.policy.ridge)
        return state
