"""Predicted rewards of rankings, by position, that stand in columns of the log."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from drstream.errors import ModelError, suggest
from drstream.log import Events, Log
from drstream.log.schema import is_list, is_number, require_column
from drstream.models.base import RewardModel
from drstream.policies.rankings import event_of, items_of
from drstream.types import Floats, Ints


class Positions(RewardModel):
    """Predicted rewards by position, in columns of lists, for a log of rankings.

    shown     The column with q_l, the predicted reward of each shown item at its position, given the items above it.
    expected  The columns with e_l, the expectation of q_l if the policy chooses the item at position l, given the shown
              items above it: by the name of the policy, or one column if there is one policy.

    >>> Positions("q", {"new": "q_new"}).columns
    ('q', 'q_new')
    """

    uses_context = False

    def __init__(self, shown: str, expected: str | Mapping[str, str]) -> None:
        self.shown, self.expected = shown, expected if isinstance(expected, str) else dict(expected)
        of_policies = [expected] if isinstance(expected, str) else list(expected.values())
        self.columns = tuple(dict.fromkeys([shown, *of_policies]))
        self.by_policy: tuple[str, ...] = ()  # set by bind_lists: the column of each policy

    def bind(self, log: Log) -> RewardModel:
        raise ModelError(
            "models.Positions(...) predicts rewards of rankings, and this log has one action for each event: use "
            "another model, e.g. drs.models.Ridge()"
        )

    def bind_lists(self, log: Log, policies: Sequence[str]) -> Self:
        """Check that the model fits a log of rankings and the policies of these names, and return a copy for them."""
        if isinstance(self.expected, str):
            if len(policies) > 1:
                raise ModelError(
                    f"models.Positions(...) has the column {self.expected!r} for one policy, and there are "
                    f"{len(policies)}: give a mapping of their names to columns"
                )
            by_policy = [self.expected]
        else:
            for name in policies:
                if name not in self.expected:
                    raise ModelError(
                        f"models.Positions(...) has no column for policy {name!r}: {suggest(name, self.expected)}"
                    )
            by_policy = [self.expected[name] for name in policies]
        for column in (self.shown, *by_policy):
            require_column(log.source.schema, column, "reward model")
            kind = log.source.schema.field(column).type
            if not is_list(kind) or not is_number(kind.value_type):
                raise ModelError(f"the reward model's column {column!r} has type {kind}: it must hold lists of numbers")
        bound = copy.copy(self)
        bound.columns, bound.by_policy = tuple(dict.fromkeys([self.shown, *by_policy])), tuple(by_policy)
        return bound

    def of_shown(self, block: Events, starts: Ints) -> Floats:
        """Return q_l of all shown items, in a flat array."""
        return self._items(block, self.shown, starts)

    def of_policy(self, j: int, block: Events, starts: Ints) -> Floats:
        """Return e_l of policy j at all positions, in a flat array."""
        return self._items(block, self.by_policy[j], starts)

    def _items(self, block: Events, column: str, starts: Ints) -> Floats:
        found = items_of(block, column, starts, "the reward model's column", ModelError)
        if not np.isfinite(found).all():
            k = int(np.argmax(~np.isfinite(found)))
            raise ModelError(
                f"the reward model's column {column!r} holds {found[k]} at {block.where(event_of(starts, k))}: "
                "predictions must be finite"
            )
        return found


def as_positions(model: Any) -> Positions | None:
    """Check the model of a log of rankings."""
    if model is None or isinstance(model, Positions):
        return model
    raise ModelError(
        f"{type(model).__name__} predicts rewards of single actions, and this is a log of rankings: give predictions "
        "by position in columns of lists, drs.models.Positions(...)"
    )
