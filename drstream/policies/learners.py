"""The learners that come with drstream, compiled: each is a class here and functions in `drstream.kernels.learners`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from drstream.errors import PolicyError, near
from drstream.kernels import learners
from drstream.policies.online import Compiled
from drstream.types import Floats


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
