"""Policies of rankings: columns with their probabilities of the shown items, or one choice for each position."""

from __future__ import annotations

from typing import Any

import numpy as np

from drstream.buffers import invalid_probabilities
from drstream.errors import DrstreamError, PolicyError, parameter
from drstream.kernels import ragged
from drstream.log import Events, Log
from drstream.log.columns import floats, has_nulls, lengths, nulls
from drstream.log.kinds.rankings.reading import Lists
from drstream.log.ragged import flat_lists
from drstream.log.schema import is_list, is_number, require_column
from drstream.policies.base import FixedPolicy, as_policy
from drstream.policies.fixed import Column
from drstream.types import Floats, Ints


class Ranker(FixedPolicy):
    """A policy that is bound to a log of rankings. It knows the probabilities of what was shown."""

    only_logged = True

    def of_items(self, block: Events, lists: Lists) -> Floats:
        """Return the probabilities of the shown items at their positions, in a flat array."""
        raise NotImplementedError

    def of_lists(self, block: Events, lists: Lists) -> Floats:
        """Return the probabilities of whole lists."""
        raise NotImplementedError

    def invalid(self, value: Any, where: str) -> PolicyError:
        """Return the error of a probability that is none."""
        return PolicyError(f"policy {self.name!r} gives the probability {value} at {where}")


class RankedColumn(Ranker):
    """A policy's probabilities of the shown items in a column.

    If the log has propensities by position, they are lists, which mean the same as these. If it has one propensity for
    each list, they are numbers, too: the probability of the whole list.
    """

    uses_context = uses_candidates = False

    def __init__(self, name: str, column: str) -> None:
        self.name, self.column = name, column
        self.columns = (column,)

    def of_items(self, block: Events, lists: Lists) -> Floats:
        return items_of(block, self.column, lists.starts, f"policy {self.name!r}: column", PolicyError)

    def of_lists(self, block: Events, lists: Lists) -> Floats:
        column = block.column(self.column)
        if has_nulls(column):
            raise self.invalid(None, block.where(int(np.argmax(nulls(column)))))
        found = floats(column)
        if not (found.min() >= 0 and found.max() <= 1):
            i = int(np.argmax(~((found >= 0) & (found <= 1))))
            raise self.invalid(found[i], block.where(i))
        return found

    def invalid(self, value: Any, where: str) -> PolicyError:
        shown = "null" if value is None else f"the probability {value}"
        return PolicyError(f"policy {self.name!r}: column {self.column!r} holds {shown} at {where}")


class Factorised(FixedPolicy):
    """Fills each position of a list by itself, from the candidates of the event, by the same policy.

    It is for logs of rankings that have candidates. Such a policy may show an item twice.

    base  A policy on candidates: Uniform, Softmax, Linear, Epsilon, Greedy, a function, or a column with lists of the
          probabilities of all candidates.
    """

    def __init__(self, base: Any) -> None:
        self.base = as_policy(base, "base of Factorised")
        self.learned_on = self.base.learned_on

    def bind(self, log: Log, name: str) -> FixedPolicy:
        raise self._not_here(name)

    def for_candidates(self, log: Log, name: str) -> FixedPolicy:
        raise self._not_here(name)

    def _not_here(self, name: str) -> PolicyError:
        return PolicyError(
            f"policy {name!r} fills the positions of rankings, and this log has one action for each event: leave out "
            "Factorised(...)"
        )


class FactorisedLists(Ranker):
    """A factorised policy, bound to a log of rankings of candidates."""

    def __init__(self, name: str, base: FixedPolicy) -> None:
        self.name, self.base = name, base
        self.columns, self.uses_context, self.uses_candidates = base.columns, base.uses_context, base.uses_candidates

    def of_items(self, block: Events, lists: Lists) -> Floats:
        starts, shown = block.candidates.starts, lists.shown
        assert shown is not None
        pi, spare = np.empty(block.candidates.count), np.empty(len(block))
        self.base.fill_flat(block, pi)
        bad = int(ragged.observe(starts, pi, spare[:0], np.zeros(len(block), np.int32), spare, spare))
        if bad >= 0:
            raise invalid_probabilities(f"policy {self.name!r}", pi[starts[bad] : starts[bad + 1]], block.where(bad))
        return np.minimum(pi[np.repeat(starts[:-1], np.diff(lists.starts)) + shown], 1.0)  # sums may be rounded

    def of_lists(self, block: Events, lists: Lists) -> Floats:
        return np.multiply.reduceat(self.of_items(block, lists), lists.starts[:-1])


def bind_ranked(policy: FixedPolicy, name: str, log: Log) -> Ranker:
    """Check that a policy fits a log of rankings, and return it bound."""
    by_position = log.roles.propensity in log.roles.lists
    wanted = "lists of the probabilities of the shown items" if by_position else "the probabilities of the shown lists"
    if isinstance(policy, Factorised):
        if not log.has_candidates:
            raise PolicyError(
                f"policy {name!r} chooses among the candidates of an event, and this log has none: name them with "
                f"{parameter('candidates')}, or name a column that holds {wanted}, drs.policies.Column(...)"
            )
        bound = policy.base.bind_to(log, name)
        if bound.only_logged:
            raise PolicyError(f"policy {name!r}: the base of Factorised must know the probabilities of all candidates")
        return FactorisedLists(name, bound)
    if not isinstance(policy, Column):
        wrapped = f", or wrap it, drs.policies.Factorised({type(policy).__name__}(...))" if log.has_candidates else ""
        raise PolicyError(
            f"policy {name!r} is a {type(policy).__name__}, and this is a log of rankings: name a column that holds "
            f"{wanted}, drs.policies.Column(...){wrapped}"
        )
    require_column(log.source.schema, policy.column, f"policy {name!r}")
    kind = log.source.schema.field(policy.column).type
    if is_list(kind) != by_position or not is_number(kind.value_type if is_list(kind) else kind):
        has = "a propensity for each item" if by_position else "one propensity for each list"
        raise PolicyError(
            f"policy {name!r}: column {policy.column!r} has type {kind}. The log has {has}, so it must hold {wanted}"
        )
    return RankedColumn(name, policy.column)


def items_of(block: Events, name: str, starts: Ints, who: str, error: type[DrstreamError]) -> Floats:
    """Return the numbers of a column of lists in a flat array, or raise an error at the first that does not fit.

    starts  Where the lists of the log begin: the column must have lists of the same lengths.
    who     Words of the message, before the column.
    """
    column = block.column(name)
    if has_nulls(column):
        raise error(f"{who} {name!r} is null at {block.where(int(np.argmax(nulls(column))))}")
    begin, flat = flat_lists(column)
    if not np.array_equal(begin, starts):
        found, shown = lengths(column), np.diff(starts)
        i = int(np.argmax(found != shown))
        raise error(f"{who} {name!r} holds {found[i]} numbers at {block.where(i)}, where {shown[i]} items were shown")
    if has_nulls(flat):
        k = int(np.argmax(nulls(flat)))
        raise error(f"{who} {name!r} holds a null at {block.where(event_of(starts, k))}")
    return floats(flat)


def event_of(starts: Ints, k: int) -> int:
    """Return the event that item k of a flat array belongs to."""
    return int(np.searchsorted(starts, k, side="right")) - 1
