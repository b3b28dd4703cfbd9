"""Policies of rankings: columns with their probabilities of the shown items, or of whole lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from drstream.errors import DrstreamError, PolicyError
from drstream.log import Events, Log
from drstream.log.columns import floats, has_nulls, lengths, nulls
from drstream.log.ragged import flat_lists
from drstream.log.schema import is_list, is_number, require_column
from drstream.policies.base import FixedPolicy
from drstream.policies.fixed import Column
from drstream.types import Floats, Ints


class RankedColumn(FixedPolicy):
    """A policy's probabilities of the shown items in a column, bound to a log of rankings.

    If the log has propensities by position, they are lists, which mean the same as these. If it has one propensity for
    each list, they are numbers, too: the probability of the whole list.
    """

    only_logged = True
    uses_context = uses_candidates = False

    def __init__(self, name: str, column: str) -> None:
        self.name, self.column = name, column
        self.columns = (column,)

    def of_items(self, block: Events, starts: Ints) -> Floats:
        """Return the probabilities of the shown items at their positions, in a flat array."""
        return items_of(block, self.column, starts, f"policy {self.name!r}: column", PolicyError)

    def of_lists(self, block: Events) -> Floats:
        """Return the probabilities of whole lists."""
        column = block.column(self.column)
        if has_nulls(column):
            raise self.invalid(None, block.where(int(np.argmax(nulls(column)))))
        found = floats(column)
        if not (found.min() >= 0 and found.max() <= 1):
            i = int(np.argmax(~((found >= 0) & (found <= 1))))
            raise self.invalid(found[i], block.where(i))
        return found

    def invalid(self, value: Any, where: str) -> PolicyError:
        """Return the error of a probability that is none."""
        shown = "null" if value is None else f"the probability {value}"
        return PolicyError(f"policy {self.name!r}: column {self.column!r} holds {shown} at {where}")


def bind_ranked(policy: FixedPolicy, name: str, log: Log) -> RankedColumn:
    """Check that a policy fits a log of rankings, and return it bound."""
    by_position = log.roles.propensity in log.roles.lists
    wanted = "lists of the probabilities of the shown items" if by_position else "the probabilities of the shown lists"
    if not isinstance(policy, Column):
        raise PolicyError(
            f"policy {name!r} is a {type(policy).__name__}, and this is a log of rankings: name a column that holds "
            f"{wanted}, drs.policies.Column(...)"
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
