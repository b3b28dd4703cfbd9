"""Policies that learn while they run, as `replay` takes them, and `Fixed` for those that do not learn.

A compiled policy keeps all that it knows in one array of float64 and gives two static functions that Numba compiles,
and two more for contexts that are sparse; the built-in ones are in `drstream.policies.learners`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from drstream.errors import PolicyError
from drstream.kernels._jit import policy_function
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, SPARSE_UPDATE, UPDATE
from drstream.policies.base import FixedPolicy, as_policy
from drstream.types import Floats

DENSE = ("probabilities", PROBABILITIES, "state, x, out"), ("update", UPDATE, "state, x, action, reward")
SPARSE = (
    ("sparse_probabilities", SPARSE_PROBABILITIES, "state, indices, values, out"),
    ("sparse_update", SPARSE_UPDATE, "state, indices, values, action, reward"),
)


class Compiled:
    """A policy in functions that Numba can compile.

    Give `initial_state(n_actions, n_features)`, an array of float64, and the static functions

    probabilities(state, x, out)       out[a] <- π(a|x), for every action; they must sum to 1
    update(state, x, action, reward)   learn from an event; the action is its index

    x is the context in float64. Parameters of the policy go into the state. The functions are compiled once and kept
    on disk, where they stand in a file. For logs whose contexts are sparse, give

    sparse_probabilities(state, indices, values, out)
    sparse_update(state, indices, values, action, reward)

    where the context has values[j] (float64) at indices[j] (int32), no index twice, and is 0 elsewhere.
    """

    uses_context = True
    unit_rewards = False  # it takes rewards to lie in [0, 1]; a note is made if they do not
    word = ""  # what it is called on the command line; by default its name in lower case, e.g. epsilon-greedy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        raise NotImplementedError(f"{type(self).__name__} has no initial_state(n_actions, n_features)")

    @staticmethod
    def probabilities(state: Any, x: Any, out: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def update(state: Any, x: Any, action: Any, reward: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def sparse_probabilities(state: Any, indices: Any, values: Any, out: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def sparse_update(state: Any, indices: Any, values: Any, action: Any, reward: Any) -> None:
        raise NotImplementedError

    def functions(self, name: str, sparse: bool = False, checked: bool = False) -> list[Callable[..., None]]:
        """Both functions, for sparse contexts or for others, compiled; with `checked`, they check bounds of arrays."""
        kind = type(self)
        who = f"policy {name!r}: {kind.__name__}"
        for (function, *_), (other, *_) in zip(*((SPARSE, DENSE) if sparse else (DENSE, SPARSE)), strict=True):
            if getattr(kind, function) is not getattr(Compiled, function) and not _older(kind, function, other):
                continue
            if not sparse:
                raise PolicyError(f"{who} has no static function {function}")
            raise PolicyError(
                f"{who} has no static function {function}, and the log's contexts are sparse. EpsilonGreedy, Boltzmann "
                "and SquareCB take them, UCB1 and Exp3 look at none; or write sparse_probabilities and sparse_update, "
                "or a policy in Python, which is given contexts as a csr_array"
            )
        forms = SPARSE if sparse else DENSE
        return [_compile(getattr(kind, f), signature, wanted, f"{who}.{f}", checked) for f, signature, wanted in forms]

    def checked_state(self, name: str, n_actions: int, n_features: int) -> Floats:
        state = self.initial_state(n_actions, n_features)
        if not isinstance(state, np.ndarray) or state.dtype != np.float64 or state.ndim != 1:
            found = f"an array of {state.dtype}, shape {state.shape}" if isinstance(state, np.ndarray) else repr(state)
            raise PolicyError(
                f"policy {name!r}: initial_state must return a flat array of float64; it returned {found}"
            )
        return np.ascontiguousarray(state)


def _older(kind: type, function: str, other: str) -> bool:
    """Is the function inherited, while the class has an `other` of its own, which it does not go with?"""
    homes = [next(i for i, c in enumerate(kind.__mro__) if name in vars(c)) for name in (function, other)]
    return homes[0] > homes[1]


def _compile(function: Any, signature: Any, wanted: str, who: str, checked: bool) -> Callable[..., None]:
    found = tuple(inspect.signature(getattr(function, "py_func", function)).parameters)
    if len(found) != len(signature.args):
        raise PolicyError(f"{who} takes ({', '.join(found)}); it must be a static function of ({wanted})")
    try:
        return policy_function(function, signature, checked)
    except Exception as error:
        says = " ".join(str(error).split())
        raise PolicyError(f"{who} cannot be compiled by Numba: {says[:600]}") from error


class Fixed:
    """A fixed policy, run through replay: it does not learn, so that replay must agree with `evaluate`."""

    def __init__(self, policy: Any) -> None:
        self.policy: FixedPolicy = as_policy(policy, "policy")


Online = Any  # Compiled, Fixed, or an object of the Python protocol


def as_online(policy: Any, name: str) -> Online:
    """What `replay` can run: fixed policies and functions are wrapped in `Fixed`."""
    if isinstance(policy, type):
        raise PolicyError(f"policy {name!r} is a class: pass an instance, {policy.__name__}(...)")
    if isinstance(policy, Compiled | Fixed):
        return policy
    if isinstance(policy, FixedPolicy) or not hasattr(policy, "update"):
        return Fixed(as_policy(policy, name))
    missing = [m for m in ("reset", "probabilities", "update") if not callable(getattr(policy, m, None))]
    if missing:
        raise PolicyError(
            f"policy {name!r}: a policy that learns has reset(), probabilities(X) and update(x, action, reward), and "
            f"perhaps version; {type(policy).__name__} lacks {', '.join(missing)}"
        )
    return policy
