"""Logs of rankings: what their columns say before anything is read, and the error where one action is needed."""

from __future__ import annotations

import pyarrow as pa

from drstream.errors import LogError, phrase
from drstream.log.columns import lengths
from drstream.log.facts import SourceFacts
from drstream.log.schema import CONDITIONAL, INDEPENDENT, MARGINAL, Roles

NEEDS_ONE = "Replays, audits, plans, models and learners need one action for each event, and so do other policies"


def shown_lengths(facts: SourceFacts, roles: Roles) -> str:
    """Return words about the lengths of the lists: those of all, if they are fixed or few, else of the first ones."""
    first = facts.first([roles.lists[0]])
    if first is None:
        return "no lists"
    column = first.column(0)
    sizes = lengths(column)
    least, most = int(sizes.min()), int(sizes.max())
    words = f"lists of {least} items" if least == most else f"lists of {least} to {most} items"
    whole = pa.types.is_fixed_size_list(column.type) or facts.source.rows == len(column)
    return words if whole else f"{words} in the first {len(column):,} rows"


def shown_propensities(roles: Roles) -> str:
    """Return words about the propensities of rankings."""
    if not roles.with_propensities:
        return ""
    if roles.propensity not in roles.lists:
        return ", of the whole list"
    about = {
        None: "by position",
        MARGINAL: "of an item at its position",
        CONDITIONAL: "by position, given the items above",
        INDEPENDENT: "by position; positions were filled independently",
    }
    return f", {about[roles.positions]}"


def refusal(roles: Roles, what: str) -> LogError:
    """Return the error of a log of rankings where only events with one action are taken."""
    return LogError(
        f"column {roles.lists[0]!r} holds lists, so this is a log of rankings. Only "
        f"{phrase('drs.evaluate and describe take', 'drstream evaluate, describe and convert take')} such logs. {what}"
    )
