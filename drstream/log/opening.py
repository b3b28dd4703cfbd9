"""From the parameters of `Log` to its `Spec`: which column plays which role, and what does not go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from drstream.errors import LogError, parameter
from drstream.log.encoding import ERROR, check_missing
from drstream.log.facts import SourceFacts
from drstream.log.filters import columns_of, parse_filter
from drstream.log.kinds.candidates.columns import (
    Candidates,
    candidate_columns,
    check_candidates,
    stored_candidates,
    with_action,
)
from drstream.log.kinds.eligible.columns import check_eligible
from drstream.log.kinds.rankings.columns import refusal
from drstream.log.labels import given_labels
from drstream.log.loggers import Loggers, logger_roles
from drstream.log.outcomes import without_outcomes
from drstream.log.schema import FIND, UNIFORM, Options, Roles, assign_roles
from drstream.log.spec import Spec


def spec_of(facts: SourceFacts, options: Options) -> Spec:
    """Check the parameters of a log, and return what its parts must be read with."""
    schema, skip = facts.source.schema, skips(options.on_bad_row)
    of_loggers, loggers = logger_roles(schema, options.logger, options.logger_propensities)
    options, found = _with_stored(schema, options)
    sets: Candidates | None = None
    if options.candidates is not None:
        sets = check_candidates(schema, options.candidates)
    roles = assign_roles(schema, options, of_loggers, () if sets is None else candidate_columns(schema, sets))
    if sets is not None:
        _check_beside_candidates(options, roles)
        roles = replace(roles, candidates=with_action(schema, sets, roles.action))
    if options.eligible is not None:
        if roles.ranking:
            raise refusal(roles, f"{parameter('eligible')} is about events with one action: leave it out")
        check_eligible(schema, options.eligible, roles.action)
    roles, missing, filter = without_outcomes(facts, roles), check_missing(options.missing), options.filter
    if roles.sparse is not None and missing != ERROR:
        raise LogError(f"{parameter('missing', missing)}: a sparse context lists what is there, so nothing is missing")
    chosen = parse_filter(filter, schema) if isinstance(filter, str) else filter
    spec = Spec(
        roles=roles,
        missing=missing,
        skip_bad_rows=skip,
        filter=chosen,
        filter_text=filter if isinstance(filter, str) else None,
        filter_columns=columns_of(chosen, schema),
        propensities_found=found,
        labels=() if options.actions is None else _given(options.actions, roles, schema),
        loggers=None if options.logger is None else Loggers(options.logger, loggers or ()),
    )
    if roles.constant == UNIFORM and roles.action is None and options.actions is None:  # no candidates, either
        raise LogError(
            f"{parameter('propensity', UNIFORM)} is 1 / the number of actions, which this log does not "
            f"tell: give the number with {parameter('actions')}, or the propensity itself"
        )
    return spec


def skips(on_bad_row: str) -> bool:
    """Check `on_bad_row=`, and return whether bad rows are skipped."""
    if on_bad_row not in ("error", "skip"):
        raise LogError(f'{parameter("on_bad_row", on_bad_row)}: it must be "error" or "skip"')
    return on_bad_row == "skip"


def _with_stored(schema: pa.Schema, options: Options) -> tuple[Options, bool]:
    """Return the options with what the schema itself says about candidates, and whether it gave their propensities."""
    if options.candidates is not FIND:
        return options, False
    free = options.actions is None and options.eligible is None
    stored = stored_candidates(schema, options.action) if free else None
    if stored is None:
        return replace(options, candidates=None), False
    found = options.propensities is None and stored.propensities is not None
    own = {"propensities": options.propensities, "sample_rate": options.sample_rate}
    given: dict[str, Any] = {name: getattr(stored, name) if value is None else value for name, value in own.items()}
    return replace(options, candidates=stored.candidates, **given), found


def _given(actions: Any, roles: Roles, schema: pa.Schema) -> Sequence[Any]:
    """Check actions= of a log, and return the labels."""
    if roles.ranking:
        raise refusal(roles, f"{parameter('actions')} is about events with one action")
    return given_labels(actions, None if roles.action is None else schema.field(roles.action).type)


def _check_beside_candidates(options: Options, roles: Roles) -> None:
    """Raise an error if the log has something that candidates do not go with."""
    if roles.ranking:
        raise LogError(
            f"column {roles.lists[0]!r} holds lists, so this is a log of rankings. It takes no "
            f"{parameter('candidates')}: leave it out, and name columns with the probabilities of policies"
        )
    if options.eligible is not None:
        raise LogError(
            f"{parameter('eligible')} is a set of known actions for each event, {parameter('candidates')} one of "
            "any items: leave out one of them"
        )
    if options.actions is not None:
        raise LogError(
            f"{parameter('actions')} are labels for all events, and {parameter('candidates')} are a set for each: "
            "leave out one of them"
        )
    if len(roles.propensities) > 1:
        raise LogError(
            f"{parameter('propensities')} names {len(roles.propensities)} columns, and {parameter('candidates')} are "
            "a set for each event: name one column of lists, as long as the candidates"
        )
