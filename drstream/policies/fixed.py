"""The fixed policies that come with drstream."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.buffers import Rule, Weights, hint_of_more
from drstream.errors import PolicyError, parameter, phrase
from drstream.kernels.observe import ARGMAX, SOFTMAX
from drstream.kernels.scores import argmax, one_hot, softmax
from drstream.log import Events, Log
from drstream.log.columns import has_nulls, lengths, nulls
from drstream.log.labels import describe_labels, encode
from drstream.log.schema import is_label, is_list, is_number, is_string, require_column
from drstream.policies.base import FixedPolicy, as_policy, as_vector, as_weights, older, rule_of
from drstream.policies.candidates import Even, Mixed, Scored, from_column, one_candidate, shared_weights
from drstream.policies.sets import given_bits, given_mask, spread, spread_over
from drstream.types import Floats, Ints


class Uniform(FixedPolicy):
    """Takes every action with the same probability: in a log with eligible sets, every action of the set.

    >>> Uniform(n_actions=4).probabilities(np.zeros((1, 2)))
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    uses_context = False
    direct = True

    def __init__(self, n_actions: int | None = None) -> None:
        self.n_actions = n_actions

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        if self.n_actions is not None:
            raise PolicyError(
                f"policy {name!r}: Uniform(n_actions={self.n_actions}) is for one set of actions for all events, and "
                f"this log has {parameter('candidates')}, a set for each: write Uniform()"
            )
        return Even(name)

    def probabilities(self, X: NDArray[Any], eligible: Any = None) -> Floats:
        if self.n_actions is None:
            raise PolicyError("Uniform() does not know how many actions there are: Uniform(n_actions=...)")
        mask = given_mask(eligible, X.shape[0], self.n_actions, "Uniform")
        return spread_over(np.zeros((X.shape[0], self.n_actions)), 1.0, mask)

    @property
    def steady(self) -> tuple[int, float]:
        return 0, 1.0

    def fill(self, block: Events, out: Floats) -> None:
        out[:] = 0.0
        spread(out, 1.0, block)

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        assert self.n_actions is not None
        if block.eligible is not None:
            if mass is not None:
                block.eligible.add_even(mass)
            return 1 / block.eligible.sizes
        if mass is not None:
            mass += len(block) / self.n_actions
        return np.full(len(block), 1 / self.n_actions)


class Constant(FixedPolicy):
    """Always takes the same action, given by its label.

    action     Its label. On a log of candidates, the id of a candidate or, without ids, its position.
    otherwise  The policy for events whose eligible set, or candidates, lack the action. Without it, such an event is an
               error. In a log without eligible sets or candidates, it has nothing to do.
    """

    uses_context = False
    direct = True

    def __init__(self, action: Any, otherwise: Any = None) -> None:
        self.action = action
        self.index = -1
        self.otherwise = None if otherwise is None else as_policy(otherwise, "otherwise of Constant")
        self._sets = False  # whether it is bound to a log with eligible sets
        if self.otherwise is not None:
            self._take_after(self.otherwise)

    def _take_after(self, other: FixedPolicy) -> None:
        self.uses_context, self.columns, self.learned_on = other.uses_context, other.columns, other.learned_on

    @property
    def known_labels(self) -> Sequence[Any] | None:
        return None if self.otherwise is None else self.otherwise.known_labels

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        return one_candidate(self.action, self.otherwise, log, name)

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        if self.action not in log.labels:
            raise PolicyError(
                f"policy {name!r} takes action {self.action!r}, which is not among the {describe_labels(log.labels)}: "
                f"take one of them or, if it was never logged, pass all labels with {parameter('actions')}"
            )
        bound.index = log.labels.index(self.action)
        bound._sets = log.roles.eligible is not None
        if self.otherwise is not None:
            bound.otherwise = self.otherwise.bind(log, name)
            bound.direct = bound.otherwise.direct
            bound._take_after(bound.otherwise)
            if bound.otherwise.only_logged:
                raise PolicyError(
                    f"policy {name!r}: what Constant does otherwise must know the probabilities of all actions, and it "
                    "gives that of the logged action only: give a column of lists"
                )
        return bound

    def probabilities(self, X: NDArray[Any], eligible: Any = None) -> Floats:
        if self.n_actions is None:
            raise PolicyError("Constant() knows its action's index only together with a log")
        out = np.zeros((X.shape[0], self.n_actions))
        out[:, self.index] = 1
        mask = given_mask(eligible, X.shape[0], self.n_actions, "Constant")
        if mask is not None and not mask[:, self.index].all():
            without = np.flatnonzero(~mask[:, self.index])
            if self.otherwise is None:
                raise self._lacking(f"event {without[0]}")
            out[without] = self.otherwise.probabilities(X[without], mask[without])  # type: ignore[call-arg]
        return out

    @property
    def steady(self) -> tuple[int, float] | None:
        return None if self._sets else (self.index, 0.0)

    def fill(self, block: Events, out: Floats) -> None:
        out[:] = 0
        out[self.index] = 1
        without = self._without(block)
        if len(without):
            assert self.otherwise is not None
            part = np.empty((len(out), len(without)))
            self.otherwise.fill(block.take(without), part)
            out[:, without] = part

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        out = (block.action == self.index).astype(np.float64)
        without = self._without(block)
        if len(without):
            assert self.otherwise is not None
            out[without] = self.otherwise.logged(block.take(without), mass)
        if mass is not None:
            mass[self.index] += len(block) - len(without)
        return out

    def _without(self, block: Events) -> Ints:
        """The events whose eligible sets lack the action."""
        if block.eligible is None:
            return np.empty(0, np.int64)
        found = np.flatnonzero(~block.eligible.has(np.full(len(block), self.index, np.int32)))
        if len(found) and self.otherwise is None:
            raise self._lacking(f"{block.where(int(found[0]))}: it could choose from {block.eligible.shown(found[0])}")
        return found

    def _lacking(self, where: str) -> PolicyError:
        otherwise = "drs.policies.Constant(action, otherwise=drs.policies.Uniform())"
        remedy = phrase(otherwise, f"constant:{self.action},otherwise=uniform")
        return PolicyError(
            f"policy {self.name!r} always takes action {self.action!r}, which is not in the eligible set of {where}. "
            f"Say what it does there, e.g. {remedy}"
        )


class _Scored(FixedPolicy):
    """A policy of scores: weights @ x + intercept, with one row of weights for each action, or those of candidates."""

    products: Weights  # set by bind
    kind: int

    def __init__(self, weights: Any, intercept: Any = None, interactions: Any = None) -> None:
        who = type(self).__name__
        self.interactions: Floats | None = None
        if np.ndim(weights) == 1:
            self.weights, self.interactions = as_vector(weights, intercept, interactions, who)
            self.intercept = np.zeros(1)
            return
        if interactions is not None:
            raise PolicyError(f"{who}: interactions= goes with one vector of weights, which all candidates share")
        self.weights, self.intercept = as_weights(weights, intercept, who)
        self.n_actions = len(self.weights)

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        kind = type(self).__name__
        if self.weights.ndim != 1:
            raise PolicyError(
                f"policy {name!r}, a {kind}, has a row of weights for each action, and this log has "
                f"{parameter('candidates')}, a set for each event: give one vector of weights, which all share, of the "
                "features of the context and then those of a candidate"
            )
        return Scored(name, self.kind, shared_weights(self.weights, self.interactions, log, name, kind))

    def _refuse_vector(self, name: str) -> None:
        if self.weights.ndim == 1:
            raise PolicyError(
                f"policy {name!r}, a {type(self).__name__}, has one vector of weights, which candidates share, and "
                f"this log has no {parameter('candidates')}: give a row of weights for each action"
            )

    def bind(self, log: Log, name: str) -> FixedPolicy:
        self._refuse_vector(name)
        shape = (log.n_actions, log.n_features)
        if self.weights.shape != shape:
            coded = bool(log.roles.coded)
            which = f" ({log.encoding})" if coded else ""
            raise PolicyError(
                f"policy {name!r} has weights of shape {self.weights.shape}; the log has {log.n_actions} actions and "
                f"{log.n_features} features{which}, so they must be {shape}. Pass {parameter('context')} and "
                f"{parameter('actions')} when you open the log"
                f"{'; log.feature_names has the names of all features' * coded}"
            )
        log.contexts.refuse_nan(f"policy {name!r}, a {type(self).__name__},", PolicyError)
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.products = Weights(self.weights)
        return bound

    def probabilities(self, X: Any, eligible: Any = None) -> Floats:
        self._refuse_vector(self.name)
        out = np.ascontiguousarray(Weights(self.weights).of(X).T)
        self._normalise(out, given_bits(eligible, out.shape[1], len(out), type(self).__name__))
        return out.T

    def fill(self, block: Events, out: Floats) -> None:
        self.products.fill(block, out)
        self._normalise(out, block.eligible_bits)

    @property
    def rule(self) -> Rule | None:
        known = not older(type(self), "kind", "_normalise")
        return Rule(self.kind, self.weights, self.intercept) if known else None

    def _normalise(self, scores: Floats, bits: NDArray[np.uint32] | None) -> None:
        raise NotImplementedError


class Linear(_Scored):
    """Takes the action with the largest score weights @ x + intercept; the first one in a tie.

    weights       (K, d): a row for each action. On a log of candidates one vector, which all share: of the features of
                  the context, then of those of a candidate.
    intercept     (K): a number for each action.
    interactions  On a log of candidates, (d, m): weights of the products of each feature of the context with each
                  feature of a candidate. Without them, the context changes no choice.

    >>> Linear([[1.0], [-1.0]]).probabilities(np.array([[2.0], [-3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """

    kind = ARGMAX

    def __init__(self, weights: Any, intercept: Any = None, *, interactions: Any = None) -> None:
        super().__init__(weights, intercept, interactions)

    def _normalise(self, scores: Floats, bits: NDArray[np.uint32] | None) -> None:
        argmax(scores, self.intercept, bits)


class Softmax(_Scored):
    """Takes actions with probabilities proportional to exp(score / temperature), score = weights @ x + intercept.

    On a log of candidates, weights and interactions are those of `Linear`.

    >>> Softmax([[0.0], [1.0]]).probabilities(np.zeros((1, 1)))
    array([[0.5, 0.5]])
    """

    def __init__(
        self, weights: Any, intercept: Any = None, temperature: float = 1, *, interactions: Any = None
    ) -> None:
        if not 0 < temperature < np.inf:
            raise PolicyError(f"Softmax: temperature={temperature} must be positive")
        super().__init__(weights, intercept, interactions)
        self.weights /= temperature
        self.intercept /= temperature
        if self.interactions is not None:
            self.interactions /= temperature
        self.temperature = 1.0  # the weights have it: attributes are the parameters of an equal policy

    kind = SOFTMAX

    def _normalise(self, scores: Floats, bits: NDArray[np.uint32] | None) -> None:
        softmax(scores, self.intercept, bits)


class Epsilon(FixedPolicy):
    """Takes a uniformly random action with probability epsilon, and otherwise follows the base policy.

    In a log with eligible sets, random actions are those of the set.
    """

    def __init__(self, base: Any, epsilon: float) -> None:
        if not 0 <= epsilon <= 1:
            raise PolicyError(f"Epsilon: epsilon={epsilon} must be in [0, 1]")
        self.base = as_policy(base, "base of Epsilon")
        self.epsilon = epsilon
        self.n_actions = self.base.n_actions
        self.uses_context = self.base.uses_context
        self.columns = self.base.columns
        self.learned_on = self.base.learned_on

    @property
    def known_labels(self) -> Sequence[Any] | None:
        return self.base.known_labels

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        return Mixed(name, self.base.bind_to(log, name), self.epsilon)

    def bind(self, log: Log, name: str) -> Self:
        bound: Self = super().bind(log, name)  # type: ignore[assignment]
        bound.base = self.base.bind(log, name)
        bound.only_logged, bound.direct = bound.base.only_logged, bound.base.direct
        bound.uses_context, bound.columns = bound.base.uses_context, bound.base.columns
        return bound

    def probabilities(self, X: NDArray[Any], eligible: Any = None) -> Floats:
        given = () if eligible is None else (eligible,)
        base = np.asarray(self.base.probabilities(X, *given), dtype=np.float64)
        return spread_over(base, self.epsilon, given_mask(eligible, len(base), base.shape[1], "Epsilon"))

    def fill(self, block: Events, out: Floats) -> None:
        self.base.fill(block, out)
        spread(out, self.epsilon, block)

    @property
    def rule(self) -> Rule | None:
        base = rule_of(self.base)
        return None if base is None else replace(base, epsilon=1 - (1 - self.epsilon) * (1 - base.epsilon))

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        assert self.n_actions is not None
        of_base = None if mass is None else np.zeros_like(mass)
        found = self.base.logged(block, of_base)
        if mass is not None and of_base is not None:
            mass += (1 - self.epsilon) * of_base + self._random_mass(block)
        if block.eligible is not None:
            return (1 - self.epsilon) * found + self.epsilon / block.eligible.sizes
        return (1 - self.epsilon) * found + self.epsilon / self.n_actions

    def _random_mass(self, block: Events) -> Any:
        """The sums of the probabilities of random actions, by action."""
        assert self.n_actions is not None
        if block.eligible is None:
            return self.epsilon * len(block) / self.n_actions
        even = np.zeros(self.n_actions)
        block.eligible.add_even(even)
        return self.epsilon * even


class Column(FixedPolicy):
    """A policy that is stored in a column of the log.

    The type of the column decides on its meaning. Lists hold the probabilities of all K actions, or of the candidates
    of their event. Floating-point numbers are probabilities of the logged action, which is enough for IPS and SNIPS.
    Integers, strings or a dictionary are labels of the action that the policy takes; on a log of candidates, ids or
    positions, as in the column of actions.
    """

    uses_context = False

    def __init__(self, column: str) -> None:
        self.column = column
        self.columns = (column,)
        self.labels: Sequence[Any] = ()

    def needs_actions(self, log: Log) -> bool:
        require_column(log.source.schema, self.column, "policy")
        return not pa.types.is_floating(log.source.schema.field(self.column).type)

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        self._check_type(log, name)
        bound = copy.copy(self)
        bound.name = name
        return from_column(bound, log, name, self.column)

    def _check_type(self, log: Log, name: str) -> pa.DataType:
        require_column(log.source.schema, self.column, f"policy {name!r}")
        kind = log.source.schema.field(self.column).type
        if is_list(kind) and not is_number(kind.value_type):
            raise PolicyError(f"policy {name!r}: column {self.column!r} has type {kind}: lists must hold numbers")
        if not (is_list(kind) or is_label(kind) or pa.types.is_floating(kind)):
            raise PolicyError(
                f"policy {name!r}: column {self.column!r} has type {kind}: it must hold labels of actions (integers, "
                "strings or a dictionary of them), floating-point probabilities of the logged actions, or lists of the "
                "probabilities of all actions. A function can read any column: drs.policies.from_arrow(function, "
                f"columns=[{self.column!r}])"
            )
        return kind

    def bind(self, log: Log, name: str) -> Self:
        kind = self._check_type(log, name)
        if self.needs_actions(log):
            bound: Self = super().bind(log, name)  # type: ignore[assignment]
            bound.labels, bound.direct = log.labels, not is_list(kind)
        else:
            bound = copy.copy(self)
            bound.name, bound.only_logged = name, True
            bound.given_by = self.column if type(self).logged is Column.logged else None
        return bound

    def fill(self, block: Events, out: Floats) -> None:
        column = self._whole(block)
        if not is_list(column.type):
            one_hot(self._choice(column, block), out)
            return
        found = lengths(column)
        if (found != len(out)).any():
            i = int(np.argmax(found != len(out)))
            raise PolicyError(
                f"policy {self.name!r}: column {self.column!r} holds {found[i]} probabilities at {block.where(i)}; "
                f"there are {len(out)} actions{hint_of_more(int(found[i]), len(out))}"
            )
        out[:] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1).T

    def _choice(self, column: pa.Array, block: Events) -> NDArray[np.int32]:
        choice = choices(column, self.labels, f"policy {self.name!r}: column {self.column!r} holds", block)
        if block.eligible is not None and not (inside := block.eligible.has(choice)).all():
            i = int(np.argmin(inside))
            raise PolicyError(
                f"policy {self.name!r}: column {self.column!r} holds {column[i].as_py()!r} at {block.where(i)}, which "
                f"is not eligible there: the event could choose from {block.eligible.shown(i)}"
            )
        return choice

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        column = self._whole(block)
        if self.direct:
            choice = self._choice(column, block)
            if mass is not None:
                np.add.at(mass, choice, 1.0)
            return (choice == block.action).astype(np.float64)
        if mass is not None:
            mass[:] = np.nan
        pi = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        if not (pi.min() >= 0 and pi.max() <= 1):
            i = int(np.argmax(~((pi >= 0) & (pi <= 1))))
            raise PolicyError(
                f"policy {self.name!r}: column {self.column!r} holds the probability {pi[i]} at {block.where(i)}"
            )
        return pi

    def _whole(self, block: Events) -> pa.Array:
        column = block.column(self.column)
        if has_nulls(column):
            i = int(np.argmax(nulls(column)))
            raise PolicyError(f"policy {self.name!r}: column {self.column!r} is null at {block.where(i)}")
        return column


def choices(column: pa.Array, labels: Sequence[Any], who: str, block: Events) -> NDArray[np.int32]:
    """Return the index of the action with each label of a column without nulls, or raise an error at the first other.

    who  Words of the message, before the label.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_string(kind) != any(isinstance(label, str) for label in labels[:1]):  # then no label can be the same
        choice = np.full(len(column), -1, np.int32)
    else:
        choice = encode(column, labels)
    if len(choice) and not 0 <= choice.min() <= choice.max() < len(labels):
        i = int(np.argmax((choice < 0) | (choice >= len(labels))))
        raise PolicyError(
            f"{who} {column[i].as_py()!r} at {block.where(i)}, which is not among the {describe_labels(labels)}. If it "
            f"is an action that was never logged, pass all labels with {parameter('actions')} when you open the log"
        )
    return choice
