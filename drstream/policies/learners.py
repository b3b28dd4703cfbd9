"""The compiled learners of drstream: each is a class here, with functions in `drstream.kernels.learners`."""

from __future__ import annotations

import math

import numpy as np

from drstream.errors import PolicyError, suggest
from drstream.kernels import greedy, learners, linear
from drstream.parameters import number, truth
from drstream.policies.online import Compiled, Loop
from drstream.policies.shared import SharedLinear, SharedLinUCB
from drstream.types import Floats

__all__ = ["UCB1", "Boltzmann", "EpsilonGreedy", "Exp3", "LinUCB", "SquareCB"]  # what the command line knows, too


def _state(n_actions: int, header: dict[int, float], size: int) -> Floats:
    """Return a header and `size` zeros. np.zeros takes no memory for the zeros until they are used."""
    state = np.zeros(learners.HEADER + size)
    state[learners.N_ACTIONS] = n_actions
    for place, value in header.items():
        state[place] = value
    return state


class _Linear(Compiled):
    """Learns, for each action, a score that is linear in the context, with an intercept, by gradient descent.

    Each update changes the weights of the chosen action. The loss is the squared loss (r - score)², or the logistic
    loss of rewards in [0, 1]. After n updates, the rate is learning_rate / (1 + learning_rate_decay * n). The step is
    divided by 1 + rate |x|², as an implicit step is (Toulis, Airoldi 2017), so that large features do no harm.

    On a log of candidates, all candidates share one score, which is linear in [x, z]: the context, and the features of
    a candidate. With `interactions`, it is also linear in all products x_i z_j. Without them, the context changes no
    choice.
    """

    kind: float  # which policy the state is of, for `learn_linear`
    update = staticmethod(learners.descend)
    sparse_update = staticmethod(learners.sparse_descend)

    def __init__(self, learning_rate: float, learning_rate_decay: float, loss: str, interactions: bool) -> None:
        who = type(self).__name__
        self.learning_rate = number("learning_rate", learning_rate, who=who, above=True)
        self.learning_rate_decay = number("learning_rate_decay", learning_rate_decay, who=who)
        if loss not in ("squared", "logistic"):
            raise PolicyError(f"{who}: loss={loss!r}: {suggest(str(loss), ['squared', 'logistic'])}")
        self.loss = loss
        self.interactions = truth("interactions", interactions, who=who)

    @property
    def unit_rewards(self) -> bool:  # type: ignore[override]
        return self.loss == "logistic"

    def _parameters(self) -> tuple[float, float]:
        raise NotImplementedError

    def header(self) -> dict[int, float]:
        """Return the numbers that the state begins with, by their places."""
        parameter, decay = self._parameters()
        return {
            learners.PARAMETER: parameter,
            learners.PARAMETER_DECAY: decay,
            learners.RATE: self.learning_rate,
            learners.RATE_DECAY: self.learning_rate_decay,
            learners.LOGISTIC: float(self.loss == "logistic"),
            learners.KIND: self.kind,
        }

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, self.header(), n_actions * (n_features + 1))


class EpsilonGreedy(_Linear):
    """Takes a random action with probability epsilon, otherwise the action with the largest learned score.

    Actions in a tie are equally likely. After n updates, the probability of a random action is
    epsilon / (1 + epsilon_decay * n). The paper's section 6.2 evaluates such a policy.
    """

    probabilities = staticmethod(learners.epsilon_greedy)
    sparse_probabilities = staticmethod(learners.sparse_epsilon_greedy)
    eligible_probabilities = staticmethod(learners.eligible_linear)
    sparse_eligible_probabilities = staticmethod(learners.sparse_eligible_linear)
    loop = Loop(greedy.learn_greedy, greedy.learner_for)
    eligible_loop = Loop(greedy.learn_greedy_eligible, greedy.learner_for)
    on_candidates = SharedLinear
    kind = learners.EPSILON_GREEDY

    def __init__(
        self,
        epsilon: float = 0.1,
        *,
        epsilon_decay: float = 0.0,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
        interactions: bool = False,
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss, interactions)
        self.epsilon = number("epsilon", epsilon, 0, 1, who="EpsilonGreedy")
        self.epsilon_decay = number("epsilon_decay", epsilon_decay, who="EpsilonGreedy")

    def _parameters(self) -> tuple[float, float]:
        return self.epsilon, self.epsilon_decay


class Boltzmann(_Linear):
    """Takes actions with probabilities proportional to exp(score / temperature), for learned scores.

    After n updates, the temperature is temperature / (1 + cooling * n).
    """

    probabilities = staticmethod(learners.boltzmann)
    sparse_probabilities = staticmethod(learners.sparse_boltzmann)
    eligible_probabilities = staticmethod(learners.eligible_linear)
    sparse_eligible_probabilities = staticmethod(learners.sparse_eligible_linear)
    loop = Loop(linear.learn_linear, linear.learner_for)
    eligible_loop = Loop(linear.learn_linear_eligible, linear.learner_for)
    on_candidates = SharedLinear
    kind = learners.BOLTZMANN

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        cooling: float = 0.0,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
        interactions: bool = False,
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss, interactions)
        self.temperature = number("temperature", temperature, who="Boltzmann", above=True)
        self.cooling = number("cooling", cooling, who="Boltzmann")

    def _parameters(self) -> tuple[float, float]:
        return self.temperature, self.cooling


class SquareCB(_Linear):
    """Inverse gap weighting of learned scores (Foster, Rakhlin 2020).

    An action whose score is δ below the best has probability 1 / (K + γ δ). The best action has the rest. After n
    updates, γ = gamma * (1 + n)**exponent.
    """

    probabilities = staticmethod(learners.square_cb)
    sparse_probabilities = staticmethod(learners.sparse_square_cb)
    eligible_probabilities = staticmethod(learners.eligible_linear)
    sparse_eligible_probabilities = staticmethod(learners.sparse_eligible_linear)
    loop = Loop(linear.learn_linear, linear.learner_for)
    eligible_loop = Loop(linear.learn_linear_eligible, linear.learner_for)
    on_candidates = SharedLinear
    kind = learners.SQUARE_CB

    def __init__(
        self,
        gamma: float = 10.0,
        *,
        exponent: float = 0.5,
        learning_rate: float = 0.05,
        learning_rate_decay: float = 0.0,
        loss: str = "squared",
        interactions: bool = False,
    ) -> None:
        super().__init__(learning_rate, learning_rate_decay, loss, interactions)
        self.gamma = number("gamma", gamma, who="SquareCB")
        self.exponent = number("exponent", exponent, who="SquareCB")

    def _parameters(self) -> tuple[float, float]:
        return self.gamma, self.exponent


class LinUCB(Compiled):
    """Takes the action with the largest upper confidence bound (Li et al. 2010, algorithm 1).

    Each action has a ridge regression with an intercept. Its bound is θ·x + alpha sqrt(x' A⁻¹ x), where A begins as
    ridge times the identity. The policy is deterministic.

    On a log of candidates, all candidates share one ridge regression, on [x, z] and, with `interactions`, on all
    products x_i z_j.
    """

    word = "linucb"
    on_candidates = SharedLinUCB
    probabilities = staticmethod(learners.lin_ucb)
    eligible_probabilities = staticmethod(learners.eligible_lin_ucb)
    update = staticmethod(learners.lin_ucb_update)

    def __init__(self, alpha: float = 1.0, *, ridge: float = 1.0, interactions: bool = False) -> None:
        self.alpha = number("alpha", alpha, who="LinUCB")
        self.ridge = number("ridge", ridge, who="LinUCB", above=True)
        self.interactions = truth("interactions", interactions, who="LinUCB")

    def header(self) -> dict[int, float]:
        """Return the numbers that the state begins with, by their places."""
        return {learners.PARAMETER: self.alpha}

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        size = n_features + 1
        arm = np.concatenate([np.zeros(size), (np.eye(size) / self.ridge).ravel()])
        state = _state(n_actions, self.header(), n_actions * len(arm))
        state[learners.HEADER :] = np.tile(arm, n_actions)
        return state


class UCB1(Compiled):
    """Takes every action once, then the one with the largest mean reward + scale sqrt(2 ln n / n_a).

    This is the rule of Auer, Cesa-Bianchi, Fischer (2002). It ignores the context, assumes rewards in [0, 1], and is
    deterministic.
    """

    uses_context = False
    unit_rewards = True
    probabilities = staticmethod(learners.ucb1)
    eligible_probabilities = staticmethod(learners.eligible_ucb1)
    update = staticmethod(learners.ucb1_update)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = number("scale", scale, who="UCB1")

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, {learners.PARAMETER: self.scale * math.sqrt(2)}, 2 * n_actions)


class Exp3(Compiled):
    """Mixes exponential weights with the uniform distribution (Auer, Cesa-Bianchi, Freund, Schapire 2002).

    It ignores the context and assumes rewards in [0, 1].
    """

    uses_context = False
    unit_rewards = True
    probabilities = staticmethod(learners.exp3)
    update = staticmethod(learners.exp3_update)
    eligible_probabilities = staticmethod(learners.eligible_exp3)
    eligible_update = staticmethod(learners.eligible_exp3_update)

    def __init__(self, gamma: float = 0.1) -> None:
        self.gamma = number("gamma", gamma, 0, 1, who="Exp3", above=True)

    def initial_state(self, n_actions: int, n_features: int) -> Floats:
        return _state(n_actions, {learners.PARAMETER: self.gamma}, n_actions)
