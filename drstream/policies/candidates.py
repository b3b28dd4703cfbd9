"""Fixed policies on a log of candidates: what the policies of drstream become when they are bound to one.

A policy fills in the probabilities of all candidates of a block, one event's after the other's, in a flat array.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drstream.buffers import flat_numbers
from drstream.errors import DrstreamError, PolicyError, phrase
from drstream.kernels import ragged
from drstream.kernels.observe import ARGMAX
from drstream.log import Events, Log
from drstream.log.columns import has_nulls, nulls
from drstream.log.rows import keys_of
from drstream.log.schema import is_list, is_number, is_string
from drstream.policies.base import FixedPolicy
from drstream.shared import SharedWeights
from drstream.types import Floats


class CandidatePolicy(FixedPolicy):
    """A policy that is bound to a log of candidates."""

    uses_context = False

    def __init__(self, name: str) -> None:
        self.name = name


class Even(CandidatePolicy):
    """Takes every candidate with the same probability."""

    uses_candidates = False
    direct = True

    def fill_flat(self, block: Events, out: Floats) -> None:
        sizes = np.diff(block.candidates.starts)
        out[:] = np.repeat(1 / sizes, sizes)

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        return 1 / np.diff(block.candidates.starts)


class Scored(CandidatePolicy):
    """Takes candidates by scores of shared weights: the best one, or by a softmax."""

    def __init__(self, name: str, kind: int, shared: SharedWeights) -> None:
        super().__init__(name)
        self.kind, self.shared = kind, shared
        self.uses_context = shared.uses_context

    def fill_flat(self, block: Events, out: Floats) -> None:
        self.shared.fill(block, out)
        choose(self.kind, block, out, f"policy {self.name!r} has a score", PolicyError)


def choose(kind: int, block: Events, out: Floats, what: str, error: type[DrstreamError]) -> None:
    """Turn scores of candidates into probabilities, in place."""
    starts = block.candidates.starts
    scores = out.copy() if not np.isfinite(out.sum()) else out  # kernels overwrite what the message shows
    bad = int((ragged.argmax if kind == ARGMAX else ragged.softmax)(starts, out))
    if bad >= 0:
        place = int(np.argmin(np.isfinite(scores[starts[bad] : starts[bad + 1]])))
        raise error(
            f"{what} of {scores[starts[bad] + place]:g} for {block.candidates.shown(bad, place)} at "
            f"{block.where(bad)}, which is not finite"
        )


class Mixed(CandidatePolicy):
    """Takes a uniformly random candidate with probability epsilon, and otherwise follows the base policy."""

    def __init__(self, name: str, base: FixedPolicy, epsilon: float) -> None:
        super().__init__(name)
        self.base, self.epsilon = base, epsilon
        self.uses_context, self.uses_candidates = base.uses_context, base.uses_candidates
        self.columns, self.only_logged, self.direct = base.columns, base.only_logged, base.direct

    def fill_flat(self, block: Events, out: Floats) -> None:
        self.base.fill_flat(block, out)
        ragged.mix(block.candidates.starts, self.epsilon, out)

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        sizes = np.diff(block.candidates.starts)
        return (1 - self.epsilon) * self.base.logged(block) + self.epsilon / sizes


class Best(CandidatePolicy):
    """Takes the candidate with the largest predicted reward."""

    def __init__(self, name: str, model: Any) -> None:
        super().__init__(name)
        self.model = model
        self.uses_context, self.uses_candidates, self.columns = model.uses_context, model.uses_candidates, model.columns

    def fill_flat(self, block: Events, out: Floats) -> None:
        self.model.fill_flat(block, out)
        choose(ARGMAX, block, out, f"the reward model of policy {self.name!r} has a prediction", PolicyError)


class Listed(CandidatePolicy):
    """Probabilities that are stored in a column, as lists as long as the candidates."""

    uses_candidates = False

    def __init__(self, name: str, column: str) -> None:
        super().__init__(name)
        self.column, self.columns = column, (column,)

    def fill_flat(self, block: Events, out: Floats) -> None:
        flat_numbers(block, self.column, f"policy {self.name!r}", PolicyError, out)


class Target(CandidatePolicy):
    """The candidate that a column names, by its id or its position."""

    uses_candidates = False

    def __init__(self, name: str, column: str, by_id: bool) -> None:
        super().__init__(name)
        self.column, self.columns, self.by_id = column, (column,), by_id

    def fill_flat(self, block: Events, out: Floats) -> None:
        starts, column = block.candidates.starts, block.column(self.column)
        who = f"policy {self.name!r}: column {self.column!r}"
        if has_nulls(column):
            raise PolicyError(f"{who} is null at {block.where(int(np.argmax(nulls(column))))}")
        if self.by_id:
            ids = block.candidates.ids
            assert ids is not None
            wanted = np.repeat(keys_of(column), np.diff(starts))
            out[:] = keys_of(ids) == wanted  # keys of candidates of one event all differ
            missing = np.add.reduceat(out, starts[:-1]) == 0
        else:
            position = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
            missing = (position < 0) | (position >= np.diff(starts))
            ragged.one_hot(starts, position, out)
        if missing.any():
            i = int(np.argmax(missing))
            among = "among the candidates" if self.by_id else f"a position among {starts[i + 1] - starts[i]} candidates"
            raise PolicyError(f"{who} holds {column[i].as_py()!r} at {block.where(i)}, which is not {among}")


class One(CandidatePolicy):
    """Takes one candidate wherever it is there, and else follows another policy."""

    uses_candidates = False

    def __init__(self, name: str, action: Any, key: NDArray[np.uint64] | None, otherwise: FixedPolicy | None) -> None:
        super().__init__(name)
        self.action, self.key, self.otherwise = action, key, otherwise  # without a key, the action is a position
        if otherwise is not None:
            self.uses_context, self.uses_candidates = otherwise.uses_context, otherwise.uses_candidates
            self.columns = otherwise.columns

    def fill_flat(self, block: Events, out: Floats) -> None:
        offered = block.candidates
        if self.key is None:
            ragged.one_hot(offered.starts, np.full(len(block), self.action), out)
        else:
            assert offered.ids is not None
            out[:] = keys_of(offered.ids) == self.key
        lacking = np.flatnonzero(np.add.reduceat(out, offered.starts[:-1]) == 0)
        if not len(lacking):
            return
        if self.otherwise is None:
            otherwise = phrase(
                f"Constant({self.action!r}, otherwise=policy)", f"constant:{self.action},otherwise=uniform"
            )
            raise PolicyError(
                f"policy {self.name!r} takes {self.action!r}, which is not among the candidates at "
                f"{block.where(int(lacking[0]))}: say what it does there, {otherwise}"
            )
        places = np.repeat(np.isin(np.arange(len(block)), lacking), np.diff(offered.starts))
        found = np.empty(int(places.sum()))
        self.otherwise.fill_flat(block.take(lacking), found)
        out[places] = found


class Logged(CandidatePolicy):
    """Probabilities of the logged candidates that are stored in a column of numbers."""

    uses_candidates = False
    only_logged = True

    def __init__(self, name: str, policy: Any) -> None:
        super().__init__(name)
        self.policy, self.columns = policy, policy.columns

    def logged(self, block: Events, mass: Floats | None = None) -> Floats:
        return self.policy.logged(block)


# What columns and weights mean


def one_candidate(action: Any, otherwise: FixedPolicy | None, log: Log, name: str) -> CandidatePolicy:
    """Return the policy that takes one candidate, given by its id, or by its position if the log has no ids."""
    kind, key = log.candidates.ids_type, None
    if kind is not None and log.roles.candidates.action_is == "position" and isinstance(action, Integral):
        kind = None  # integers mean in a policy what they mean in the action's column
    if kind is not None:
        fits = action is not None and isinstance(action, str) == is_string(kind) and not isinstance(action, float)
        try:
            key = keys_of(pa.array([action], kind)) if fits else None
        except (pa.ArrowException, OverflowError):
            key = None
        if key is None:
            raise PolicyError(f"policy {name!r} takes {action!r}, and ids of candidates are {kind}")
        items = log.roles.candidates.items
        if items is not None and key not in items.loaded.keys[items.loaded.places >= 0]:
            raise PolicyError(f"policy {name!r} takes {action!r}, which the table of items lacks")
    elif not isinstance(action, Integral) or int(action) < 0:
        raise PolicyError(f"policy {name!r} takes {action!r}: in this log, it must be a position, from 0")
    bound = None if otherwise is None else otherwise.bind_to(log, name)
    if bound is not None and bound.only_logged:
        raise PolicyError(
            f"policy {name!r}: what Constant does otherwise must know the probabilities of all candidates, and it "
            "gives that of the logged one only: give a column of lists"
        )
    return One(name, action if key is not None else int(action), key, bound)


def from_column(policy: Any, log: Log, name: str, column: str) -> CandidatePolicy:
    """Return the policy that a column of a log of candidates holds."""
    kind = log.source.schema.field(column).type
    if is_list(kind):
        return Listed(name, column)
    if pa.types.is_floating(kind):
        return Logged(name, policy)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    candidates = log.roles.candidates
    ids = log.candidates.ids_type
    by_id = ids is not None and is_string(ids) == is_string(plain)
    if by_id and candidates.action_is == "position" and is_number(plain):
        by_id = False  # integers mean in this column what they mean in the action's
    if not by_id and not pa.types.is_integer(plain):
        raise PolicyError(
            f"policy {name!r}: column {column!r} has type {kind}: on this log, it must hold lists of probabilities as "
            "long as the candidates, ids or positions of candidates, or probabilities of the logged candidates"
        )
    return Target(name, column, by_id)


def shared_weights(weights: Floats, interactions: Floats | None, log: Log, name: str, kind: str) -> SharedWeights:
    """Check the weights of a policy against a log of candidates."""
    names = log.candidate_features
    d, m = log.n_features, len(names)
    if not m:
        raise PolicyError(f"policy {name!r}, a {kind}, needs features of candidates, and the log has none")
    if len(weights) != d + m:
        context = f"{d} of the context, then {m} of a candidate ({', '.join(names[:6])}{', ...' * (m > 6)})"
        raise PolicyError(f"policy {name!r} has {len(weights)} weights; on this log, they are {d + m}: {context}")
    if interactions is not None and interactions.shape != (d, m):
        raise PolicyError(
            f"policy {name!r} has interactions of shape {interactions.shape}; the context has {d} features and a "
            f"candidate {m}, so they must be {(d, m)}"
        )
    log.contexts.refuse_nan(f"policy {name!r}, a {kind},", PolicyError)
    by_context = interactions is not None and d > 0  # else contexts add the same to all candidates of an event
    return SharedWeights(
        weights[None, :d] if by_context else np.zeros((1, 0)),
        np.ascontiguousarray(weights[None, len(weights) - m :]),
        interactions[None] if by_context and interactions is not None else None,
        np.zeros(1),
    )
