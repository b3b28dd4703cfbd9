"""Fixed policies as `evaluate` uses them: a policy fills in the probabilities of a block, action by action."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drstream.buffers import Rule, by_position, call_flat, fill_from
from drstream.errors import PolicyError, parameter, phrase
from drstream.findings import STOP, doubt
from drstream.kernels.observe import ARGMAX
from drstream.log import Events, Log
from drstream.log.labels import describe_labels
from drstream.log.rows import Origin
from drstream.policies.sets import wants_sets, with_sets
from drstream.types import Floats


class FixedPolicy:
    """A policy that does not change: ν(a|x).

    A subclass defines `probabilities(X)`, which takes contexts (n, d) and returns (n, K). If it has a second parameter,
    `eligible`, it is given booleans (n, K): whether an event could choose an action. `evaluate` calls `bind` once
    before a pass, with the log, and then `fill` once for each block, with an array (K, n).
    """

    name = "policy"
    n_actions: int | None = None  # K, if the policy itself knows it
    uses_context = True
    columns: tuple[str, ...] = ()  # columns of the log that the policy reads
    only_logged = False  # whether it knows ν(a_k|x_k) for logged actions only: see `logged`
    given_by: str | None = None  # the column of floating-point numbers that these are, as they are, if they are that
    uses_candidates = True  # whether it looks at features of candidates, on a log that has them
    direct = False  # whether `logged` needs no probabilities of all actions, although `fill` knows them
    command = "optimize"  # the command that learns such a policy, or its model
    learned_on: tuple[Origin, ...] = ()  # events that it, or a model that it was learned with, has seen
    identity: str | None = None  # what tells its versions apart, if the user said so: see `named`
    _wants: str | None = None  # whether `probabilities` takes eligible sets, once it was looked at

    def probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return ν(a|x) as (n, K), for contexts (n, d)."""
        raise NotImplementedError(f"{type(self).__name__} has no probabilities(X)")

    @property
    def asked(self) -> Callable[..., Any]:
        """The function of X that gives probabilities. If it takes `eligible`, too, it is given the eligible sets."""
        return self.probabilities

    @property
    def known_labels(self) -> Sequence[Any] | None:
        """Labels of the actions, if the policy itself knows them."""
        return None

    def needs_actions(self, log: Log) -> bool:
        """Whether the policy must know all actions. If not, it knows probabilities of logged actions only."""
        return True

    def bind(self, log: Log, name: str) -> FixedPolicy:
        """Check that the policy fits the log, and return a copy of the policy for it."""
        bound = copy.copy(self)
        bound.name = name
        if self.n_actions not in (None, log.n_actions):
            raise PolicyError(
                f"policy {name!r} has {self.n_actions} actions, the log has {describe_labels(log.labels)}: "
                f"pass all labels with {parameter('actions')} when you open the log, or correct the policy"
            )
        bound.n_actions = log.n_actions
        return bound

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        """Return what the policy is on a log of candidates. Such a policy has `fill_flat` instead of `fill`."""
        raise not_for_candidates(self, name)

    def bind_to(self, log: Log, name: str) -> FixedPolicy:
        """Bind the policy to a log of either kind."""
        if not log.has_candidates:
            return self.bind(log, name)
        if older(type(self), "for_candidates", "fill", "probabilities", "logged"):
            raise not_for_candidates(self, name)
        return self.for_candidates(log, name)

    def fill_flat(self, block: Events, out: Floats) -> None:
        """out[c] <- ν(c|x) for all candidates of the block's events, one event's after the other's."""
        raise NotImplementedError

    def fill(self, block: Events, out: Floats) -> None:
        """out[a, i] <- ν(a|x_i)."""
        self._wants = self._wants or wants_sets(self.asked)
        function = with_sets(self.asked, self._wants, block, len(out))
        fill_from(function, f"policy {self.name!r}", PolicyError, block, out)

    @property
    def steady(self) -> tuple[int, float] | None:
        """Of a bound policy that looks at nothing: the action it takes, and how often a random one instead."""
        return None

    @property
    def rule(self) -> Rule | None:
        """How a bound policy acts by linear scores. Such policies share one product a block; None if it is not one."""
        return None

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        """Return ν(a_i|x_i) of the logged actions, for a policy with `only_logged` or `direct`.

        mass  If given, gains the sums of ν(a|x) over the events, by action; NaN if the policy does not know them.
        """
        raise NotImplementedError


def older(kind: type, name: str, *others: str) -> bool:
    """Whether `name` is inherited from an older class than one of the others, and so does not know of it."""
    homes = {n: next(i for i, c in enumerate(kind.__mro__) if n in vars(c)) for n in (name, *others)}
    return any(homes[name] > homes[other] for other in others)


def not_for_candidates(policy: FixedPolicy, name: str) -> PolicyError:
    return PolicyError(
        f"policy {name!r}, a {type(policy).__name__}, chooses among actions that all events share, and this log has "
        f"{parameter('candidates')}, a set for each event: use Uniform, Constant, Linear, Softmax, Epsilon, Greedy, "
        "Column or from_function"
    )


def steady_rule(policy: FixedPolicy, actions: int, features: int) -> Rule | None:
    """How a bound policy that looks at nothing acts, as one of linear scores with weights of 0; else None."""
    if policy.steady is None or older(type(policy), "steady", "fill"):
        return None
    choice, epsilon = policy.steady
    intercept = np.zeros(actions)
    intercept[choice] = 1.0
    return Rule(ARGMAX, np.zeros((actions, features)), intercept, epsilon)


def rule_of(policy: FixedPolicy) -> Rule | None:
    """How a bound policy acts by linear scores; None if it does not, or if a subclass fills in something else."""
    if policy.only_logged or older(type(policy), "rule", "fill"):
        return None
    return policy.rule


class Function(FixedPolicy):
    """A plain function of contexts, or an object with `probabilities(X)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        bound = copy.copy(self)
        bound.name = name
        return bound

    def fill_flat(self, block: Events, out: Floats) -> None:
        call_flat(self.function, block, f"policy {self.name!r}", PolicyError, out)

    def probabilities(self, X: NDArray[Any], *eligible: Any) -> NDArray[Any]:
        return by_position(self.function(X, *eligible), f"policy {self.name!r}", PolicyError)

    @property
    def asked(self) -> Callable[..., Any]:
        return self.function


def as_policy(policy: Any, name: str) -> FixedPolicy:
    if isinstance(policy, FixedPolicy):
        return policy
    if isinstance(policy, type):
        raise PolicyError(f"policy {name!r} is a class: pass an instance, {policy.__name__}(...)")
    if isinstance(policy, list | tuple):
        raise PolicyError(f"policy {name!r} is a {type(policy).__name__}: pass a mapping of names to policies")
    if callable(getattr(policy, "update", None)) and hasattr(policy, "probabilities"):
        raise PolicyError(f"policy {name!r}: {type(policy).__name__} learns while it runs; replay it with drs.replay")
    if callable(getattr(policy, "probabilities", None)):
        return Function(policy.probabilities)
    if callable(policy):
        return Function(policy)
    kind = type(policy).__name__
    if callable(getattr(policy, "predict_proba", None)):
        raise PolicyError(f"policy {name!r} is a {kind}: wrap it, drs.policies.from_sklearn(...)")
    if callable(getattr(policy, "predict", None)):
        wrapped = "model" if hasattr(policy, "fill") else "drs.models.from_sklearn(...)"
        raise PolicyError(
            f"policy {name!r} is a {kind}, which predicts rewards: play its best action with "
            f"drs.policies.Greedy({wrapped})"
        )
    raise PolicyError(
        f"policy {name!r} is a {kind}: a policy is an object with probabilities(X), or a "
        "function of X, that returns (n, K)"
    )


def named(identity: str, policy: Any) -> FixedPolicy:
    """Return a policy with an identity of your own choosing, for states and checkpoints.

    A state of `evaluate(..., state=)` cannot know what a function of yours reads or calls. With an identity, it takes
    your word: policies of one identity are the same. Change it whenever the policy changes.

    >>> named("v3", lambda X: np.full((len(X), 2), 0.5)).identity
    'v3'
    """
    if not isinstance(identity, str) or not identity:
        raise PolicyError(f"named({identity!r}, ...): the identity must be a word")
    found = copy.copy(as_policy(policy, identity))
    found.identity = identity
    return found


def doubt_if_learned_here(policy: FixedPolicy, name: str, log: Log) -> None:
    """Say so if a policy was learned from events of this log, on which it looks better than it is."""
    for origin, how in zip(policy.learned_on, ("learned from", *["learned with a model of"] * 2), strict=False):
        if origin.shares_rows_with(log.origin):
            split = phrase("train, test = log.split(0.7)", f"drstream {policy.command} --share 0.7")
            doubt(
                STOP,
                "learned here",
                name,
                f"policy {name!r} was {how} events that it is now evaluated on, which flatters it: learn on one part "
                f"and evaluate on the other, {split}",
            )
            return


def as_policies(policies: Any) -> dict[str, FixedPolicy]:
    """Return a mapping of names to policies. A single policy gets the name "policy"."""
    if not isinstance(policies, Mapping):
        policies = {"policy": policies}
    if not policies:
        raise PolicyError("there is no policy to evaluate: pass a policy, or a mapping of names to policies")
    return {str(name): as_policy(policy, str(name)) for name, policy in policies.items()}


def as_weights(weights: Any, intercept: Any, who: str) -> tuple[Floats, Floats]:
    """Check and return the weights (K, d) and intercepts (K) of a linear policy."""
    try:  # copies: the caller's arrays stay as they are
        matrix = np.array(weights, dtype=np.float64, order="C")
        column = None if intercept is None else np.array(intercept, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise PolicyError(f"{who}: weights and intercept must be arrays of numbers") from None
    if matrix.ndim != 2:
        raise PolicyError(f"{who}: weights have shape {matrix.shape}; they must be (actions, features)")
    column = np.zeros(len(matrix)) if column is None else column
    if len(column) != len(matrix):
        raise PolicyError(f"{who}: {len(column)} intercepts for {len(matrix)} actions")
    if not (np.isfinite(matrix).all() and np.isfinite(column).all()):
        raise PolicyError(f"{who}: weights and intercepts must be finite")
    return matrix, column


def as_vector(weights: Any, intercept: Any, interactions: Any, who: str) -> tuple[Floats, Floats | None]:
    """Check and return weights that candidates share, and those of products of a context with a candidate (d, m)."""
    try:  # copies: the caller's arrays stay as they are
        vector = np.array(weights, dtype=np.float64)
        matrix = None if interactions is None else np.array(interactions, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise PolicyError(f"{who}: weights and interactions must be arrays of numbers") from None
    if intercept is not None:
        raise PolicyError(f"{who}: an intercept is the same for all candidates, so it changes nothing: leave it out")
    if matrix is not None and matrix.ndim != 2:
        raise PolicyError(
            f"{who}: interactions have shape {matrix.shape}; they must be (features of the context, features of a "
            "candidate)"
        )
    if not (np.isfinite(vector).all() and (matrix is None or np.isfinite(matrix).all())):
        raise PolicyError(f"{who}: weights and interactions must be finite")
    return vector, matrix
