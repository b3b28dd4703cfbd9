"""Online policies, which `replay` simulates, and `Fixed`, which wraps a fixed policy for `replay`.

A compiled policy keeps its state in one array of float64. It has two static functions that Numba compiles, and two more
for sparse contexts. The built-in policies are in `drstream.policies.learners`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from drstream.errors import PolicyError, parameter
from drstream.kernels._jit import policy_function
from drstream.kernels.eligible import (
    ELIGIBLE_PROBABILITIES,
    ELIGIBLE_UPDATE,
    SPARSE_ELIGIBLE_PROBABILITIES,
    SPARSE_ELIGIBLE_UPDATE,
)
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, SPARSE_UPDATE, UPDATE
from drstream.log import Log
from drstream.policies.base import FixedPolicy, as_policy, older
from drstream.types import Floats

DENSE = ("probabilities", PROBABILITIES, "state, x, out"), ("update", UPDATE, "state, x, action, reward")
SPARSE = (
    ("sparse_probabilities", SPARSE_PROBABILITIES, "state, indices, values, out"),
    ("sparse_update", SPARSE_UPDATE, "state, indices, values, action, reward"),
)
ELIGIBLE = (
    ("eligible_probabilities", ELIGIBLE_PROBABILITIES, "state, x, eligible, out"),
    ("eligible_update", ELIGIBLE_UPDATE, "state, x, eligible, action, reward"),
)
SPARSE_ELIGIBLE = (
    ("sparse_eligible_probabilities", SPARSE_ELIGIBLE_PROBABILITIES, "state, indices, values, eligible, out"),
    ("sparse_eligible_update", SPARSE_ELIGIBLE_UPDATE, "state, indices, values, eligible, action, reward"),
)


class Loop(NamedTuple):
    """A kernel that replays some policies only."""

    learn: Any  # the kernel
    learner_for: Callable[[Any], Any]  # makes its learner from a `kernels.replay.Learner`


class AnyCompiled:
    """What compiled policies have in common, with known actions (`Compiled`) and on candidates (`CompiledShared`)."""

    uses_context = True
    unit_rewards = False  # whether it assumes rewards in [0, 1]; if they are not, the result has a note
    word = ""  # name on the command line; by default the class name in lower case, e.g. epsilon-greedy
    initial_state: Callable[..., Floats]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def bind_to(self, log: Log, name: str) -> AnyCompiled:
        """Return what the policy is on this log."""
        raise NotImplementedError

    def functions(self, name: str, sparse: bool = False, checked: bool = False) -> list[Callable[..., None]]:
        """Compile and return both functions, for sparse or dense contexts. With `checked`, they check array bounds."""
        raise NotImplementedError

    def checked_state(self, name: str, *sizes: int) -> Floats:
        """Return the state that the policy starts with, for these numbers of actions and features."""
        state = self.initial_state(*sizes)
        if not isinstance(state, np.ndarray) or state.dtype != np.float64 or state.ndim != 1:
            found = f"an array of {state.dtype}, shape {state.shape}" if isinstance(state, np.ndarray) else repr(state)
            raise PolicyError(
                f"policy {name!r}: initial_state must return a flat array of float64; it returned {found}"
            )
        return np.ascontiguousarray(state)


class Compiled(AnyCompiled):
    """An online policy whose functions Numba compiles.

    A subclass defines `initial_state(n_actions, n_features)`, which returns an array of float64, and two static
    functions:

    probabilities(state, x, out)       Sets out[a] to π(a|x) for every action. The probabilities must sum to 1.
    update(state, x, action, reward)   Learns from an event. The action is an index.

    x is the context in float64. Parameters of the policy go into the state. The functions are compiled once. If they
    are defined in a file, the compiled code is kept on disk. For sparse contexts, a subclass defines two more:

    sparse_probabilities(state, indices, values, out)
    sparse_update(state, indices, values, action, reward)

    The context is then values[j] (float64) at indices[j] (int32), and 0 elsewhere. No index occurs twice.

    For logs with eligible sets, a subclass defines one more:

    eligible_probabilities(state, x, eligible, out)

    eligible[a] is 1 (uint8) for the actions that the event could choose, else 0. out[a] must be 0 for the others. If
    the policy needs the set to learn, too, it also defines eligible_update(state, x, eligible, action, reward);
    otherwise, `update` is called. For sparse contexts, they are sparse_eligible_probabilities and
    sparse_eligible_update. A policy without `probabilities` is given sets of all actions in logs without sets.
    """

    loop: Loop | None = None  # replays this policy faster than with a call for each event, for dense contexts
    eligible_loop: Loop | None = None  # the same for logs with eligible sets
    on_candidates: Any = None  # class of what the policy is on a log of candidates, made from the policy

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        """Return the state of a policy that has learned nothing, an array of float64."""
        raise NotImplementedError(f"{type(self).__name__} has no initial_state(n_actions, n_features)")

    @staticmethod
    def probabilities(state: Any, x: Any, out: Any) -> None:
        """Set out[a] to π(a|x) for every action."""
        raise NotImplementedError

    @staticmethod
    def update(state: Any, x: Any, action: Any, reward: Any) -> None:
        """Learn from an event."""
        raise NotImplementedError

    @staticmethod
    def sparse_probabilities(state: Any, indices: Any, values: Any, out: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def sparse_update(state: Any, indices: Any, values: Any, action: Any, reward: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def eligible_probabilities(state: Any, x: Any, eligible: Any, out: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def eligible_update(state: Any, x: Any, eligible: Any, action: Any, reward: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def sparse_eligible_probabilities(state: Any, indices: Any, values: Any, eligible: Any, out: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def sparse_eligible_update(state: Any, indices: Any, values: Any, eligible: Any, action: Any, reward: Any) -> None:
        raise NotImplementedError

    @classmethod
    def _has(cls, function: str, *others: str) -> bool:
        """Whether a subclass defines a function, and none of the others later, of which it does not know."""
        return getattr(cls, function) is not getattr(Compiled, function) and not older(cls, function, *others)

    def only_within(self, sparse: bool) -> bool:
        """Whether its functions take eligible sets, and it has none without them."""
        (plain, *_), _ = SPARSE if sparse else DENSE
        (within, *_), _ = SPARSE_ELIGIBLE if sparse else ELIGIBLE
        return self._has(within, plain) and not self._has(plain)

    def functions_within(
        self, name: str, sparse: bool = False, checked: bool = False
    ) -> list[Callable[..., None] | None]:
        """Compile and return probabilities, update and eligible_update for a log with eligible sets.

        One of the updates is None.
        """
        who = f"policy {name!r}: {type(self).__name__}"
        (plain, *_), (update, signature, wanted) = SPARSE if sparse else DENSE
        ask, learn = SPARSE_ELIGIBLE if sparse else ELIGIBLE
        others = [function for function, *_ in (*DENSE, *ELIGIBLE)] if sparse else []
        if not self._has(ask[0], plain, *others[::2]):
            raise PolicyError(
                f"{who} has no static function {ask[0]}, and the log has eligible sets: without it, the policy does "
                f"not know which actions an event could choose. Write {ask[0]}({ask[2]}), or a policy in Python, whose "
                "probabilities(X, eligible) is given the sets"
            )
        within = self._has(learn[0], update, *others[1::2])
        if not within and not self._has(update, *others[1::2]):
            raise PolicyError(f"{who} has no static function {update}")
        if not within and self._has(learn[0]):
            raise PolicyError(
                f"{who} has a static function {update} of its own, but not {learn[0]}, and the log has eligible sets: "
                f"write {learn[0]}({learn[2]})"
            )
        forms = [ask, learn if within else (update, signature, wanted)]
        found = [compile_function(getattr(self, f), form, words, f"{who}.{f}", checked) for f, form, words in forms]
        return [found[0], None, found[1]] if within else [*found, None]

    def functions(self, name: str, sparse: bool = False, checked: bool = False) -> list[Callable[..., None]]:
        kind = type(self)
        who = f"policy {name!r}: {kind.__name__}"
        for (function, *_), (other, *_) in zip(*((SPARSE, DENSE) if sparse else (DENSE, SPARSE)), strict=True):
            if getattr(kind, function) is not getattr(Compiled, function) and not older(kind, function, other):
                continue
            if not sparse:
                raise PolicyError(f"{who} has no static function {function}")
            raise PolicyError(
                f"{who} has no static function {function}, and the log's contexts are sparse. EpsilonGreedy, Boltzmann "
                "and SquareCB take them, UCB1 and Exp3 look at none; or write sparse_probabilities and sparse_update, "
                "or a policy in Python, which is given contexts as a csr_array"
            )
        forms = SPARSE if sparse else DENSE
        return [
            compile_function(getattr(kind, f), signature, wanted, f"{who}.{f}", checked)
            for f, signature, wanted in forms
        ]

    def own_loop(self, sets: bool = False) -> Loop | None:
        """Return `loop`, or `eligible_loop`, unless a subclass has functions of its own that it does not know."""
        name = "eligible_loop" if sets else "loop"
        others = (*(function for function, *_ in (*DENSE, *ELIGIBLE)), "initial_state")
        return None if older(type(self), name, *others) else getattr(type(self), name)

    def bind_to(self, log: Log, name: str) -> AnyCompiled:
        kind = type(self)
        if not log.has_candidates:
            if getattr(self, "interactions", False):
                raise PolicyError(
                    f"policy {name!r}: {kind.__name__}(interactions=True) learns from products of features of contexts "
                    f"and candidates, and this log has no {parameter('candidates')}: leave it out"
                )
            return self
        if kind.on_candidates is None or older(kind, "on_candidates", *(f for f, *_ in DENSE), "initial_state"):
            raise PolicyError(
                f"policy {name!r}: {kind.__name__} learns about actions that all events share, and this log has "
                f"{parameter('candidates')}, a set for each event: use EpsilonGreedy, Boltzmann, SquareCB or LinUCB, "
                "which learn from features of candidates, or write a CompiledShared"
            )
        found: AnyCompiled = kind.on_candidates(self)
        return found.bind_to(log, name)


def compile_function(function: Any, signature: Any, wanted: str, who: str, checked: bool) -> Callable[..., None]:
    """Compile a function of a compiled policy for the signature by which kernels call it."""
    found = tuple(inspect.signature(getattr(function, "py_func", function)).parameters)
    if len(found) != len(signature.args):
        raise PolicyError(f"{who} takes ({', '.join(found)}); it must be a static function of ({wanted})")
    try:
        return policy_function(function, signature, checked)
    except Exception as error:
        says = " ".join(str(error).split())
        raise PolicyError(f"{who} cannot be compiled by Numba: {says[:600]}") from error


class Fixed:
    """Wraps a fixed policy for `replay`. It does not learn, so `replay` must agree with `evaluate`."""

    def __init__(self, policy: Any) -> None:
        self.policy: FixedPolicy = as_policy(policy, "policy")


Online = Any  # AnyCompiled, Fixed, or an object of the Python protocol


def as_online(policy: Any, name: str) -> Online:
    """Return a policy that `replay` can run. Fixed policies and functions are wrapped in `Fixed`."""
    if isinstance(policy, type):
        raise PolicyError(f"policy {name!r} is a class: pass an instance, {policy.__name__}(...)")
    if isinstance(policy, AnyCompiled | Fixed):
        return policy
    if isinstance(policy, FixedPolicy) or not hasattr(policy, "update"):
        return Fixed(as_policy(policy, name))
    missing = [m for m in ("reset", "probabilities", "update") if not callable(getattr(policy, m, None))]
    if missing:
        raise PolicyError(
            f"policy {name!r}: a policy that learns has reset(), probabilities(X) and update(x, action, reward), and "
            "perhaps version; on a log of candidates, probabilities(X, Z, starts) and update(x, z, reward). "
            f"{type(policy).__name__} lacks {', '.join(missing)}"
        )
    return policy


def check_for_candidates(policy: Any, name: str) -> None:
    """Raise an error unless a policy in Python takes what it is given on a log of candidates."""
    for method, wanted in (("probabilities", "X, Z, starts"), ("update", "x, z, reward")):
        try:
            found = inspect.signature(getattr(policy, method))
        except ValueError:  # compiled code may have none
            continue
        try:
            found.bind(*wanted.split(", "))
            if "action" in found.parameters:  # it would be given z
                raise TypeError
        except TypeError:
            raise PolicyError(
                f"policy {name!r}: {method} of {type(policy).__name__} takes ({', '.join(found.parameters)}). On a log "
                f"of candidates, it must take ({wanted}): the features Z (M, m) of all candidates, of which those of "
                "event i begin at starts[i], and z, those of the candidate that was taken"
            ) from None
