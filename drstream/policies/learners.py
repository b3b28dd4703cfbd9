"""The learners that come with drstream, compiled: each is a class here and functions in `drstream.kernels.learners`."""

from __future__ import annotations

import math

import numpy as np

from drstream.errors import PolicyError, suggest
from drstream.kernels import learners
from drstream.parameters import number
from drstream.policies.online import Compiled
from drstream.types import Floats


def _state(n_actions: int, header: dict[int, float], size: int) -> Floats:
    """A header, then zeros that are not written here: such memory is not taken before it is used."""
    state = np.zeros(learners.HEADER + size)
    state[learners.N_ACTIONS] = n_actions
    for place, value in header.items():
        state[place] = value
    return state


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
        self.learning_rate = number("learning_rate", learning_rate, who=who, above=True)
        self.learning_rate_decay = number("learning_rate_decay", learning_rate_decay, who=who)
        if loss not in ("squared", "logistic"):
            raise PolicyError(f"{who}: loss={loss!r}: {suggest(str(loss), ['squared', 'logistic'])}")
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
        self.epsilon = number("epsilon", epsilon, 0, 1, who="EpsilonGreedy")
        self.epsilon_decay = number("epsilon_decay", epsilon_decay, who="EpsilonGreedy")

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
        self.temperature = number("temperature", temperature, who="Boltzmann", above=True)
        self.cooling = number("cooling", cooling, who="Boltzmann")

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
        self.gamma = number("gamma", gamma, who="SquareCB")
        self.exponent = number("exponent", exponent, who="SquareCB")

    def _parameters(self) -> tuple[float, float]:
        return self.gamma, self.exponent


class LinUCB(Compiled):
    """The largest upper confidence bound of ridge regressions, one for each action (Li et al. 2010, algorithm 1).

    θ·x + alpha sqrt(x' A⁻¹ x), with an intercept; A begins as ridge times the identity. It is deterministic.
    """

    word = "linucb"
    probabilities = staticmethod(learners.lin_ucb)
    update = staticmethod(learners.lin_ucb_update)

    def __init__(self, alpha: float = 1.0, *, ridge: float = 1.0) -> None:
        self.alpha = number("alpha", alpha, who="LinUCB")
        self.ridge = number("ridge", ridge, who="LinUCB", above=True)

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
        self.scale = number("scale", scale, who="UCB1")

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
        self.gamma = number("gamma", gamma, 0, 1, who="Exp3", above=True)

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, {learners.PARAMETER: self.gamma}, n_actions)


__all__ = [  # found by inspection, so that a new learner is named once: where it is defined
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and value.__module__ == __name__ and not name.startswith("_")
]
