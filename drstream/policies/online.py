"""Policies that learn while they run, and `Fixed`, for those that do not: what `replay` can run.

A compiled policy keeps all that it knows in one array of float64 and gives two static functions that Numba compiles,
and two more for contexts that are sparse; the built-in ones are in `drstream.kernels.learners`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.errors import PolicyError, near
from drstream.kernels import learners
from drstream.kernels._jit import policy_function
from drstream.kernels.replay import PROBABILITIES, SPARSE_PROBABILITIES, SPARSE_UPDATE, UPDATE
from drstream.policies.base import FixedPolicy, as_policy

Floats = NDArray[np.float64]

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


def _state(n_actions: int, header: dict[int, float], size: int) -> Floats:
    """A header, then zeros that are not written here: such memory is not taken before it is used."""
    state = np.zeros(learners.HEADER + size)
    state[learners.N_ACTIONS] = n_actions
    for place, value in header.items():
        state[place] = value
    return state


def _number(who: str, name: str, value: Any, least: float = 0.0, most: float = math.inf, open_: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (least < number if open_ else least <= number) or not number <= most or math.isinf(number):
        wanted = f"{'above' if open_ else 'at least'} {least:g}" + (f" and at most {most:g}" if most < math.inf else "")
        raise PolicyError(f"{who}: {name}={value!r} must be a number {wanted}")
    return number


class _Linear(Compiled):
    """Scores that are linear in the context, with an intercept, for each action; learned by gradient descent.

    A step on the chosen action's weights goes with learning_rate / (1 + learning_rate_decay * n) after n updates, down
    the squared loss (r - score)², or the logistic loss of rewards in [0, 1]. It is divided by 1 + rate |x|², as an
    implicit step is (Toulis, Airoldi 2017), so that large features do no harm.
    """

    update = staticmethod(learners.descend)
    sparse_update = staticmethod(learners.sparse_descend)

    def __init__(self, learning_rate: float, learning_rate_decay: float, loss: str) -> None:
        who = type(self).__name__
        self.learning_rate = _number(who, "learning_rate", learning_rate, open_=True)
        self.learning_rate_decay = _number(who, "learning_rate_decay", learning_rate_decay)
        if loss not in ("squared", "logistic"):
            raise PolicyError(f"{who}: loss={loss!r}: {near(str(loss), ['squared', 'logistic'])}")
        self.loss = loss

    @property
    def unit_rewards(self) -> bool:  # type: ignore[override]
        return self.loss == "logistic"

    def _parameters(self) -> tuple[float, float]:
        raise NotImplementedError

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        parameter, decay = self._parameters()
        header = {
            learners.PARAMETER: parameter,
            learners.PARAMETER_DECAY: decay,
            learners.RATE: self.learning_rate,
            learners.RATE_DECAY: self.learning_rate_decay,
            learners.LOGISTIC: float(self.loss == "logistic"),
        }
        return _state(n_actions, header, n_actions * (n_features + 1))


class EpsilonGreedy(_Linear):
    """The action with the largest learned score (any of them in a tie), with probability epsilon one at random.

    After n updates epsilon is epsilon / (1 + epsilon_decay * n). The paper's section 6.2 evaluates such a policy.
    """

    probabilities = staticmethod(learners.epsilon_greedy)
    sparse_probabilities = staticmethod(learners.sparse_epsilon_greedy)

    def __init__(
        self,
        epsilon: float = 0.1,
        *,
        epsilon_decay: float = 0.0,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss)
        self.epsilon = _number("EpsilonGreedy", "epsilon", epsilon, most=1)
        self.epsilon_decay = _number("EpsilonGreedy", "epsilon_decay", epsilon_decay)

    def _parameters(self) -> tuple[float, float]:
        return self.epsilon, self.epsilon_decay


class Boltzmann(_Linear):
    """Probabilities proportional to exp(score / temperature), of learned scores.

    After n updates the temperature is temperature / (1 + cooling * n).
    """

    probabilities = staticmethod(learners.boltzmann)
    sparse_probabilities = staticmethod(learners.sparse_boltzmann)

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        cooling: float = 0.0,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss)
        self.temperature = _number("Boltzmann", "temperature", temperature, open_=True)
        self.cooling = _number("Boltzmann", "cooling", cooling)

    def _parameters(self) -> tuple[float, float]:
        return self.temperature, self.cooling


class SquareCB(_Linear):
    """Inverse gap weighting of learned scores (Foster, Rakhlin 2020).

    An action whose score is δ below the best has probability 1 / (K + γ δ), the best one the rest; after n updates
    γ = gamma * (1 + n)**exponent.
    """

    probabilities = staticmethod(learners.square_cb)
    sparse_probabilities = staticmethod(learners.sparse_square_cb)

    def __init__(
        self,
        gamma: float = 10.0,
        *,
        exponent: float = 0.5,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss)
        self.gamma = _number("SquareCB", "gamma", gamma)
        self.exponent = _number("SquareCB", "exponent", exponent)

    def _parameters(self) -> tuple[float, float]:
        return self.gamma, self.exponent


class LinUCB(Compiled):
    """The largest upper confidence bound of ridge regressions, one for each action (Li et al. 2010, algorithm 1).

    θ·x + alpha sqrt(x' A⁻¹ x), with an intercept; A begins as ridge times the identity. It is deterministic.
    """

    probabilities = staticmethod(learners.lin_ucb)
    update = staticmethod(learners.lin_ucb_update)

    def __init__(self, alpha: float = 1.0, *, ridge: float = 1.0) -> None:
        self.alpha = _number("LinUCB", "alpha", alpha)
        self.ridge = _number("LinUCB", "ridge", ridge, open_=True)

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        size = n_features + 1
        arm = np.concatenate([np.zeros(size), (np.eye(size) / self.ridge).ravel()])
        state = _state(n_actions, {learners.PARAMETER: self.alpha}, n_actions * len(arm))
        state[learners.HEADER :] = np.tile(arm, n_actions)
        return state


class UCB1(Compiled):
    """Every action once, then the largest mean + scale sqrt(2 ln n / n_a) (Auer, Cesa-Bianchi, Fischer 2002).

    It does not look at the context, takes rewards to lie in [0, 1], and is deterministic.
    """

    uses_context = False
    unit_rewards = True
    probabilities = staticmethod(learners.ucb1)
    update = staticmethod(learners.ucb1_update)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = _number("UCB1", "scale", scale)

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, {learners.PARAMETER: self.scale * math.sqrt(2)}, 2 * n_actions)


class Exp3(Compiled):
    """Exponential weights, mixed with the uniform distribution (Auer, Cesa-Bianchi, Freund, Schapire 2002).

    It does not look at the context and takes rewards to lie in [0, 1].
    """

    uses_context = False
    unit_rewards = True
    probabilities = staticmethod(learners.exp3)
    update = staticmethod(learners.exp3_update)

    def __init__(self, gamma: float = 0.1) -> None:
        self.gamma = _number("Exp3", "gamma", gamma, most=1, open_=True)

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, {learners.PARAMETER: self.gamma}, n_actions)


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
